package engine

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// maxLoads is how many partitions are loaded at a time: each takes memory, and a loaded one can be read while
// the others wait. idleTurn is how long a load without records keeps its turn.
const (
	maxLoads = 4
	idleTurn = time.Second
)

// Ranks of the partitions to load: first those that no other node can answer for.
const (
	rankUnserved = iota
	rankServed
	rankStandby
)

// rank is the rank of a partition that this node is to own.
func (n *Node) rank(r *replica) int {
	if n.live.served(n.cfg.Instance, r.partition) {
		return rankServed
	}
	return rankUnserved
}

// turns limits how many loads run at a time. They start in the order of rank, then of the work that is left, the most first, and
// then of arrival: if the longest started last, everything would wait for it at the end.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting []*turn
}

// turn is a running or waiting load. It belongs to one goroutine.
type turn struct {
	of    *turns
	rank  int
	left  int64 // records
	has   bool
	ready chan struct{}
}

// begin waits for the turn.
func (t *turn) begin(ctx context.Context) error {
	if t.has {
		return nil
	}
	t.ready = make(chan struct{})
	t.of.mu.Lock()
	at := slices.IndexFunc(t.of.waiting, t.before)
	if at < 0 {
		at = len(t.of.waiting)
	}
	t.of.waiting = slices.Insert(t.of.waiting, at, t)
	t.of.next()
	t.of.mu.Unlock()
	select {
	case <-t.ready:
		t.has = true
		return nil
	case <-ctx.Done():
	}
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if at := slices.Index(t.of.waiting, t); at >= 0 {
		t.of.waiting = slices.Delete(t.of.waiting, at, at+1)
	} else { // it was granted
		t.of.free++
		t.of.next()
	}
	return ctx.Err()
}

func (t *turn) before(w *turn) bool {
	return cmp.Or(cmp.Compare(t.rank, w.rank), cmp.Compare(w.left, t.left)) < 0
}

// end releases the turn, if it is held.
func (t *turn) end() {
	if !t.has {
		return
	}
	t.has = false
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.of.free++
	t.of.next()
}

// awaited reports whether somebody of this rank or a lower one waits for a turn.
func (t *turn) awaited(rank int) bool {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	return len(t.of.waiting) > 0 && t.of.waiting[0].rank <= rank
}

// next starts as many waiting loads as there is room for.
func (t *turns) next() {
	for t.free > 0 && len(t.waiting) > 0 {
		t.free--
		close(t.waiting[0].ready)
		t.waiting = t.waiting[1:]
	}
}
