package query_test

import (
	"math/rand/v2"
	"testing"

	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// An answer is current while the lowest of all partitions is at its block, by number and by hash, whichever it was read
// from and wherever the others are.
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
	for range 1000 {
		p := random.Int32N(partitions)
		next := at[p]
		if low := lowest(span(partitions)); next.Reverts+next.At.Number >= low.Reverts+low.At.Number+toldViews-2 {
			continue // further ahead than is told of
		}
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
			want := lowest(span(partitions)).At // whatever an answer was read from
			if !r.Current(want, from) {
				t.Fatalf("of %v block %d is not current", from, want.Number)
			}
			if old := past[random.IntN(len(past))]; old != want && r.Current(old, from) {
				t.Fatalf("of %v block %d is current, not only %d", from, old.Number, want.Number)
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
	if want := lowest([]int32{0, 1, 2}).At; !r.Current(want, []int32{0}) {
		t.Errorf("block %d is not current while another partition has no holder", want.Number)
	}
}
