// Package memory bounds what a process takes of the machine's memory. It must not know what the memory is for.
package memory

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	gcPercent = 300 // let the heap grow to four times of what lives
	lookEvery = 250 * time.Millisecond
)

// Bound tells the collector what GOGC and GOMEMLIMIT do not: to let the heap grow well above what lives, but
// not above least bytes while less than two thirds of that live; 0: as it likes. It moves the limit with what
// lives until ctx is done: one that stood still would have the collector run for ever where more lives.
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

// limit leaves half as much for garbage as what lives.
func limit(least, live uint64) int64 { return int64(max(least, live/2*3)) }
