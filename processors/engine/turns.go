package engine

import (
	"context"
	"slices"
	"sync"
	"time"
)

// maxLoads is how many partitions are loaded at a time at the most: each takes memory, and one that is whole can be
// read, while all together would be whole at the end only. idleTurn is how long one that gets nothing keeps its turn.
const (
	maxLoads = 4
	idleTurn = time.Second
)

// Ranks of what is restored from nothing: first what nobody can be asked for.
const (
	rankUnserved = iota
	rankServed
	rankStandby
)

// rank is that of a partition which this node is to own.
func (n *Node) rank(r *replica) int {
	if n.live.served(n.cfg.Instance, r.partition) {
		return rankServed
	}
	return rankUnserved
}

// turns lets so many go on at a time, by rank and then by who came first.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting []*turn
}

// turn is one who goes on or waits. It belongs to one goroutine.
type turn struct {
	of    *turns
	rank  int
	has   bool
	ready chan struct{}
}

// begin waits until it has its turn.
func (t *turn) begin(ctx context.Context) error {
	if t.has {
		return nil
	}
	t.ready = make(chan struct{})
	t.of.mu.Lock()
	at, _ := slices.BinarySearchFunc(t.of.waiting, t.rank+1, func(w *turn, rank int) int { return w.rank - rank })
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
	} else { // it was given
		t.of.free++
		t.of.next()
	}
	return ctx.Err()
}

// end gives the turn back, if it has it.
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

// next lets those go on that there is room for.
func (t *turns) next() {
	for t.free > 0 && len(t.waiting) > 0 {
		t.free--
		close(t.waiting[0].ready)
		t.waiting = t.waiting[1:]
	}
}
