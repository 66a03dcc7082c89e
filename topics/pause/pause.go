// Package pause sleeps for a time, or until a context is done.
package pause

import (
	"context"
	"time"
)

// For waits for d. If ctx is done before, it returns the error of ctx.
func For(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
