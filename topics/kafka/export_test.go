package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Kill cuts every connection at once: the group finds out when the session times out.
func (m *Membership) Kill() {
	m.conns.kill()
	go m.Close()
}

// Abort drops the open transaction. After an error the Transactor is dead; the next holder's Init or the
// broker's timeout aborts the transaction.
func (t *Transactor) Abort(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	err := supervise(ctx, func(ctx context.Context) error {
		if err := t.cl.AbortBufferedRecords(ctx); err != nil {
			return err
		}
		return t.cl.EndTransaction(ctx, kgo.TryAbort)
	})
	if err != nil {
		return t.die(fmt.Errorf("abort: %w", classify(err)))
	}
	t.mu.Lock()
	t.err = nil
	t.mu.Unlock()
	return nil
}

// Settle moves the partitions that are fresh now.
func Settle(c *Consumer) { c.moveFresh() }
