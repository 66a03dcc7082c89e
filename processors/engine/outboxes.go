package engine

import "github.com/lienstream/lienstream/topics/kafka"

// outboxes are those of a node's tasks that are not in use. At the tip commits are small, and far behind it only so
// many tasks commit at a time.
type outboxes chan *kafka.Outbox

func newOutboxes() outboxes { return make(outboxes, committers) }

func (o outboxes) take() *kafka.Outbox {
	select {
	case b := <-o:
		return b
	default:
		return new(kafka.Outbox)
	}
}

// release takes an outbox back, of which everything was acknowledged.
func (o outboxes) release(b *kafka.Outbox) {
	b.Reset()
	select {
	case o <- b:
	default:
	}
}
