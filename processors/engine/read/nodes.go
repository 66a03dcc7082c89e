package read

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lienstream/lienstream/topics"
)

// How long a node is avoided after it failed, and how long a silent one is remembered.
const (
	failedFor    = time.Second
	forgottenFor = 30 * time.Second
)

// node is a holder of partitions: this process or another node.
type node struct {
	asker
	instance string // empty: this process
	addr     string
	marks    map[int32]Watermark              // of another node, as last reported
	seen     time.Time                        // last contact
	failed   time.Time                        // when a request to it last failed
	slow     time.Time                        // when it was last slow to respond
	waiting  map[*context.CancelFunc]struct{} // of the reads that wait for it
	stop     func()                           // ends its watch
}

// nodes tracks who holds which partition, and which blocks readers have seen. It is safe for concurrent use.
//
// Invariants:
//  1. newest[p] is the newest incarnation that anybody claimed for p: an older one is neither asked nor
//     accepted. Once nobody has claimed it for forgottenFor, it counts no more: the changelog was created anew, or its
//     holders are gone and a standby of an older one is the last.
//  2. floor[p] never goes back: it is the latest block as of which an answer showed p, whoever owned it.
//  3. changed signals every change of others, newest and floor, before the change is visible. common follows from these
//     and from the time.
type nodes struct {
	changed Broadcast
	last    atomic.Pointer[frontier]
	mu      sync.Mutex
	local   Source // nil: this process holds nothing
	self    *node
	others  map[string]*node // by instance
	newest  []int64
	claimed []time.Time // when somebody last claimed newest
	floor   []Moment
	now     func() time.Time

	shared    bool      // partitions have their blocks in common
	common    Moment    // see advance
	valid     bool      // common is what all reads are answered as of
	overtaken time.Time // since when a partition is beyond it; zero: none is
}

func newNodes(partitions int32, source Source, app Application) *nodes {
	n := &nodes{local: source, others: map[string]*node{}, newest: make([]int64, partitions), claimed: make([]time.Time, partitions), floor: make([]Moment, partitions), now: time.Now}
	if source != nil {
		n.self = &node{asker: local{source: source, app: app}}
	}
	return n
}

// call is a part of a read: a node and the partitions that it is asked for.
type call struct {
	node       *node
	partitions []int32
	waiting    *atomic.Bool        // a request to another node is under way; nil: this process
	cancel     *context.CancelFunc // of the context that it is made with, if that is its own
}

func (c call) remote() bool { return c.node.instance != "" }

// tries counts how often each node failed in a read, per partition: while partitions move between nodes, one
// node may lack the past of one partition and another node that of another partition.
type tries map[try]int

type try struct {
	node      *node
	partition int32
}

// failed counts a failure: of the partition that caused it, or of all.
func (t tries) failed(c call, err error) {
	if lacking, ok := errors.AsType[*lackingError](err); ok && slices.Contains(c.partitions, lacking.partition) {
		t[try{c.node, lacking.partition}]++
		return
	}
	for _, p := range c.partitions {
		t[try{c.node, p}]++
	}
}

// add merges more into t, which it allocates on first use.
func (t *tries) add(more tries) {
	if *t == nil && len(more) > 0 {
		*t = tries{}
	}
	for k, n := range more {
		(*t)[k] = max((*t)[k], n)
	}
}

