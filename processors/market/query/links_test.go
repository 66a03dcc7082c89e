package query_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// Deals are read from another node over a connection that is kept, and opened again where the node has closed it. They are the same as here.
func TestDealsAreReadOverAKeptConnection(t *testing.T) {
	n := newNode(t, topics.RoleOwner, 1, span(partitions)...)
	n.land(t, partitions, block(1), listing(1), listing(2))
	here, there := localRouter(t, n, partitions), serve(t, n)
	r := remoteRouter(t, partitions, map[string]*holder{"a": there})
	taken := func() int {
		there.mu.Lock()
		defer there.mu.Unlock()
		return len(there.taken)
	}
	for opened := 1; opened <= 3; opened++ {
		for range 5 {
			for id := range uint64(4) {
				want, err1 := here.DealWithReward(t.Context(), uint256.NewInt(id))
				got, err2 := r.DealWithReward(t.Context(), uint256.NewInt(id))
				if diff := cmp.Diff(want, got); diff != "" || errors.Is(err1, query.ErrNotFound) != errors.Is(err2, query.ErrNotFound) {
					t.Fatalf("deal %d: %v, here %v\n%s", id, err2, err1, diff)
				}
			}
		}
		if got := taken(); got != opened {
			t.Fatalf("%d connections were opened, want %d", got, opened)
		}
		there.mu.Lock()
		for _, c := range there.taken {
			_ = c.Close()
		}
		there.mu.Unlock()
	}
}
