package engine

import (
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// outbox is memory for what a commit sends, used again once the broker has it.
type outbox struct {
	values  topics.Scratch
	records []*kafka.Record
	used    int
}

// record returns a record to send.
func (b *outbox) record(topic string, partition int32, key, value []byte) *kafka.Record {
	if b.used == len(b.records) {
		b.records = append(b.records, new(kafka.Record))
	}
	r := b.records[b.used]
	b.used++
	*r = kafka.Record{Topic: topic, Partition: partition, Key: key, Value: value}
	return r
}

func (b *outbox) reset() {
	b.values.Reset()
	b.used = 0
}

// outboxes are those of a node's tasks that are not in use. At the tip commits are small, and far behind it only so
// many tasks commit at a time.
type outboxes chan *outbox

func newOutboxes() outboxes { return make(outboxes, committers) }

func (o outboxes) take() *outbox {
	select {
	case b := <-o:
		return b
	default:
		return new(outbox)
	}
}

// release takes an outbox back, of which everything was acknowledged.
func (o outboxes) release(b *outbox) {
	b.reset()
	select {
	case o <- b:
	default:
	}
}
