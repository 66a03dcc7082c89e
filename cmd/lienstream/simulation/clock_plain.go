//go:build !exact

package simulation

import "time"

// skewable: the clocks of hosts can only differ on the patched runtime.
const skewable = false

func setSkew(time.Duration) {}

// now is the time by the clock of all.
func now() time.Time { return time.Now() }
