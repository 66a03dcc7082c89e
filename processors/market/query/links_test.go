package query_test

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
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

// BenchmarkReadApart reads deals at random from another node, 16 at a time, over TCP. What both ends take of the CPU is a metric.
func BenchmarkReadApart(b *testing.B) {
	const known = 2000
	n := newNode(b, topics.RoleOwner, 1, span(partitions)...)
	events := make([]contracts.Event, known)
	for i := range events {
		events[i] = listing(uint64(1 + i))
	}
	n.land(b, partitions, block(1), events...)
	r := remoteRouter(b, partitions, map[string]*holder{"a": serve(b, n)})
	cpu := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	b.ReportAllocs()
	b.SetParallelism(max(1, 16/runtime.GOMAXPROCS(0)))
	b.ResetTimer()
	before := cpu()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := r.DealWithReward(b.Context(), uint256.NewInt(1+rand.Uint64N(known))); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
}
