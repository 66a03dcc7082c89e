package hotcache

import (
	"slices"
	"sync"
	"time"

	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/topics"
)

// pending is what the tasks have applied and Redis has not: not the rows but which deals changed, so
// that many commits cost one write and a task's goroutine does nothing but remember keys.
//
// Invariants:
//  1. For each partition, changed holds every deal that differs between what was last taken and at, or
//     rebuild is set.
//  2. changed never holds more than limit deals: then rebuild is set in its place.
//  3. No listing that was left out of Redis, keep after it expired, was open at changedAt of what is taken,
//     nor later: time may leap further than keep from one commit to the next, and a reorg take it back.
type pending struct {
	limit int
	keep  uint64        // seconds, see Config.KeepExpired
	wake  chan struct{} // holds one token when there is something to take

	mu         sync.Mutex
	partitions map[int32]*work
	rows       int // sum of all changed
}

// work is what is to be done for a partition.
type work struct {
	owner     engine.Partition
	at        topics.BlockRef
	changedAt topics.BlockRef     // the last block that changed what Redis holds, or a later one up to at
	changed   map[string]struct{} // keys of deals
	moved     bool                // at differs from what was last taken
	rebuild   string              // why all of it must be written; empty: it need not
	leftOut   uint64              // latest time as of which listings were left out since all of it was written
}

// behind says that a backfill goes on. Nobody is served its rows from Redis, so they are written once, when
// it is over: what Redis holds meanwhile names an older block, and misses.
func (w *work) behind() bool { return engine.Far(w.at.Number, w.owner.Head) }

func newPending(limit int, keep time.Duration) *pending {
	return &pending{
		limit: limit, keep: uint64(keep / time.Second), wake: make(chan struct{}, 1), partitions: make(map[int32]*work),
	}
}

// expiredBefore is the expiry below which a listing is left out of Redis as of a time.
func (p *pending) expiredBefore(timestamp uint64) uint64 { return max(timestamp, p.keep) - p.keep }

func (p *pending) opened(owner engine.Partition, at topics.BlockRef) {
	p.mu.Lock()
	p.drop(owner.ID)
	p.partitions[owner.ID] = &work{owner: owner, at: at, changedAt: at, moved: true, rebuild: "opened"}
	p.mu.Unlock()
	p.signal()
}

func (p *pending) closed(partition int32) {
	p.mu.Lock()
	p.drop(partition)
	delete(p.partitions, partition)
	p.mu.Unlock()
	p.signal()
}

func (p *pending) applied(owner engine.Partition, at topics.BlockRef, changes []engine.Change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.partitions[owner.ID]
	if w == nil {
		return
	}
	if w.at == at && w.owner.Reverts == owner.Reverts && len(changes) == 0 {
		return
	}
	if owner.Reverts != w.owner.Reverts {
		w.changedAt = at // what was taken back may have come again, in another block
	}
	w.owner, w.at, w.moved = owner, at, true
	if w.behind() && w.rebuild == "" {
		p.drop(owner.ID)
		w.rebuild = "behind"
	}
	for i := range changes {
		p.mark(w, &changes[i])
	}
	p.signal()
}

func (p *pending) mark(w *work, c *engine.Change) {
	switch c.Table {
	case deals.Deals, deals.Bids: // a bid's key begins with its deal's
	default:
		return
	}
	w.changedAt = w.at
	if w.rebuild != "" {
		return
	}
	if w.changed == nil {
		w.changed = make(map[string]struct{})
	}
	key := c.Key[:dealKeyBytes]
	if _, ok := w.changed[string(key)]; ok {
		return
	}
	if len(w.changed) == p.limit {
		p.drop(w.owner.ID)
		w.rebuild = "overflow"
		return
	}
	w.changed[string(key)] = struct{}{}
	p.rows++
}

// take hands out what is to be done for a partition and forgets it; false: nothing, or not ours.
func (p *pending) take(partition int32) (work, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.partitions[partition]
	if w == nil || w.behind() {
		return work{}, false
	}
	if w.rebuild == "" && w.at.Timestamp < p.expiredBefore(w.leftOut) {
		p.drop(partition)
		w.rebuild = "time"
	}
	switch {
	case w.rebuild != "":
		w.changedAt, w.leftOut = w.at, w.at.Timestamp
	case len(w.changed) > 0:
		w.leftOut = max(w.leftOut, w.at.Timestamp)
	}
	if w.changedAt.Timestamp < p.expiredBefore(w.leftOut) {
		w.changedAt = w.at
	}
	taken := *w
	p.rows -= len(w.changed)
	w.changed, w.moved, w.rebuild = nil, false, ""
	return taken, true
}

// putBack undoes a take whose view was not to be had: the next one is at a later block.
func (p *pending) putBack(taken *work) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.partitions[taken.owner.ID]
	if w == nil || w.owner.Incarnation != taken.owner.Incarnation {
		return
	}
	w.moved = true
	if taken.rebuild != "" {
		w.rebuild = taken.rebuild
		p.drop(w.owner.ID)
	}
	if w.rebuild != "" {
		return
	}
	for key := range taken.changed {
		p.mark(w, &engine.Change{Table: deals.Deals, Key: []byte(key)})
	}
}

// again asks for a partition to be built anew.
func (p *pending) again(partition int32, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.partitions[partition]; w != nil && w.rebuild == "" {
		p.drop(partition)
		w.rebuild, w.moved = reason, true
	}
	p.signal()
}

// expired adds deals whose listing ended long ago: they leave Redis as if they had changed.
func (p *pending) expired(partition int32, keys [][]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.partitions[partition]
	if w == nil {
		return
	}
	w.moved = true
	for _, key := range keys {
		p.mark(w, &engine.Change{Table: deals.Deals, Key: key})
	}
}

// drop forgets which deals changed; the caller holds mu.
func (p *pending) drop(partition int32) {
	if w := p.partitions[partition]; w != nil {
		p.rows -= len(w.changed)
		w.changed = nil
	}
}

// owned lists the partitions, ascending.
func (p *pending) owned() []int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make([]int32, 0, len(p.partitions))
	for id := range p.partitions {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (p *pending) timestamp(partition int32) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.partitions[partition]; w != nil {
		return w.at.Timestamp
	}
	return 0
}

func (p *pending) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rows
}

func (p *pending) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// The observer: the tasks call these in their own goroutines.

// Opened begins to write a partition, by building it.
func (w *Writer) Opened(p engine.Partition, view state.View) { w.pending.opened(p, view.At()) }

// Applied remembers what changed.
func (w *Writer) Applied(p engine.Partition, view state.View, changes []engine.Change) {
	w.pending.applied(p, view.At(), changes)
}

// Closed ends writing a partition. What is in Redis stays until the next owner builds it.
func (w *Writer) Closed(p engine.Partition) { w.pending.closed(p.ID) }
