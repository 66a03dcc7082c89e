package rpc

import "context"

type watching struct{}

// Watch returns a context with which each answer to a request is told, as nil, and each error after which it is tried again:
// one that all endpoints fail at is tried for ever. told is called by several goroutines.
func Watch(ctx context.Context, told func(error)) context.Context {
	return context.WithValue(ctx, watching{}, told)
}

// tell tells who watches, if anybody does.
func tell(ctx context.Context, err error) {
	if told, ok := ctx.Value(watching{}).(func(error)); ok {
		told(err)
	}
}
