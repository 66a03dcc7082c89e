package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// ringBlocks is for how many barriers back a view is kept at the tip: when an owner dies, the others keep its
// last block until its partitions are taken over. Far behind the head, where nobody waits, tipBlocks are
// enough.
const ringBlocks = 256

// ringCommands is the same for commands, whose partitions are never read together. In a backlog each commit has a view, which
// keeps memtables from being released once it was read.
const ringCommands = 4

// toldBlocks is how many of its last barriers a holder announces: readers look in them for one that all partitions have.
const toldBlocks = 16

// replica is a partition on this node: its store and the views of its last barriers. It outlives the task
// that writes it: a task that starts again, or a standby that takes over, goes on where it was, and reads
// go on meanwhile.
//
// Invariants:
//  1. a view in the ring is the state at a Commit barrier, whole;
//  2. mark is that of the newest view;
//  3. the store is open while the ring holds a view of it;
//  4. changed signals that mark has moved, appeared or gone, before that is visible;
//  5. at the tip, a view that readers read at is kept until none does.
type replica struct {
	partition int32
	dir       string
	lease     time.Duration
	version   uint32          // of the application
	changed   *read.Broadcast // of the node
	took      chan<- struct{} // of the node: has room for one
	stands    *stands         // of the node
	apart     bool            // positions are those of commands, which partitions do not share
	leaving   atomic.Bool     // the owner goes on until it is fenced, and does not start again
	stood     atomic.Uint64   // stands that were added before mark.Kept was made; written with mu held

	// Used only by the goroutine that holds the replica:
	store   *state.Store
	wiped   bool      // and no progress since
	rewind  bool      // restore from whatever start the changelog has
	rebuilt bool      // since the process started
	worked  bool      // a commit succeeded since the task last started
	fenced  time.Time // when it last ended so
	failed  int64     // raw topic offset that the task must get to before the disk is well again; 0: any
	unread  int64     // raw topic offset that the owner must get to before it counts as able to read the partition; 0: any
	next    int64     // raw topic offset after the newest view

	unwritten atomic.Pointer[error] // why the last write of the store failed; nil: it did not
	again     chan struct{}         // has room for one: a task that has stopped starts again

	mu      sync.RWMutex
	ring    []barrier // oldest first
	kept    []barrier // newer ones, of an owner that is not visible yet
	mark    read.Watermark
	failing time.Time // since when the owner cannot commit; zero: it can
	writing time.Time // since when a write has been waiting for the disk; zero: none is
	refuses time.Time // since when every task failed on the disk before it got on; zero: the last did not
	moved   time.Time // when mark was last set
	awaits  time.Time // since when the owner has heard nothing from brokers that it waits for; zero: it waits for none
	stopped error     // the error that stopped the task
	unfit   unfitness // outlives the task
	life    uint64    // generation of the changelog, as far as it is known here
	state   string    // as announced in the owners topic
	role    topics.HolderRole
}

type barrier struct {
	at      topics.BlockRef
	reverts uint64 // blocks reverted before it
	snap    *state.Snapshot
}

func (b *barrier) view() state.View { return read.At(b.snap.View(b.at), b.reverts) }

func (b *barrier) point() read.Point { return read.Point{Reverts: b.reverts, Number: b.at.Number} }

// publish adds a view. It takes over a hold on snap; nil: nothing has changed since the last one.
func (r *replica) publish(m read.Watermark, snap *state.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.changed.Notify()
	r.ring, r.kept = append(r.ring, r.kept...), nil
	n := len(r.ring)
	if snap == nil && n > 0 {
		snap = r.ring[n-1].snap.Retain()
	}
	r.stood.Store(r.stands.added.Load())
	stood := r.stands.on()
	if n > 0 && r.ring[n-1].at.Same(m.At) {
		r.ring[n-1].snap.Release()
		r.ring[n-1] = barrier{m.At, m.Reverts, snap}
	} else {
		r.shorten(&m, stood)
		r.ring = append(r.ring, barrier{m.At, m.Reverts, snap})
	}
	if m.Role == topics.RoleOwner && (n == 0 || r.mark.Role != m.Role) {
		select {
		case r.took <- struct{}{}:
		default:
		}
	}
	m.Kept = r.told(stood)
	r.mark, r.moved = m, time.Now()
}

