package main

import (
	"context"
	"math"
	"runtime/debug"
	"testing"
)

// The limit stands where little lives, and leaves room for garbage where much does.
func TestMemoryLimit(t *testing.T) {
	for live, want := range map[uint64]int64{0: memoryBytes, memoryBytes / 2: memoryBytes, 200 << 20: 300 << 20} {
		if got := memoryLimit(live); got != want {
			t.Errorf("%d bytes for %d that live, want %d", got, live, want)
		}
	}
}

// What the user says of the collector holds.
func TestBoundMemory(t *testing.T) {
	percent, limit := debug.SetGCPercent(77), debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	set := func() (percent int, limit int64) {
		boundMemory(ended)
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
	if percent, limit := set(); percent != gcPercent || limit < memoryBytes {
		t.Errorf("GOGC %d, GOMEMLIMIT %d", percent, limit)
	}
}
