package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// What the collector is told unless GOGC or GOMEMLIMIT say otherwise: let the heap grow to four times of
// what lives, but not beyond memoryBytes while less than two thirds of that live. A limit that stood still
// would have it run for ever where more lives, an embedded broker in memory for one.
const (
	gcPercent   = 300
	memoryBytes = 190 << 20
	memoryEvery = 250 * time.Millisecond
)

// boundMemory sets them, and moves the limit with what lives until ctx is done.
func boundMemory(ctx context.Context) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	tick := time.NewTicker(memoryEvery)
	defer tick.Stop()
	for {
		metrics.Read(live)
		debug.SetMemoryLimit(memoryLimit(live[0].Value.Uint64()))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// memoryLimit leaves half as much for garbage as what lives.
func memoryLimit(liveBytes uint64) int64 { return int64(max(memoryBytes, liveBytes/2*3)) }
