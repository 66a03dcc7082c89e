package memory

import (
	"context"
	"math"
	"runtime/debug"
	"testing"
)

const least = 190 << 20

// The limit stands where little lives, and leaves room for garbage where much does.
func TestLimit(t *testing.T) {
	for live, want := range map[uint64]int64{0: least, least / 2: least, 200 << 20: 300 << 20} {
		if got := limit(least, live); got != want {
			t.Errorf("%d bytes for %d that live, want %d", got, live, want)
		}
	}
}

// What the user says of the collector holds.
func TestBound(t *testing.T) {
	percent, limit := debug.SetGCPercent(77), debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	set := func() (percent int, limit int64) {
		Bound(ended, least)
		percent = debug.SetGCPercent(77)
		return percent, debug.SetMemoryLimit(math.MaxInt64)
	}
	t.Setenv("GOGC", "77")
	t.Setenv("GOMEMLIMIT", "1GiB")
	if percent, limit := set(); percent != 77 || limit != math.MaxInt64 {
		t.Errorf("GOGC %d and GOMEMLIMIT %d in spite of the environment", percent, limit)
	}
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	if percent, limit := set(); percent != gcPercent || limit < least {
		t.Errorf("GOGC %d, GOMEMLIMIT %d", percent, limit)
	}
}
