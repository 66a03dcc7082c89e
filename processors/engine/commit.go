package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics/kafka"
)

// commit commits what was applied up to the last Commit barrier: one Kafka transaction, then one Pebble batch.
// At the tip the view is published first, or was before: a commit may be of several blocks, and readers wait for no broker.
// The transaction is the task's own, or at the tip the node's (joint.go).
//
// Far behind the head the events of final blocks are in the transaction already.
//
//	ent, evt, evt.final ─┐
//	changelog entries   ─┼─ one transaction ──► batch ──► view ──► observer, not at the tip
//	progress, last      ─┘
func (t *task) commit(ctx context.Context) error {
	if !t.settled {
		return nil
	}
	if t.dirty.IsZero() {
		if due, err := t.progressDue(); !due {
			return err
		}
	}
	if err := t.takeTurn(ctx); err != nil {
		return err
	}
	defer t.passTurn()
	started := time.Now()
	touched := !t.dirty.IsZero()
	if touched && t.tip && t.catchUpUntil.IsZero() && !t.ahead {
		if err := t.show(t.news()); err != nil {
			return err
		}
		runtime.Gosched() // who reads waits for the other partitions to show the block, and for no commit
	}
	if err := t.postpone(); err != nil {
		return err
	}
	t.r.await()
	if err := t.begin(ctx); err != nil {
		return err
	}
	out := t.n.outboxes.take()
	prog, err := t.produce(&sending{t: t, ctx: ctx, out: out, most: flushBytes})
	if err != nil {
		return err
	}
	var changes []Change
	if touched && !t.ahead {
		changes = t.news()
	}
	if t.crash("beforeEnd") {
		return errCrash
	}
	if t.crash("duringEnd") {
		t.cutSoon()
	}
	if err := t.out.Commit(ctx); err != nil {
		return err
	}
	if t.crash("afterEnd") {
		return errCrash
	}
	if began := prog.Offset - int64(t.ready.Records); began < t.store.Changelog {
		return fmt.Errorf("%w: a commit began at offset %d of the changelog, but the state is at offset %d", ErrBroken, began, t.store.Changelog)
	}
	t.store.Progress, t.store.Changelog, t.store.Since, t.store.WrittenMs = t.ready, prog.Offset+1, prog.Offset+1, started.UnixMilli()
	t.r.heard()
	t.n.outboxes.release(out)
	if err := t.r.write(func() error { return t.r.store.Commit(t.overlay, t.store.encode()) }); err != nil {
		return err
	}
	t.r.worked = true
	t.r.passed(t.ready.Input)
	t.join()
	if t.crash("afterPebble") {
		return errCrash
	}
	t.n.metrics.commits.WithLabelValues(label(t.r.partition)).Observe(time.Since(started).Seconds())
	ahead := t.ahead
	t.reset()
	switch {
	case ahead:
		t.r.replace(t.r.store.Snapshot())
	case touched:
		t.publish(t.r.store.Snapshot(), t.applied(changes))
	}
	return nil
}

// postpone leaves what has become final to a commit of its own, which follows at once: at the tip others wait for the rows of a
// commit, and finality comes for many blocks at a time.
func (t *task) postpone() error {
	left := t.postponed
	t.postponed, t.ready.Floor = 0, max(t.ready.Floor, left)
	if left > 0 || !t.tip || t.dirty.IsZero() || !t.catchUpUntil.IsZero() {
		return nil
	}
	settles, err := t.overlay.Settles(t.floor, t.ready.Floor)
	if settles {
		t.postponed, t.ready.Floor = t.ready.Floor, t.floor
	}
	return err
}

// show publishes the state ahead of its commit. The blocks are committed in the raw topic and their result is
// deterministic, so readers need not wait until the output topics have it too.
func (t *task) show(changes []Change) error {
	var snap *state.Snapshot // nil: the last view is the same
	if t.told < t.overlay.Applied() || t.now.Reverts > t.store.Progress.Reverts {
		var err error
		if snap, err = t.r.store.SnapshotWith(t.overlay); err != nil {
			return err
		}
	}
	t.publish(snap, t.applied(changes))
	t.ahead, t.told = true, t.overlay.Applied()
	return nil
}

// news returns what has changed since observers were last told. A row that was changed and changed back was different at a block
// in between.
func (t *task) news() []Change {
	changes := make([]Change, 0, t.overlay.Len())
	t.overlay.Changed(t.told, func(row state.Row) {
		changes = append(changes, Change{Table: row.Table, Key: row.Key, Row: row.Value})
	})
	return changes
}

// applied returns the call that tells the observer about changes.
func (t *task) applied(changes []Change) func(Partition, state.View) {
	return func(p Partition, v state.View) { t.n.observer.Applied(p, v, changes) }
}

// produce adds the records of the commit that were not drained before. Progress is its last record in the changelog.
func (t *task) produce(s *sending) (prog *kafka.Record, err error) {
	// Undo and final events go first: the producer may overwrite the start of a value that it is given.
	if err := t.overlay.Settle(t.floor, t.ready.Floor, s.final); err != nil {
		return nil, fmt.Errorf("settle blocks %d-%d: %w", t.floor, t.ready.Floor, err)
	}
	err = t.overlay.Rows(func(row state.Row) error {
		if e := row.Table.Entity; e != nil && (!row.Same || row.Value == nil) {
			var value []byte
			if row.Value != nil {
				var err error
				if value, err = e.Encode(s.out.Values.Next(), row.Value, t.ready.At); err != nil {
					return fmt.Errorf("%w: encode %s: %w", ErrApp, e.Name, err)
				}
				value = s.out.Values.Keep(value)
			}
			s.send(t.n.entities[e.Name], s.out.Values.Keep(e.Key(s.out.Values.Next(), row.Key)), value)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	t.overlay.Events(s.head)
	var entries uint64
	t.overlay.Entries(func(key, value []byte) {
		entries++
		if value != nil {
			value = s.out.Values.Keep(seal(s.out.Values.Next(), key, t.store.Generation, value))
		}
		s.send(t.n.changelog, key, value)
	})
	t.ready.Records = entries
	t.ready.Writer = t.writer()
	prog = s.send(t.n.changelog, keyProgress, sealProgress(t.store.Generation, t.ready, t.store.Changelog))
	return prog, nil
}

// crash lets a test stop a task here.
func (t *task) crash(point string) bool { return t.n.cfg.crash(t.r.partition, point) }

// cutSoon cuts the connections during a commit.
func (t *task) cutSoon() {
	time.AfterFunc(time.Duration(rand.IntN(1000))*time.Microsecond, t.out.Kill)
}
