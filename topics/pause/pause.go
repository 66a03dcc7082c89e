// Package pause waits.
package pause

import (
	"context"
	"time"
)

// For waits for a time, or until ctx is done, whose error it returns then.
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
