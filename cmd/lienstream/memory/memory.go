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
// above least bytes while these have room for the live heap, a third of its size for garbage, and what the runtime
// counts beside the heap, as stacks and the unused parts of spans; 0: no limit. It adjusts the limit to all that
// until ctx is done: with a fixed limit that leaves no room for garbage the collector would never stop.
func Bound(ctx context.Context, least uint64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") != "" || least == 0 {
		return
	}
	samples := make([]metrics.Sample, len(names))
	for i, name := range names {
		samples[i].Name = name
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		metrics.Read(samples)
		var beside uint64
		for _, s := range samples[1:] {
			beside += s.Value.Uint64()
		}
		debug.SetMemoryLimit(limit(least, samples[0].Value.Uint64(), beside))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// names are the live heap, and what counts as well under a limit.
var names = []string{
	"/gc/heap/live:bytes",
	"/memory/classes/heap/stacks:bytes", "/memory/classes/heap/unused:bytes",
	"/memory/classes/metadata/mcache/free:bytes", "/memory/classes/metadata/mcache/inuse:bytes",
	"/memory/classes/metadata/mspan/free:bytes", "/memory/classes/metadata/mspan/inuse:bytes",
	"/memory/classes/metadata/other:bytes", "/memory/classes/os-stacks:bytes", "/memory/classes/other:bytes",
	"/memory/classes/profiling/buckets:bytes",
}

// limit allows a third of the size of the live heap for garbage.
func limit(least, live, beside uint64) int64 { return int64(max(least, live/3*4+beside)) }
