// Package memory bounds what a process takes of the machine's memory. It must not know what the memory is for.
package memory

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// What the collector is told unless GOGC or GOMEMLIMIT say otherwise: let the heap grow to four times of
// what lives, but not beyond leastBytes while less than two thirds of that live. A limit that stood still
// would have it run for ever where more lives, an embedded broker in memory for one.
const (
	gcPercent  = 300
	leastBytes = 190 << 20
	lookEvery  = 250 * time.Millisecond
)

// Bound sets the collector up, and moves the limit with what lives until ctx is done.
func Bound(ctx context.Context) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		metrics.Read(live)
		debug.SetMemoryLimit(limit(live[0].Value.Uint64()))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// limit leaves half as much for garbage as what lives.
func limit(liveBytes uint64) int64 { return int64(max(leastBytes, liveBytes/2*3)) }
