// Package memory limits the memory of a process. It must not know what the memory is used for.
package memory

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	gcPercent = 300 // let the heap grow to four times the live heap
	lookEvery = 250 * time.Millisecond
)

// Bound does what GOGC and GOMEMLIMIT cannot: it lets the heap grow well above the live heap, but not
// above least bytes while less than two thirds of that are live; 0: no limit. It adjusts the limit to the
// live heap until ctx is done: with a fixed limit below the live heap the collector would never stop.
func Bound(ctx context.Context, least uint64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") != "" || least == 0 {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		metrics.Read(live)
		debug.SetMemoryLimit(limit(least, live[0].Value.Uint64()))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// limit allows half the size of the live heap for garbage.
func limit(least, live uint64) int64 { return int64(max(least, live/2*3)) }
