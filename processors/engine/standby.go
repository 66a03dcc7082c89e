package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/processors/query"
	"github.com/lienstream/lienstream/processors/state"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// follower keeps a replica up with its owner, and serves views of it: a takeover is then the tail of the
// changelog that is left.
//
// The owner writes nothing for a block that touches nothing in its partition. So the follower reads the
// barriers of the raw topic too, and moves over those without records by itself: whenever the owner dies,
// all partitions can be read at a common block.
//
// Invariants:
//  1. nothing is shown before what was the end of the changelog at the start is reached: before that,
//     compaction may have taken parts of the commits that are read;
//  2. what is shown never goes back, except where the owner's progress does, in a reorg;
//  3. between the owner's progress and the barrier that is shown lies no record, but for those that this
//     node had applied and shown as the owner, and not committed.
type follower struct {
	n *Node
	r *replica

	mu          sync.Mutex
	s           *restorer
	incarnation int64      // of the owner that writes now
	shown       crossing   // the barrier that is shown
	ahead       []crossing // barriers that the owner's progress has not reached, from the raw topic
	room        chan struct{}
}

// crossing is a Commit barrier as a standby sees it.
type crossing struct {
	next       int64 // offset behind it
	at         topics.BlockRef
	head       uint64
	observedMs int64
	reverts    uint64
	touched    bool // records or reverts lie between it and the Commit barrier before
}

// maxAhead bounds the barriers that wait for the owner.
const maxAhead = 1024

// follow runs a standby until ctx is done.
//
//	changelog ──► restore ──► store ──► views
//	raw topic ──► barriers ───────────────┘
func (n *Node) follow(ctx context.Context, r *replica) error {
	r.setState(topics.StateRestoring, nil)
	pos, err := n.open(ctx, r)
	if err != nil {
		return err
	}
	f := &follower{n: n, r: r, s: newRestorer(r, pos), incarnation: pos.Progress.Incarnation, room: make(chan struct{}, 1)}
	if m, readable := r.watermark(); readable && r.next > pos.Progress.Input {
		// What this node showed as the owner: it does not go back to its last commit.
		f.shown = crossing{next: r.next, at: m.At, head: m.Latest, observedMs: m.ObservedAt.UnixMilli(), reverts: m.Reverts}
	}
	end, err := n.lastOffset(ctx, n.changelog, r.partition)
	if err != nil {
		return err
	}
	caughtUp := make(chan int64, 1) // where to read the raw topic from
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.restore(ctx, end, caughtUp) })
	g.Go(func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case from := <-caughtUp:
			return f.watch(ctx, from)
		}
	})
	return g.Wait()
}

// restore applies the changelog as the owner writes it. From the record at end on it shows what it has.
func (f *follower) restore(ctx context.Context, end int64, caughtUp chan<- int64) error {
	from := f.s.pos.Changelog
	read, err := f.n.consumer.Open(f.n.changelog, f.r.partition, from)
	if err != nil {
		return err
	}
	defer read.Close()
	tell := func() {
		if caughtUp != nil {
			caughtUp <- f.s.pos.Progress.Input
			caughtUp = nil
		}
	}
	if from > end && end >= 0 {
		f.mu.Lock()
		f.show()
		f.mu.Unlock()
		tell()
	}
	var records []*kafka.Record
	for {
		if records, err = read.Poll(ctx, records); err != nil {
			return err
		}
		for _, rec := range records {
			showing, err := f.apply(rec, end)
			if err != nil {
				return err
			}
			if showing {
				tell()
				f.r.wiped = false // it got somewhere: not before, or what cannot be read is wiped for ever
			}
		}
	}
}

// apply applies a record of the changelog, and says whether there is something to show.
func (f *follower) apply(rec *kafka.Record, end int64) (showing bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kind, err := f.s.apply(rec)
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
	if err := f.s.flush(); err != nil {
		return false, err
	}
	f.show()
	return true, nil
}

// show publishes the state as of the last progress record, which is all that the store holds, or what is
// already shown, if that is ahead of it.
func (f *follower) show() {
	var snap *state.Snapshot
	if p := f.s.pos.Progress; p.Input >= f.shown.next || f.shown.next == 0 {
		f.shown = crossing{next: p.Input, at: p.At, head: p.Head, observedMs: p.ObservedMs, reverts: p.Reverts}
		snap = f.r.store.Snapshot()
	}
	f.r.recover()
	f.r.setState(topics.StateRunning, nil)
	f.r.publish(f.mark(), snap)
	f.advance()
}

// advance moves over the barriers behind which nothing has changed.
func (f *follower) advance() {
	drop := 0
	for ; drop < len(f.ahead); drop++ {
		switch b := f.ahead[drop]; {
		case b.next <= f.shown.next:
			continue
		case b.touched:
		default:
			b.reverts = f.shown.reverts
			f.shown = b
			f.r.publish(f.mark(), nil)
			continue
		}
		break
	}
	f.ahead = f.ahead[drop:]
	select {
	case f.room <- struct{}{}:
	default:
	}
}

// mark is the watermark of the barrier that is shown; who asks for it publishes it.
func (f *follower) mark() query.Watermark {
	f.r.next = f.shown.next
	f.n.metrics.block.WithLabelValues(label(f.r.partition)).Set(float64(f.shown.at.Number))
	return query.Watermark{
		Partition: f.r.partition, Role: topics.RoleStandby, Incarnation: f.incarnation,
		At: f.shown.at, Latest: f.shown.head, ObservedAt: time.UnixMilli(f.shown.observedMs), Reverts: f.shown.reverts,
	}
}

// watch reads the barriers of the raw topic.
func (f *follower) watch(ctx context.Context, from int64) error {
	read, err := f.n.consumer.Open(f.n.raw, f.r.partition, from)
	if err != nil {
		return err
	}
	defer read.Close()
	var (
		records []*kafka.Record
		decoder topics.RawDecoder
		touched bool
	)
	for {
		if records, err = read.Poll(ctx, records); err != nil {
			return err
		}
		for _, rec := range records {
			// A record with a key is a log; what cannot be decoded counts as one.
			var b *topics.BlockEnd
			if len(rec.Key) == 0 {
				raw, _ := decoder.Decode(rec.Value)
				b, _ = raw.(*topics.BlockEnd)
			}
			if b == nil || !b.Commit {
				touched = touched || b == nil
				continue
			}
			c := crossing{next: rec.Offset + 1, at: b.Block, head: b.Head, observedMs: rec.Timestamp.UnixMilli(), touched: touched}
			touched = false
			if err := f.wait(ctx, c); err != nil {
				return err
			}
		}
	}
}

// wait queues a barrier until the owner's progress has reached it, and waits where too many are queued.
func (f *follower) wait(ctx context.Context, c crossing) error {
	for {
		f.mu.Lock()
		if len(f.ahead) < maxAhead {
			f.ahead = append(f.ahead, c)
			f.advance()
			f.mu.Unlock()
			return nil
		}
		f.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.room:
		}
	}
}
