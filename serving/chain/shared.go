package chain

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
)

// Shared asks once for all who ask for the same at a time. Whoever began may leave, and the others wait.
func Shared[T any](ctx context.Context, timeout time.Duration, group *singleflight.Group, what string, ask func(context.Context) (T, error)) (T, error) {
	found := group.DoChan(what, func() (v any, err error) {
		defer func() {
			if p := recover(); p != nil { // it would end the process: this is a goroutine of its own
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
