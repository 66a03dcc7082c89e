package engine

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// standstill is how long a partition may be idle before its head is looked up.
const standstill = 3 * time.Second

// measure keeps the lag metrics up to date, also for partitions whose task stands still.
func (n *Node) measure(ctx context.Context) error {
	for wait(ctx, announceInterval) {
		for _, r := range n.replicas {
			m, moved := r.marked()
			if moved.IsZero() { // it is not held, or there is nothing of it yet
				n.metrics.forget(r.partition)
				continue
			}
			n.metrics.block.WithLabelValues(label(r.partition)).Set(float64(m.At.Number)) // also where it is shown just while it is forgotten
			if n.commands != nil {
				continue // there is no head to lag behind
			}
			head := max(m.Latest, n.live.highest())
			if time.Since(moved) > standstill {
				there, err := n.head(ctx, r.partition)
				if err != nil {
					n.logger.Debug("cannot look up the head of an idle partition", partitionField(r.partition), zap.Error(err))
				}
				head = max(head, there)
			}
			n.metrics.lag.WithLabelValues(label(r.partition)).Set(float64(max(head, m.At.Number) - m.At.Number))
		}
	}
	return ctx.Err()
}

// head is the chain's head in the last barrier of a partition.
func (n *Node) head(ctx context.Context, partition int32) (head uint64, err error) {
	err = n.history.ReadBack(ctx, n.input, partition, 1, func(r *kafka.Record) bool {
		raw, _ := topics.DecodeRaw(r.Value)
		if end, ok := raw.(*topics.BlockEnd); ok {
			head = end.Head
		}
		return false
	})
	return head, err
}

// highest is the highest head that an owner has announced.
func (l *liveness) highest() (head uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.owner {
		head = max(head, o.Latest)
	}
	return head
}
