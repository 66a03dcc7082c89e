//go:build exact

package simulation

import (
	"runtime"
	"time"
)

// exact: this runtime and this embedded broker are the patched ones.
const exact = true

// setSkew sets by how much the clock of this goroutine, and of those that it starts from now on, is ahead.
func setSkew(ahead time.Duration) { runtime.SetSkew(int64(ahead)) }

// emptyPools empties all sync.Pools, without the collections that would have to follow all of the oracle.
func emptyPools() { runtime.ClearPools() }

// now is the time by the network's clock.
func now() time.Time { return time.Now().Add(-time.Duration(runtime.Skew())) }
