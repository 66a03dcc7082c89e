//go:build !exact

package simulation

import (
	"runtime"
	"time"
)

// exact: the clocks of hosts can only differ on the patched runtime, and only the patched broker ends all rebalances.
const exact = false

func setSkew(time.Duration) {}

// emptyPools empties all sync.Pools.
func emptyPools() {
	runtime.GC() // into the pools' victim caches
	runtime.GC()
}

// now is the time by the clock of all.
func now() time.Time { return time.Now() }