// assign spreads partitions over their holders, preferring those that have not failed in this read, then those that have
// reached the moment of the read and have not failed lately, then owners, then this process. False: a partition has no holder.
func (n *nodes) assign(req *nodeRequest, tried tries) ([]call, bool) {
	partitions, at := req.Partitions, req.frontier
	held := n.heldOf(partitions)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range held {
		n.claim(w)
	}
	var calls []call
	for _, p := range partitions {
		best, rank := (*node)(nil), 0
		consider := func(h *node, w Watermark) {
			if w.Incarnation < n.newest[p] {
				return
			}
			if r := n.rank(h, &w, at, tried); best == nil || r < rank {
				best, rank = h, r
			}
		}
		for _, w := range held {
			if w.Partition == p && req.mayAsk(&w) {
				consider(n.self, w)
			}
		}
		for _, h := range n.others {
			if w, ok := h.marks[p]; ok && req.mayAsk(&w) {
				consider(h, w)
			}
		}
		if best == nil {
			return nil, false
		}
		i := slices.IndexFunc(calls, func(c call) bool { return c.node == best })
		if i < 0 {
			i, calls = len(calls), append(calls, call{node: best})
			if calls[i].remote() {
				calls[i].waiting = new(atomic.Bool)
			}
		}
		calls[i].partitions = append(calls[i].partitions, p)
	}
	return calls, true
}

// heldOf is what this process holds of partitions. It is asked for with every read, most of which are of one partition.
func (n *nodes) heldOf(partitions []int32) []Watermark {
	if n.local == nil {
		return nil
	}
	held := make([]Watermark, 0, len(partitions))
	for _, p := range partitions {
		if w, ok := markOf(n.local, p); ok {
			held = append(held, w)
		}
	}
	return held
}

// rank is lower for a better holder.
func (n *nodes) rank(h *node, w *Watermark, at Moment, tried tries) int {
	rank := tried[try{h, w.Partition}] * 16
	if w.Moment().Before(at) {
		rank += 8
	}
	if h.instance != "" {
		rank++
		if now := n.now(); now.Sub(h.failed) < failedFor || now.Sub(h.slow) < failedFor {
			rank += 4
		}
	}
	if w.Role != topics.RoleOwner {
		rank += 2
	}
	return rank
}

// claim records that somebody holds a partition in that incarnation.
func (n *nodes) claim(w Watermark) {
	if w.Partition < 0 || int(w.Partition) >= len(n.newest) || w.Incarnation < n.newest[w.Partition] {
		return
	}
	n.claimed[w.Partition] = n.now()
	if w.Incarnation > n.newest[w.Partition] {
		n.newest[w.Partition] = w.Incarnation
		n.changed.Notify()
	}
}

// floorOf is the latest block as of which any of the partitions was shown.
func (n *nodes) floorOf(partitions []int32) (latest Moment) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range partitions {
		if latest.Before(n.floor[p]) {
			latest = n.floor[p]
		}
	}
	return latest
}

// accept checks a response: it must cover all requested partitions, be of no incarnation older than the newest
// known, and be as of no earlier block than was shown before the request was sent. Blocks shown to others since
// then do not count, or a long read would never succeed. If it is refused, the reason is returned, and the
// partition if one was the cause.
func (n *nodes) accept(c call, a *Response, floor Moment) (reason string, partition int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.remote() {
		c.node.seen, c.node.failed, c.node.slow = n.now(), time.Time{}, time.Time{}
	}
	for _, w := range a.Watermarks {
		n.claim(w)
	}
	if !covers(a.Watermarks, c.partitions) {
		return refusedFailed, -1
	}
	for _, w := range a.Watermarks {
		if w.Incarnation < n.newest[w.Partition] {
			return refusedOld, w.Partition
		}
	}
	if a.Before(floor) {
		for _, w := range a.Watermarks {
			if w.Moment().Before(floor) { // a view of it was moved back to the block of another
				return refusedBehind, w.Partition
			}
		}
		return refusedBehind, -1
	}
	return "", -1
}

