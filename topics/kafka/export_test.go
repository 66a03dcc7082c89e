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

// Buffered is how many bytes wait for the next Poll.
func (r *PartitionReader) Buffered() int {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	return r.bytes
}

// Held is how many bytes are buffered or in use.
func (c *Consumer) Held() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

// Settle moves the partitions that are fresh now.
func Settle(c *Consumer) { c.moveFresh() }

// Fetched reports whether a partition is being fetched.
func Fetched(r *PartitionReader) bool {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	return r.fetched
}

// Fresh is how many partitions the client reads whose fetches hardly wait.
func Fresh(c *Consumer) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.open {
		if r.by == c.fresh {
			n++
		}
	}
	return n
}
