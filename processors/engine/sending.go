package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// flushBytes is how much of a commit is sent at a time; at the tip a commit is smaller. The client encodes it
// into one request, whose buffer grows and is dropped again.
const flushBytes = 384 << 10

// sending adds records to a task's open transaction, and sends them piece by piece. out has their memory.
type sending struct {
	t      *task
	ctx    context.Context //nolint:containedctx // it is no longer than a commit
	out    *kafka.Outbox
	most   int // bytes that are sent at a time
	unsent int
}

func (s *sending) send(topic string, key, value []byte) *kafka.Record {
	return s.sendTo(s.t.r.partition, topic, key, value)
}

func (s *sending) sendTo(partition int32, topic string, key, value []byte) *kafka.Record {
	r := s.out.Record()
	r.Topic, r.Partition, r.Key, r.Value = topic, partition, key, value
	s.t.out.Produce(s.ctx, r)
	if s.unsent += len(key) + len(value); s.unsent >= s.most {
		s.flush()
	}
	return r
}

func (s *sending) flush() (ok bool) {
	s.unsent = 0
	if ok = s.t.out.Flush(s.ctx); ok {
		s.out.Reset()
	}
	return ok
}

// final sends an event to the topic of those that are final. The event may be sent once more, so its value is copied.
func (s *sending) final(e state.Event) {
	s.event(s.t.n.events[e.Family].final, e, s.out.Values.Copy(e.Value))
}

// head sends an event, or its retraction, to the topic at the head.
func (s *sending) head(e state.Event, removed bool) {
	value := e.Value
	if removed {
		value = topics.MarkRemoved(value)
	}
	s.event(s.t.n.events[e.Family].head, e, value)
}

func (s *sending) event(topic string, e state.Event, value []byte) {
	if topic == "" {
		return
	}
	if !s.t.n.events[e.Family].routed {
		s.send(topic, e.Key, value)
		return
	}
	if partition, key, ok := topics.Unrouted(e.Key); ok {
		s.sendTo(partition, topic, key, value)
	}
}

// begin opens the transaction of the next commit, unless a part of it was already sent.
func (t *task) begin(ctx context.Context) error {
	if t.begun {
		return nil
	}
	t.begun = true
	for {
		t.choose()
		if err := t.out.Begin(ctx); !errors.Is(err, errSeatLost) {
			return err
		}
	}
}

// drain sends the events that are final before the commit, far behind the head: they would be most of what the commit holds
// in memory, and so it has room for rows, of which it sends one version each.
func (t *task) drain(ctx context.Context) error {
	if !t.far || t.overlay.EventBytes() < min(t.n.cfg.DrainBytes, t.commitBytes()/2) {
		return nil
	}
	if err := t.takeTurn(ctx); err != nil {
		return err
	}
	if err := t.begin(ctx); err != nil {
		return err
	}
	s := &sending{t: t, ctx: ctx, out: t.n.outboxes.take(), most: t.n.cfg.DrainBytes}
	drained, err := t.overlay.Drain(t.floor, t.now.Floor, s.final, s.head)
	if err != nil {
		return fmt.Errorf("drain blocks up to %d: %w", t.now.Floor, err)
	}
	if drained {
		t.floor = max(t.floor, t.now.Floor)
	}
	if s.flush() { // otherwise the client still has them, and the commit fails
		t.n.outboxes.release(s.out)
		if drained && t.overlay.EventBytes() == 0 {
			t.emitted.Reset()
		}
	}
	if t.crash("drained") {
		return errCrash
	}
	return nil
}
