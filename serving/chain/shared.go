package chain

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
)

// Shared calls ask once for all concurrent callers that want the same. A caller whose ctx ends leaves; the read goes on
// for the others.
func Shared[T any](ctx context.Context, timeout time.Duration, group *singleflight.Group, what string, ask func(context.Context) (T, error)) (T, error) {
	found := group.DoChan(what, func() (v any, err error) {
		defer func() {
			if p := recover(); p != nil { // in this goroutine nothing else recovers, so it would end the process
				err = fmt.Errorf("read %s: %v", what, p)
			}
		}()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		return ask(ctx)
	})
	var none T
	select {
	case <-ctx.Done():
		return none, ctx.Err()
	case f := <-found:
		if f.Err != nil {
			return none, f.Err
		}
		return f.Val.(T), nil
	}
}
