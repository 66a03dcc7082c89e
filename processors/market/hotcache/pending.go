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

// pending tracks which deals the tasks have changed and Redis does not have yet. It holds keys, not rows, so
// that many commits cost one write and a task's goroutine only records keys.
//
// Invariants:
//  1. For each partition, changed has every deal that differs between the last taken state and at, or rebuild
//     is set.
//  2. changed never has more than limit deals: above that rebuild is set instead.
//  3. A listing is left out of Redis only if it has expired as of changedAt of what is taken, and by `keep` as of
//     leftOut. This holds even if time jumps by more than keep between two commits, or a reorg takes it back.
type pending struct {
	limit int
	keep  uint64        // seconds, see Config.KeepExpired
	wake  chan struct{} // holds a token when there is something to take

	mu         sync.Mutex
	partitions map[int32]*work
	rows       int // total of all changed
}

// work is what must be written for a partition.
type work struct {
	owner     engine.Partition
	at        topics.BlockRef
	changedAt topics.BlockRef     // the last block that changed Redis's content, or a later one up to at
	changed   map[string]struct{} // keys of deals
	moved     bool                // at differs from the last taken one
	rebuild   string              // why everything must be written; empty: it need not
	leftOut   uint64              // latest time as of which listings were left out since the last rebuild
}

// behind reports whether a backfill is going on. Its rows are written once, when it ends; meanwhile Redis has
// an older block, which readers reject.
func (w *work) behind() bool { return engine.Far(w.at.Number, w.owner.Head) }

func newPending(limit int, keep time.Duration) *pending {
	return &pending{
		limit: limit, keep: uint64(keep / time.Second), wake: make(chan struct{}, 1), partitions: make(map[int32]*work),
	}
}

// expiredBefore is the expiry below which a listing is left out of Redis at a time.
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
		w.changedAt = at // a reverted change may have returned in another block
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
	case deals.Deals, deals.Bids: // a bid's key begins with its deal's key
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

// take returns and clears the work of a partition; false: there is none, or the partition is not ours.
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

// putBack undoes a take whose view was not available: the next one is at a later block.
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

// again requests a rebuild of a partition.
func (p *pending) again(partition int32, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.partitions[partition]; w != nil && w.rebuild == "" {
		p.drop(partition)
		w.rebuild, w.moved = reason, true
	}
	p.signal()
}

// expired adds deals whose listing expired long ago, so that they are removed from Redis.
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

// drop clears the changed deals; the caller holds mu.
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

// The observer, called in the tasks' goroutines.

// Opened starts writing a partition, with a rebuild.
func (w *Writer) Opened(p engine.Partition, view state.View) { w.pending.opened(p, view.At()) }

// Applied records the changes.
func (w *Writer) Applied(p engine.Partition, view state.View, changes []engine.Change) {
	w.pending.applied(p, view.At(), changes)
}

// Closed stops writing a partition. Redis keeps its data until the next owner rebuilds it.
func (w *Writer) Closed(p engine.Partition) { w.pending.closed(p.ID) }
