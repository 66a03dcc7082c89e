package rpc

import "context"

type watching struct{}

// Watch returns a context whose requests report each answer, as nil, and each error that is retried: an error of all
// endpoints is retried without end. report is called by several goroutines.
func Watch(ctx context.Context, report func(error)) context.Context {
	return context.WithValue(ctx, watching{}, report)
}

// report calls the function of Watch, if there is one.
func report(ctx context.Context, err error) {
	if tell, ok := ctx.Value(watching{}).(func(error)); ok {
		tell(err)
	}
}
