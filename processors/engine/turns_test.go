package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/lienstream/lienstream/topics/polltest"
)

// The lowest rank goes first; within a rank the load with the most work left, then the earliest; a load that gives up is skipped.
func TestLoadsTakeTurnsByRank(t *testing.T) {
	all := &turns{free: 1}
	first := &turn{of: all}
	check(t, first.begin(t.Context()))
	check(t, first.begin(t.Context())) // it has it
	order := make(chan string)
	wait := func(name string, rank int, left int64) context.CancelFunc {
		ctx, cancel := context.WithCancel(t.Context())
		all.mu.Lock()
		before := len(all.waiting)
		all.mu.Unlock()
		go func() {
			it := &turn{of: all, rank: rank, left: left}
			if err := it.begin(ctx); err != nil {
				if !errors.Is(err, context.Canceled) {
					name = err.Error()
				}
				order <- name + " gave up"
				return
			}
			order <- name
			it.end()
		}()
		polltest.Until(t, name+" waits", func() bool {
			all.mu.Lock()
			defer all.mu.Unlock()
			return len(all.waiting) == before+1
		})
		return cancel
	}
	defer wait("standby", rankStandby, 9)()
	defer wait("served", rankServed, 0)()
	gone := wait("gone", rankUnserved, 0)
	defer wait("unserved", rankUnserved, 1)()
	defer wait("unserved too", rankUnserved, 1)()
	defer wait("the longest", rankUnserved, 2)()
	expect := func(names ...string) {
		t.Helper()
		for _, want := range names {
			if got := <-order; got != want {
				t.Fatalf("%s, want %s", got, want)
			}
		}
	}
	gone()
	expect("gone gave up")
	first.end()
	expect("the longest", "unserved", "unserved too", "served", "standby")
}
