package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// follower keeps a replica up to date with its owner and serves views of it. A takeover then only has to apply
// the rest of the changelog.
//
// The owner commits nothing for a block without records in its partition. So the follower reads the raw topic
// too and advances over such blocks by itself, so that all partitions can be read at a common block when the
// owner dies. The owner may also die between publishing a block and committing it, and readers who saw that
// block must not see an older one. So if the owner's progress stops, the follower applies a few blocks itself,
// in memory.
//
// Invariants:
//  1. nothing is published before the end that the changelog had at the start: before that, compaction may
//     have removed parts of the commits;
//  2. what is published never goes back, except when the owner's progress does, in a reorg;
//  3. the store holds what the owner committed and no more;
//  4. what this build cannot continue it follows, so as to be warm for what is rebuilt, and publishes none of it: it does not
//     know the form of its rows.
type follower struct {
	n *Node
	r *replica

	mu             sync.Mutex
	ended          bool
	s              *restorer
	incarnation    int64           // of the current owner
	shown          commitBarrier   // the published barrier
	ahead          []commitBarrier // barriers from the raw topic that the owner's progress has not reached
	speculative    *applier        // applies some of them ahead of the owner; nil: none is applied
	speculativeErr error           // of a record that it cannot decode
	room           chan struct{}
}

// commitBarrier is a Commit barrier as a standby sees it.
type commitBarrier struct {
	from, next int64 // offsets after the previous Commit barrier, and after this one
	at         topics.BlockRef
	head       uint64
	observedMs int64
	reverts    uint64
	touched    bool            // there are records or reverts between it and the previous Commit barrier
	records    []*kafka.Record // those, and the barriers; nil: they are not kept
	silence    time.Duration   // how long the owner may take to commit it before the follower applies it
	due        time.Time       // when that is over
}

const (
	// maxAhead bounds the queue of barriers that wait for the owner, maxSpeculative those of them that the
	// follower may apply, since each view holds everything uncommitted, and maxRecords the records kept for
	// one.
	maxAhead       = 1024
	maxSpeculative = 16
	maxRecords     = 4096

	// ownerSilence is how long the owner may take to commit a block at the tip before the follower applies it, and
	// lateSilence a block that came late, where owners commit several at once.
	ownerSilence = 50 * time.Millisecond
	lateSilence  = 500 * time.Millisecond
)

// follow runs a standby until ctx is done.
//
//	changelog ──► restore ──► store ────────────────► views
//	raw topic ──► barriers ──► speculative, in memory ──┘
func (n *Node) follow(ctx context.Context, r *replica) error {
	r.setState(topics.StateRestoring, nil)
	pos, err := n.open(ctx, r, nil)
	if err != nil {
		return err
	}
	s, err := n.newRestorer(r, pos, rankStandby)
	if err != nil {
		return err
	}
	f := &follower{n: n, r: r, s: s, incarnation: pos.Progress.Incarnation, room: make(chan struct{}, 1)}
	defer f.end()
	if m, readable := r.watermark(); readable && r.next > pos.Progress.Input {
		// What this node published as the owner: it must not go back to the last commit.
		f.shown = commitBarrier{next: r.next, at: m.At, head: m.Latest, observedMs: m.ObservedAt.UnixMilli(), reverts: m.Reverts}
	}
	last, err := n.lastLife(ctx, r.partition)
	if err = cmp.Or(err, s.same(last)); err != nil {
		return err
	}
	caughtUp := make(chan progress, 1) // where to start reading the raw topic
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.restore(ctx, last.end, caughtUp) })
	g.Go(func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case p := <-caughtUp:
			if n.commands != nil {
				return nil // every command is in the changelog
			}
			return f.watch(ctx, p.Input, p.At)
		}
	})
	return g.Wait()
}

// restore applies the changelog as the owner writes it. From the record at end on it publishes views.
func (f *follower) restore(ctx context.Context, end int64, caughtUp chan<- progress) error {
	tell := func() {
		if caughtUp != nil {
			caughtUp <- f.s.pos.Progress
			caughtUp = nil
		}
	}
	if f.s.pos.Changelog > end && end >= 0 {
		f.mu.Lock()
		f.show()
		f.mu.Unlock()
		tell()
	}
	var records []*kafka.Record
	for {
		var err error
		if records, err = f.s.poll(ctx, records); err != nil {
			return err
		}
		for _, rec := range records {
			showing, err := f.apply(ctx, rec, end)
			if err != nil {
				return err
			}
			if showing {
				tell()
				f.r.wiped = false // only now: a state that cannot be restored must not be wiped again and again
			}
		}
	}
}

