package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// task applies one partition with exactly-once semantics, while it owns it.
//
// Invariants:
//  1. Kafka is the commit log. The store is written only after a transaction is known to be committed: it is
//     at or behind the changelog, never ahead of it, and never holds a part of a commit;
//  2. after a failed commit the overlay and the client are dropped. Whether it was committed is found out by
//     the restore after the next open record. Views published of it stay valid: they are what the raw topic
//     results in, whoever applies it;
//  3. nothing of a former owner follows the open record: fencing has aborted it;
//  4. a commit and a view always end at a Commit barrier, where the ingester's transaction ended, so that
//     partitions can be read at the same block;
//  5. the events of a block are published once in each topic, in the transaction of the rows that they belong
//     to. It may be open for some of them before the commit.
type task struct {
	n *Node
	r *replica

	tx          *kafka.Transactor // under the partition's transactional ID
	seat        *seat             // in the node's transactions; nil: none
	renewed     time.Time         // when the partition's transactional ID was last used
	next        *jointTx          // in whose transactions the task takes part after its next commit; nil: in none
	out         writer            // tx or seat: what the next commit is written to
	incarnation int64             // offset of its open record; -1: none is written
	store       position          // what the store holds

	applier                // since the last commit; settled: a commit is possible
	ready   progress       // as of the last Commit barrier
	begun   bool           // the transaction of the next commit is open: some events were sent
	emitted topics.Scratch // events that are not sent yet, far behind the head
	floor   uint64         // up to which stored blocks are final, as of what was sent
	since   time.Time      // time of the last commit
	looked  time.Time      // when it was last looked whether an owner without changes has to commit

	uncommitted int    // Commit barriers since the last commit
	ahead       bool   // ready is published, ahead of its commit
	told        int    // how many blocks of the overlay were published; -1: it never was
	postponed   uint64 // up to which blocks are final that the last commit left out; 0: it left out none

	// Until it has caught up, an owner is not visible if the partition can be read elsewhere: the raw topic
	// offset to pass, and when to stop waiting; zero: it is visible.
	catchUpUntil time.Time
	behind       int64

	tip    bool  // at the tip of the chain, as of the last Commit barrier
	far    bool  // far behind it
	turn   turn  // of those far behind that apply and commit
	turned int64 // from which offset of the raw topic on it has it
	held   int   // bytes that count in the node's
	end    int64 // end of the raw topic when the task began: passing it is worth a commit
	ended  bool
}

var errCrash = errors.New("injected crash")

// own runs a task until ctx is done, the partition is taken over, or an error makes the outcome uncertain.
func (n *Node) own(ctx context.Context, r *replica) (err error) {
	r.setState(topics.StateRestoring, nil)
	started := time.Now()
	var s *restorer
	restorer := func(now *life) error {
		pos, err := n.open(ctx, r, now)
		if err == nil {
			s, err = n.newRestorer(r, pos, n.rank(r))
		}
		return err
	}
	defer func() {
		if s != nil {
			s.close()
		}
	}()
	rebuild := n.cfg.Rebuild && !r.rebuilt
	if !rebuild { // a rebuild ignores the state
		if err := restorer(nil); err != nil {
			return err
		}
		if err := s.catchUp(ctx, n); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		if err := n.continues(s.pos.Progress); err != nil {
			return err // before the owner is fenced: it can go on
		}
	}
	if n.cfg.crash(r.partition, "caughtUp") {
		return errCrash
	}
	if err := n.awaitRelease(ctx, r.partition, s); err != nil {
		return err
	}
	tx, err := n.transactor(n.transactionalID(r.partition))
	if err != nil {
		return err
	}
	defer tx.Close()
	t := &task{n: n, r: r, tx: tx, incarnation: -1, turn: turn{of: n.turns}, applier: applier{app: n.app, commands: n.commands, partition: r.partition}}
	t.unread = t.unreadable
	defer func() {
		if errors.Is(err, errCrash) {
			tx.Kill()
		}
	}()
	r.await()
	if err := tx.Init(ctx); err != nil {
		return err
	}
	if rebuild { // it builds upon how the changelog ends, and this says what a broker must know of it
		if err := t.open(ctx); err != nil {
			return err
		}
	}
	last, err := n.fenceWriter(ctx, r.partition, t.incarnation)
	if err != nil {
		return fmt.Errorf("fence the former owner: %w", err)
	}
	r.heard()
	if rebuild {
		now, err := t.rebuild(ctx, last)
		if err != nil {
			return fmt.Errorf("rebuild: %w", err)
		}
		r.rebuilt = true
		if err := restorer(&now); err != nil {
			return err
		}
		s.endLoad()
	} else if err := t.open(ctx); err != nil {
		return err
	}
	err = s.finish(ctx, t, last.progress.Writer)
	n.metrics.restores.WithLabelValues(label(r.partition)).Inc()
	n.metrics.restored.WithLabelValues(label(r.partition)).Add(float64(s.applied))
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	t.store = s.pos
	if !s.others {
		r.carryOn(t.incarnation, t.store.Progress)
	}
	s.close()
	s = nil
	n.logger.Info("task restored", partitionField(r.partition), zap.Int64("incarnation", t.incarnation),
		zap.Uint64("block", t.store.Progress.At.Number), zap.Duration("took", time.Since(started)))
	if n.cfg.crash(r.partition, "restored") {
		return errCrash
	}
	return t.run(ctx)
}

