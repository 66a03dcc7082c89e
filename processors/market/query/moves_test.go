package query_test

import (
	"math/rand/v2"
	"testing"

	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// An answer is current while the lowest of its partitions is at its block: by number and by hash, wherever the
// others are.
func TestCurrent(t *testing.T) {
	n := newNode(t, topics.RoleOwner, 1, span(partitions)...)
	r := localRouter(t, n, partitions)
	random := rand.New(rand.NewPCG(1, 2))
	var (
		at   [partitions]query.Watermark
		past []topics.BlockRef
	)
	lowest := func(from []int32) (w query.Watermark) {
		for i, p := range from {
			if m := at[p]; i == 0 || m.Reverts < w.Reverts || m.Reverts == w.Reverts && m.At.Number < w.At.Number {
				w = m
			}
		}
		return w
	}
	for p := range at {
		at[p].At = block(0)
	}
	forked := 0
	for range 400 {
		p := random.Int32N(partitions)
		next := at[p]
		if next.Reverts == 0 && next.At.Number == 20 {
			next.Reverts, next.At = 5, block(15, 'f') // the fork has the same numbers again
			n.mu.Lock()
			n.parts[p].mark.Reverts = 5
			n.mu.Unlock()
			forked++
		} else if next.At.Number < 40 {
			next.At = block(next.At.Number+1, make([]byte, min(next.Reverts, 1))...)
		}
		past = append(past, at[p].At)
		at[p] = next
		n.advance(t, p, next.At)

		for _, from := range [][]int32{nil, {p}, {random.Int32N(partitions)}, {0, 2}} {
			all := from
			if from == nil {
				all = span(partitions)
			}
			want := lowest(all).At
			if !r.Current(want, from) {
				t.Fatalf("of %v block %d is not current", all, want.Number)
			}
			if old := past[random.IntN(len(past))]; old != want && r.Current(old, from) {
				t.Fatalf("of %v block %d is current, not only %d", all, old.Number, want.Number)
			}
		}
	}
	if forked != partitions {
		t.Errorf("%d partitions saw the fork", forked)
	}
	n.mu.Lock()
	delete(n.parts, 3)
	n.Notify()
	n.mu.Unlock()
	if r.Current(at[0].At, []int32{0}) {
		t.Error("something is current while a partition has no holder")
	}
}
