package simulation

import (
	"slices"
	"time"
)

// clocksApart is the fault of a whole run: clocks that nobody has set right.
const clocksApart = "clocks apart"

// furthest is how much a clock is ahead or behind, at the most.
const furthest = time.Minute

// apart sets the clocks of hosts apart in one run of three. It needs the patched runtime.
func (r *run) apart(hosts []string) {
	asked := slices.Contains(r.opt.faults, clocksApart)
	by := r.rng.IntN(3)
	if !exact || r.opt.calm || !asked && (by > 0 || len(r.opt.faults) > 0) {
		return
	}
	r.skews = map[string]time.Duration{}
	for _, h := range append(slices.Clone(hosts), names("processor", mostProcessors)[r.opt.processors:]...) {
		r.skews[h] = time.Duration(r.rng.Int64N(2*int64(furthest))) - furthest
		r.story.tell(h, clocksApart, r.skews[h].String())
	}
	r.result.faults[clocksApart]++
}