// open writes the open record of this incarnation, after the given records.
func (t *task) open(ctx context.Context, before ...*kafka.Record) error {
	if err := t.tx.Begin(); err != nil {
		return err
	}
	for _, r := range before {
		t.tx.Produce(ctx, r)
	}
	open := t.changelogRecord(keyOpen, []byte(t.n.cfg.Instance))
	t.tx.Produce(ctx, open)
	if err := t.tx.Commit(ctx); err != nil {
		return fmt.Errorf("open record: %w", err)
	}
	t.incarnation = open.Offset
	return nil
}

func (t *task) changelogRecord(key, value []byte) *kafka.Record {
	return &kafka.Record{Topic: t.n.changelog, Partition: t.r.partition, Key: key, Value: value}
}

// run is the loop: read, apply, and commit at barriers.
func (t *task) run(ctx context.Context) (err error) {
	p := &t.store.Progress
	p.Incarnation = t.incarnation
	t.reset()
	if err := t.n.continues(*p); err != nil {
		return err
	}
	p.App = t.n.version
	if p.Raw, err = t.n.sameTopic(ctx, t.n.input, t.r.partition, p.Raw, p.LeaderEpoch, p.Input); err != nil {
		return err
	}
	t.now, t.ready, t.settled = *p, *p, true
	read, err := t.n.consumer.Open(t.n.input, t.r.partition, p.Input)
	if err != nil {
		return err
	}
	defer read.Close()
	defer func() { t.r.failedAt(err, t.now.Input) }()
	t.r.passed(p.Input)
	t.r.recover()
	t.r.await()
	if t.end, err = t.n.lastOffset(ctx, t.n.input, t.r.partition); err != nil {
		return err
	}
	t.r.heard()
	t.ended = t.end < max(p.Input, 0)
	t.beginCatchUp()
	defer t.n.catchingUp.end(t.r.partition)
	defer t.r.forgetKept() // a standby may be ahead of them
	defer t.leave()
	defer func() {
		t.endTurn()
		t.n.overlays.Add(-int64(t.held))
	}()
	defer t.setFar(false)
	defer func() {
		if t.catchUpUntil.IsZero() {
			t.n.observer.Closed(t.self())
		}
	}()
	t.endCatchUp()
	var records []*kafka.Record
	for {
		if t.commands == nil {
			t.r.await() // commands may not come for days
		}
		records, err = t.poll(ctx, read, records)
		if err != nil {
			return err
		}
		if len(records) > 0 {
			t.r.heard()
		}
		if t.commands == nil {
			known := uint64(0)
			if t.far {
				known = t.n.scout.foresees(rawPoint{era{t.now.Raw, t.now.Reverts}, t.r.partition, t.now.Input})
			}
			t.foresee(records, known)
		}
		for _, rec := range records {
			if err := t.takeTurn(ctx); err != nil {
				return err
			}
			if err := t.step(ctx, rec); err != nil {
				return fmt.Errorf("input offset %d: %w", rec.Offset, err)
			}
		}
		if len(records) > 0 {
			t.r.wiped = false // it made progress
			t.n.metrics.records.WithLabelValues(label(t.r.partition)).Add(float64(len(records)))
			if t.commands != nil {
				if err := t.settleCommands(ctx); err != nil {
					return err
				}
			}
		} else if err := t.commit(ctx); err != nil {
			return err
		} else if t.end < max(t.now.Input, 0) {
			t.r.wiped = false // it was restored, and there is nothing that it could fail on
		}
		if t.dirty.IsZero() {
			t.r.passed(t.now.Input)
		}
		clear(records) // while it waits for more, these are garbage
		t.endCatchUp()
	}
}