// silent records that a node does not report its watermarks. If other nodes hold the same partitions, reads
// that wait for it are cancelled: a frozen process accepts requests but answers none.
func (n *nodes) silent(h *node) {
	var held []Watermark
	if n.local != nil {
		held = n.local.Watermarks()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	h.failed = n.now()
	for p, w := range h.marks {
		if int(p) < len(n.newest) && w.Incarnation >= n.newest[p] && !n.spare(h, p, held) {
			return
		}
	}
	for cancel := range h.waiting {
		(*cancel)()
	}
}

// spare reports whether a partition of h has another holder worth asking.
func (n *nodes) spare(h *node, p int32, held []Watermark) bool {
	for _, w := range held {
		if w.Partition == p && w.Incarnation >= n.newest[p] {
			return true
		}
	}
	for _, other := range n.others {
		w, ok := other.marks[p]
		if ok && other != h && w.Incarnation >= n.newest[p] && n.now().Sub(other.failed) >= failedFor {
			return true
		}
	}
	return false
}

// called returns a context that also ends when reads that wait for the node are cancelled.
func (n *nodes) called(ctx context.Context, c call) (context.Context, context.CancelFunc) {
	if c.cancel == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		c.cancel = &cancel
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	c.node.waiting[c.cancel] = struct{}{}
	return ctx, func() {
		n.mu.Lock()
		delete(c.node.waiting, c.cancel)
		n.mu.Unlock()
		(*c.cancel)()
	}
}

func covers(marks []Watermark, partitions []int32) bool {
	return slices.EqualFunc(marks, partitions, func(w Watermark, p int32) bool { return w.Partition == p })
}

// shown raises the floor to an answer that is about to be returned.
func (n *nodes) shown(at Moment, partitions []int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range partitions {
		if n.floor[p].Before(at) {
			n.floor[p] = at
			n.changed.Notify()
		}
	}
}

// failedNow records that a request to a node failed; accept records that it has answered.
func (n *nodes) failedNow(h *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h.failed = n.now()
}

// announced takes over a record of the owners topic. It returns the node if it was not known before. A
// partition beyond the last stands for the node itself: whether or not it holds anything yet, it is
// watched, and what it takes over is known within an interval.
func (n *nodes) announced(o topics.Owner, gone bool, watch func(addr string) *node) (fresh *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer n.changed.Notify()
	h, self := n.others[o.Instance], int(o.Partition) >= len(n.newest)
	switch {
	case gone && self && h != nil:
		h.stop()
		delete(n.others, o.Instance)
		return nil
	case gone || o.State != topics.StateRunning: // what a known node holds it tells itself
		return nil
	case h != nil && h.addr != o.Addr: // it has a new address
		h.stop()
		h = nil
	}
	if h == nil {
		h = watch(o.Addr)
		h.instance, h.addr, h.marks, h.waiting = o.Instance, o.Addr, map[int32]Watermark{}, map[*context.CancelFunc]struct{}{}
		n.others[o.Instance], fresh = h, h
	}
	h.seen = n.now()
	if self {
		return fresh
	}
	w := Watermark{
		Partition: o.Partition, Role: o.Role, Incarnation: o.Incarnation, At: o.At,
		Latest: o.Latest, ObservedAt: o.ObservedAt, Reverts: o.Reverts,
	}
	n.claim(w)
	switch old, ok := h.marks[w.Partition]; {
	case !ok || old.Incarnation < w.Incarnation:
		h.marks[w.Partition] = w
	case old.Incarnation == w.Incarnation && old.before(&w):
		w.Kept = old.Kept // it says more of itself soon
		h.marks[w.Partition] = w
	}
	return fresh
}

// told applies all that a node reports of itself.
func (n *nodes) told(h *node, marks []Watermark) {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer n.changed.Notify()
	h.seen, h.failed = n.now(), time.Time{}
	clear(h.marks)
	for _, w := range marks {
		n.claim(w)
		h.marks[w.Partition] = w
	}
}

// forget drops nodes that were silent for long, and ends their watches. It drops incarnations that nobody claims.
func (n *nodes) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for p, at := range n.claimed {
		if n.newest[p] > 0 && n.now().Sub(at) >= forgottenFor {
			n.newest[p] = 0
			n.changed.Notify()
		}
	}
	maps.DeleteFunc(n.others, func(_ string, h *node) bool {
		if n.now().Sub(h.seen) < forgottenFor {
			return false
		}
		h.stop()
		n.changed.Notify()
		return true
	})
}

func (n *nodes) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.others)
}