// shorten drops the oldest views but those that readers stand on, before one more is added. The lock is held.
func (r *replica) shorten(m *read.Watermark, stood []read.Point) {
	keep := ringBlocks
	if r.apart {
		keep = ringCommands
	} else if m.At.Number+tipBlocks < m.Latest {
		keep, stood = tipBlocks, nil // a backfill: what it holds it holds on disk
	}
	excess := len(r.ring) - keep + 1
	if excess <= 0 {
		return
	}
	left := r.ring[:0]
	for i, b := range r.ring {
		if i < excess && !slices.Contains(stood, b.point()) {
			b.snap.Release()
		} else {
			left = append(left, b)
		}
	}
	clear(r.ring[len(left):])
	r.ring = left
}

// carryOn has an owner that starts again, without another one since, go on with the views that it has, if they are as far as the state
// that it starts with: they are what the raw topic results in, and standbys tell of the new incarnation at once, while it may take
// long to get to where it was.
func (r *replica) carryOn(incarnation int64, from progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) == 0 || r.mark.Role != topics.RoleOwner || r.mark.Moment().Before(read.Moment{Block: from.At, Reverts: from.Reverts}) {
		return
	}
	r.mark.Incarnation = incarnation
	r.changed.Notify()
}

// replace makes the newest view read the same state from another snapshot. It takes over a reference to snap.
func (r *replica) replace(snap *state.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := &r.ring[len(r.ring)-1]
	last.snap.Release()
	last.snap = snap
}

// keep adds a view that stays hidden until the next publish of the same task. It takes over the reference to it.
func (r *replica) keep(b barrier) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.kept); n > 0 && r.kept[n-1].at.Same(b.at) {
		r.kept[n-1].snap.Release()
		r.kept = r.kept[:n-1]
	}
	if r.kept = append(r.kept, b); len(r.kept) > tipBlocks {
		r.kept[0].snap.Release()
		r.kept = r.kept[1:]
	}
}

// forgetKept drops the hidden views.
func (r *replica) forgetKept() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.kept {
		b.snap.Release()
	}
	r.kept = nil
}

// observe updates the chain's head and time while the state stays the same.
func (r *replica) observe(head uint64, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mark.Latest, r.mark.ObservedAt, r.moved = head, at, time.Now()
}

// view opens a view of the latest barrier, or of one by number and hash.
func (r *replica) view(at *topics.BlockRef) (state.View, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	n := len(r.ring)
	if n == 0 || r.expired() {
		return nil, ErrNotHere
	}
	if at == nil {
		return r.ring[n-1].view(), nil
	}
	for _, views := range [][]barrier{r.ring, r.kept} { // hidden ones are as true to who names their block
		for i := len(views) - 1; i >= 0; i-- {
			if views[i].at.Same(*at) {
				return views[i].view(), nil
			}
		}
	}
	if at.Number > r.mark.At.Number {
		return nil, ErrNotYet
	}
	return nil, ErrNotKept
}

// expired reports whether the owner could not commit for the length of its lease: it may have been replaced
// without noticing.
func (r *replica) expired() bool {
	return !r.failing.IsZero() && time.Since(r.failing) > r.lease
}

func (r *replica) watermark() (read.Watermark, bool) {
	r.tellStands()
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.mark, len(r.ring) > 0 && !r.expired()
}

// marked is the mark and when it was set; zero: there is none.
func (r *replica) marked() (m read.Watermark, moved time.Time) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if len(r.ring) == 0 {
		return m, moved
	}
	return r.mark, r.moved
}

// fail and recover record whether the owner can commit.
func (r *replica) fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failing.IsZero() {
		r.failing = time.Now()
	}
}

func (r *replica) recover() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failing, r.stopped = time.Time{}, nil
	if r.unfit.ofDisk() {
		r.unfit = unfitness{}
	}
	if r.failed == 0 {
		r.refuses = time.Time{}
	}
	r.changed.Notify()
}