// tipCommit is how many barriers a commit at the tip may span. A standby must be able to apply as many by itself.
const tipCommit = maxSpeculative / 2

// poll reads on. It returns no records when a commit is due.
func (t *task) poll(ctx context.Context, read *kafka.PartitionReader, records []*kafka.Record) ([]*kafka.Record, error) {
	if t.turn.has {
		if soon, err := pollUntil(ctx, read, records, time.Now().Add(t.patience())); err != nil || len(soon) > 0 {
			return soon, err
		}
		t.endTurn()
	}
	due := t.due()
	if due.IsZero() {
		return read.Poll(ctx, records)
	}
	return pollUntil(ctx, read, records, due)
}

// reset begins a new overlay.
func (t *task) reset() {
	t.overlay = t.r.store.NewOverlay()
	t.dirty, t.since, t.records = time.Time{}, time.Now(), 0
	t.looked = t.since
	t.uncommitted, t.ahead, t.told = 0, false, -1
	t.begun, t.floor = false, t.store.Progress.Floor
	if t.emitted.Reset(); t.far {
		t.overlay.KeepEvents(&t.emitted)
	} else {
		t.emitted = topics.Scratch{} // near the head they are few
	}
	t.hold()
}

func (t *task) self() Partition {
	return Partition{ID: t.r.partition, Incarnation: t.incarnation, Reverts: t.ready.Reverts, Head: t.ready.Head}
}

// catchUpTimeout bounds how long a new owner stays invisible.
const catchUpTimeout = 5 * time.Second

// catchUpPoll is how often an owner that catches up checks the others.
const catchUpPoll = 20 * time.Millisecond

// catchingUp tracks which tasks of a node have not caught up yet.
type catchingUp struct {
	mu     sync.Mutex
	behind map[int32]bool
}

func (h *catchingUp) begin(partition int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.behind[partition] = true
}

// end reports whether all have caught up.
func (h *catchingUp) end(partition int32) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.behind, partition)
	return len(h.behind) == 0
}

// beginCatchUp keeps a new owner invisible until it has passed the current end of the raw topic, if the
// partition can be read elsewhere: here, if it was followed, or on the node that lost it. Partitions that were
// just restored are each at a different block and cannot be read together; those of the former owner can.
func (t *task) beginCatchUp() {
	t.catchUpUntil, t.behind = time.Now().Add(catchUpTimeout), math.MinInt64
	t.n.catchingUp.begin(t.r.partition)
	if _, readable := t.r.watermark(); (readable || t.n.live.others(t.n.cfg.Instance)) && t.end >= 0 {
		t.behind = t.end
	}
}

// endCatchUp makes the owner visible once it has caught up, together with all partitions that this node has
// taken over: one by one they would start at different blocks, and could not be read together.
func (t *task) endCatchUp() {
	late := time.Now().After(t.catchUpUntil)
	switch {
	case t.catchUpUntil.IsZero() || !t.settled || !t.dirty.IsZero():
	case !late && t.ready.Input <= t.behind:
	case t.n.catchingUp.end(t.r.partition) || late:
		t.catchUpUntil = time.Time{}
		t.r.setState(topics.StateRunning, nil)
		t.publish(t.r.store.Snapshot(), t.n.observer.Opened)
	}
}

// publish makes the state visible as of the last Commit barrier, and tells an observer. It takes over the
// reference to snap; nil: the state is the same as in the last view.
func (t *task) publish(snap *state.Snapshot, tell func(Partition, state.View)) {
	if !t.catchUpUntil.IsZero() {
		if snap == nil {
			snap = t.r.store.Snapshot()
		}
		t.r.keep(barrier{t.ready.At, t.ready.Reverts, snap})
		return
	}
	t.r.next = t.ready.Input
	t.r.publish(read.Watermark{
		Partition: t.r.partition, Role: topics.RoleOwner, Incarnation: t.incarnation,
		At: t.ready.At, Latest: t.ready.Head, ObservedAt: time.UnixMilli(t.ready.ObservedMs), Reverts: t.ready.Reverts,
	}, snap)
	t.n.metrics.block.WithLabelValues(label(t.r.partition)).Set(float64(t.ready.At.Number))
	t.n.metrics.lag.WithLabelValues(label(t.r.partition)).Set(float64(max(t.ready.Head, t.ready.At.Number) - t.ready.At.Number))
	v, err := t.r.view(nil)
	if err != nil {
		return // cannot happen: the view has just been published
	}
	defer v.Close()
	tell(t.self(), v)
}