// apply applies a record of the changelog, and reports whether there is a state to publish.
func (f *follower) apply(ctx context.Context, rec *kafka.Record, end int64) (showing bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.speculative = nil // the store changes below it
	kind, err := f.s.apply(ctx, rec)
	if err != nil {
		return false, err
	}
	if rec.Offset < end {
		f.s.torn = false
		return false, nil
	}
	if f.s.torn {
		return false, fmt.Errorf("offset %d: %w", rec.Offset, errCompacted)
	}
	switch kind {
	case entryRecord:
		return false, nil
	case openRecord:
		f.incarnation = rec.Offset
	case progressRecord:
		f.incarnation = f.s.pos.Progress.Incarnation
	}
	if err := f.s.flush(ctx); err != nil {
		return false, err
	}
	f.show()
	return true, nil
}

// show publishes the state as of the last progress record, which is what the store holds, or keeps the
// published one if that is ahead. Of a state that this build cannot continue nothing is published, and nothing stays so.
func (f *follower) show() {
	if f.foreign() {
		f.shown = commitBarrier{}
		f.r.withdraw(topics.StateRestoring)
		f.advance()
		return
	}
	f.r.continued()
	var snap *state.Snapshot
	if p := f.s.pos.Progress; p.Input >= f.shown.next || f.shown.next == 0 {
		f.shown = commitBarrier{next: p.Input, at: p.At, head: p.Head, observedMs: p.ObservedMs, reverts: p.Reverts}
		snap = f.r.store.Snapshot()
	}
	f.r.recover()
	f.r.setState(topics.StateRunning, nil)
	f.r.publish(f.mark(), snap)
	f.advance()
}

// foreign reports whether the state is one that this build cannot continue.
func (f *follower) foreign() bool { return f.n.continues(f.s.pos.Progress) != nil }

// advance publishes the barriers without changes, and those that the follower has to apply itself.
func (f *follower) advance() {
	drop := 0
	for drop < len(f.ahead) && f.ahead[drop].next <= f.s.pos.Progress.Input {
		drop++
	}
	f.ahead = f.ahead[drop:]
	for i, c := range f.ahead {
		if f.shown.next == 0 || c.next <= f.shown.next {
			continue
		}
		if c.touched {
			if !f.speculate(i) {
				break
			}
			continue
		}
		c.reverts, c.records = f.shown.reverts, nil
		f.shown = c
		f.r.publish(f.mark(), nil)
	}
	select {
	case f.room <- struct{}{}:
	default:
	}
}

// speculate applies the barriers up to index i on top of the owner's commits, and publishes that one.
func (f *follower) speculate(i int) bool {
	unkept := func(c commitBarrier) bool { return c.touched && c.records == nil }
	switch {
	case f.shown.next == 0, f.s.seen > 0, f.ahead[0].from > f.s.pos.Progress.Input, slices.ContainsFunc(f.ahead[:i+1], unkept):
		return false // records before it are missing
	case f.foreign(), time.Until(f.ahead[i].due) > 0:
		return false
	}
	if f.speculative == nil {
		f.speculative = &applier{app: f.n.app, partition: f.r.partition, overlay: f.r.store.NewOverlay(), now: f.s.pos.Progress}
		f.speculative.unread = func(_ *kafka.Record, err error) { f.speculativeErr = err } // the owner may be a newer version that can decode it
		f.speculativeErr = nil
	}
	snap, err := f.applied(f.ahead[:i+1])
	if err != nil {
		// Only the owner may stop the partition.
		f.n.logger.Warn("a standby cannot apply a block", partitionField(f.r.partition), zap.Uint64("block", f.ahead[i].at.Number), zap.Error(err))
		f.speculative, f.ahead[i].records = nil, nil
		return false
	}
	f.shown = f.ahead[i]
	f.shown.reverts, f.shown.records = f.speculative.now.Reverts, nil
	f.r.publish(f.mark(), snap)
	f.n.metrics.tried.WithLabelValues(label(f.r.partition)).Inc()
	return true
}

// applied brings the speculative state to the last of the barriers, and takes a snapshot of it.
func (f *follower) applied(barriers []commitBarrier) (*state.Snapshot, error) {
	for _, c := range barriers {
		if c.next <= f.speculative.now.Input {
			continue
		}
		if !c.touched { // it may stand for several barriers, which are not kept
			f.speculative.now.At, f.speculative.now.Input = c.at, c.next
			continue
		}
		for _, rec := range c.records {
			if _, _, err := f.speculative.step(rec); err != nil || f.speculativeErr != nil {
				return nil, cmp.Or(err, f.speculativeErr)
			}
		}
	}
	return f.r.store.SnapshotWith(f.speculative.overlay)
}

// look checks for a barrier that the owner has not committed in time.
func (f *follower) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.advance()
	}
}

// end releases the replica.
func (f *follower) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	f.s.close()
}

// mark is the watermark of the published barrier; the caller publishes it.
func (f *follower) mark() read.Watermark {
	f.r.next = f.shown.next
	f.n.metrics.block.WithLabelValues(label(f.r.partition)).Set(float64(f.shown.at.Number))
	return read.Watermark{
		Partition: f.r.partition, Role: topics.RoleStandby, Incarnation: f.incarnation,
		At: f.shown.at, Latest: f.shown.head, ObservedAt: time.UnixMilli(f.shown.observedMs), Reverts: f.shown.reverts,
	}
}