func (r *replica) setState(s string, stopped error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state, r.stopped = s, stopped
	if u := (unfitness{stopped, time.Now(), r.life}); u.ofBuild() || u.ofDisk() {
		r.unfit = u
	}
}

// take records the node's new role for the partition.
func (r *replica) take(role topics.HolderRole) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.role, r.refuses, r.awaits, r.failed = role, time.Time{}, time.Time{}, 0
}

// fault is the error that stopped the task, shortened for the owners topic, and the role it had.
func (r *replica) fault() (text string, role topics.HolderRole) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.stopped != nil {
		text = r.stopped.Error()
	}
	return text[:min(len(text), maxFaultBytes)], r.role
}

const maxFaultBytes = 1 << 10

func (r *replica) status() (string, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.state, r.stopped
}

// open opens the store and returns its position. Of an empty one that is where the life that it has in the changelog begins;
// nil: that is looked up.
func (n *Node) open(ctx context.Context, r *replica, now *life) (position, error) {
	if r.store == nil {
		s, err := state.Open(state.Options{Dir: r.dir, Tables: n.tables, Cache: n.cache, FS: n.cfg.FS, Logger: n.logger, Written: r.written})
		if err != nil {
			return position{}, err
		}
		r.store = s
	}
	meta, err := r.store.Meta()
	if err != nil {
		return position{}, err
	}
	if meta == nil {
		pos := unopened()
		if pos.Log, err = n.history.TopicID(ctx, n.changelog, r.partition); err != nil {
			return position{}, err
		}
		if now == nil {
			last, err := n.lastLife(ctx, r.partition)
			if err != nil {
				return position{}, err
			}
			now = &last
		}
		r.lives(now.generation)
		if begin := now.progress.Rebuild.Begin; begin > 0 && !r.rewind {
			pos.Changelog = begin // older records are of former generations, even if they can be decoded
		}
		return pos, nil
	}
	pos, unread := decodePosition(meta)
	r.lives(pos.Generation)
	if unread != nil && !errors.Is(unread, state.ErrNewer) {
		return position{}, fmt.Errorf("%w: %w", state.ErrCorrupt, unread)
	}
	if pos.Log, err = n.sameTopic(ctx, n.changelog, r.partition, pos.Log, -1, pos.Changelog); err != nil || unread != nil {
		return position{}, cmp.Or(err, unread) // which life a newer build's state is of only its own changelog says
	}
	if pos.Read > 0 {
		if _, err = n.sameTopic(ctx, n.changelog, r.partition, pos.Log, pos.Epoch, pos.Read); errors.Is(err, ErrBroken) {
			return position{}, fmt.Errorf("%w: it has lost its end and has grown again: %s", errChangelog, err) //nolint:errorlint // restoring the state mends that
		}
		if err != nil {
			return position{}, err
		}
	}
	if age := time.Since(time.UnixMilli(pos.WrittenMs)); age > topics.ChangelogTombstones {
		// A tombstone that the store has not seen may already be removed from the changelog.
		return position{}, fmt.Errorf("%w: last written %s ago", state.ErrCorrupt, age.Round(time.Hour))
	}
	return pos, nil
}

// withdraw ends the views; the replica is in state s without any.
func (r *replica) withdraw(s string) {
	r.forgetKept()
	r.mu.Lock()
	ring := r.ring
	r.ring, r.state, r.stopped = nil, s, nil
	r.changed.Notify()
	r.mu.Unlock()
	for _, b := range ring {
		b.snap.Release()
	}
}

// close ends the views and closes the store; it stays on disk.
func (r *replica) close() error {
	r.withdraw("")
	if r.store == nil {
		return nil
	}
	err := r.store.Close()
	r.store = nil
	r.written(nil) // what it did not write is another's, or is read back
	return err
}

// wipe removes the store.
func (n *Node) wipe(r *replica) error {
	// A corrupt store may fail to close.
	_ = r.close()
	return n.cfg.FS.RemoveAll(r.dir)
}
