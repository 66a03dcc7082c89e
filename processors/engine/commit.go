package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// commit commits what was applied up to the last Commit barrier: one Kafka transaction, then one Pebble batch.
// At the tip the view is published before the transaction commits.
//
//	ent, evt, evt.final ─┐
//	changelog entries   ─┼─ one transaction ──► batch ──► view ──► observer
//	progress, last      ─┘
func (t *task) commit(ctx context.Context) error {
	if !t.settled || t.dirty.IsZero() && t.moved.IsZero() && time.Since(t.since) < idleInterval {
		return nil
	}
	if t.far {
		select {
		case t.n.turn <- struct{}{}:
			defer func() { <-t.n.turn }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	started := time.Now()
	if err := t.tx.Begin(); err != nil {
		return err
	}
	out := t.n.outboxes.take()
	changes, prog, err := t.produce(ctx, out)
	if err != nil {
		return err
	}
	touched := !t.dirty.IsZero()
	ahead := touched && t.tip && t.catchUpUntil.IsZero()
	if ahead {
		// The blocks are committed in the raw topic and their result is deterministic, so readers need not wait
		// until the output topics have it too.
		snap, err := t.r.store.SnapshotWith(t.overlay)
		if err != nil {
			return err
		}
		t.publish(snap, t.applied(changes))
	}
	if t.crash("beforeEnd") {
		return errCrash
	}
	if t.crash("duringEnd") {
		t.cutSoon()
	}
	if err := t.tx.Commit(ctx); err != nil {
		return err
	}
	if t.crash("afterEnd") {
		return errCrash
	}
	t.store.Progress, t.store.Changelog, t.store.WrittenMs = t.ready, prog.Offset+1, started.UnixMilli()
	t.n.outboxes.release(out)
	if err := t.r.write(func() error { return t.r.store.Commit(t.overlay, t.store.encode()) }); err != nil {
		return err
	}
	t.r.worked = true
	if t.crash("afterPebble") {
		return errCrash
	}
	t.n.metrics.commits.WithLabelValues(label(t.r.partition)).Observe(time.Since(started).Seconds())
	t.reset()
	switch {
	case ahead:
		t.r.replace(t.r.store.Snapshot())
	case touched:
		t.publish(t.r.store.Snapshot(), t.applied(changes))
	}
	return nil
}

// applied returns the call that tells the observer about changes.
func (t *task) applied(changes []Change) func(Partition, state.View) {
	return func(p Partition, v state.View) { t.n.observer.Applied(p, v, changes) }
}

// flushBytes is how much of a commit is sent at a time; at the tip a commit is smaller. The client encodes it
// into one request, whose buffer grows and is dropped again.
const flushBytes = 384 << 10

// produce adds all records of the commit to the open transaction. Progress is its last record in the changelog.
func (t *task) produce(ctx context.Context, out *kafka.Outbox) (changes []Change, prog *kafka.Record, err error) {
	unsent := 0
	sendTo := func(partition int32, topic string, key, value []byte) *kafka.Record {
		r := out.Record()
		r.Topic, r.Partition, r.Key, r.Value = topic, partition, key, value
		t.tx.Produce(ctx, r)
		if unsent += len(key) + len(value); unsent >= flushBytes {
			if t.tx.Flush(ctx) {
				out.Reset()
			}
			unsent = 0
		}
		return r
	}
	send := func(topic string, key, value []byte) *kafka.Record { return sendTo(t.r.partition, topic, key, value) }
	n := t.n
	event := func(topic, family string, key, value []byte) {
		if topic == "" {
			return
		}
		if !n.events[family].routed {
			send(topic, key, value)
			return
		}
		if partition, key, ok := topics.Unrouted(key); ok {
			sendTo(partition, topic, key, value)
		}
	}
	// Undo and final events go first: the producer may overwrite the start of a value that it is given.
	err = t.overlay.Settle(t.store.Progress.Floor, t.ready.Floor, func(e state.Event) {
		event(n.events[e.Family].final, e.Family, e.Key, out.Values.Copy(e.Value))
	})
	if err != nil {
		return nil, nil, fmt.Errorf("settle blocks %d-%d: %w", t.store.Progress.Floor, t.ready.Floor, err)
	}
	changes = make([]Change, 0, t.overlay.Len())
	err = t.overlay.Rows(func(row state.Row) error {
		if e := row.Table.Entity; e != nil && (!row.Same || row.Value == nil) {
			var value []byte
			if row.Value != nil {
				var err error
				if value, err = e.Encode(out.Values.Next(), row.Value, t.ready.At); err != nil {
					return fmt.Errorf("%w: encode %s: %w", ErrApp, e.Name, err)
				}
				value = out.Values.Keep(value)
			}
			send(n.entities[e.Name], e.Key(row.Key), value)
		}
		// A row that was changed and changed back was different at a block in between.
		changes = append(changes, Change{Table: row.Table, Key: row.Key, Row: row.Value})
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	t.overlay.Events(func(e state.Event, removed bool) {
		value := e.Value
		if removed {
			value = topics.MarkRemoved(value)
		}
		event(n.events[e.Family].head, e.Family, e.Key, value)
	})
	var entries uint64
	t.overlay.Entries(func(key, value []byte) {
		entries++
		if value != nil {
			value = out.Values.Keep(seal(out.Values.Next(), key, t.store.Epoch, value))
		}
		send(n.changelog, key, value)
	})
	t.ready.Records = entries
	prog = send(n.changelog, keyProgress, seal(nil, keyProgress, t.store.Epoch, t.ready.append(nil)))
	return changes, prog, nil
}
