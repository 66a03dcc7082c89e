package memory

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"testing"
)

const least = 190 << 20

// The limit stands where little lives, and leaves room for garbage where much does.
func TestLimit(t *testing.T) {
	for live, want := range map[uint64]int64{0: least, least / 2: least, 180 << 20: 245 << 20} {
		if got := limit(least, live, 5<<20); got != want {
			t.Errorf("%d bytes for %d that live, want %d", got, live, want)
		}
	}
}

// What the runtime counts beside the heap, as stacks, takes none of the room for garbage.
func TestRoomBesideStacks(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	percent, before := debug.SetGCPercent(gcPercent), debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(before)
	})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	lives := make([]byte, 16<<20)
	runtime.GC()
	allowed := func() int64 {
		Bound(ended, 1)
		return debug.SetMemoryLimit(math.MaxInt64)
	}
	without := allowed()
	const stacks, each = 1000, 32 << 10
	deep, release := make(chan struct{}), make(chan struct{})
	for range stacks {
		go func() {
			var frame [each]byte
			deep <- struct{}{}
			<-release
			runtime.KeepAlive(&frame)
		}()
		<-deep
	}
	with := allowed()
	close(release)
	runtime.KeepAlive(lives)
	if more := with - without; more < stacks*each/2 {
		t.Errorf("%d bytes of stacks make the limit %d higher", stacks*each, more)
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
