package simulation

import (
	"math/rand/v2"
	"time"
)

// pace is how fast the chain of a run goes. In one run of three blocks come in a burst once, as on a fast chain: a chain that
// always goes slowly never fills what is bounded by a number and emptied by time.
//
// A fault at so many of its blocks as of others would be a burst of faults: one begins in the first half. What it leaves
// behind must get out of reach while blocks still come fast. Where one thing at a time is broken, most bursts wait until
// nothing is: else all would come while something is broken or has just been.
type pace struct {
	rng    *rand.Rand
	alone  bool
	pause  time.Duration // between two blocks outside of the burst, at the most
	slow   int           // blocks outside of it that are left
	due    int           // it may begin when so many of them are left
	awaits bool          // it begins when nothing is broken
	began  bool
	fast   int // blocks of it that are left
	hit    int // a fault begins when so many of them are left
	apart  time.Duration
}

// Of a burst.
const (
	burstEvery  = 3  // runs
	fewestFast  = 40 // blocks
	mostFast    = 70
	longBurst   = 76                    // from before block 61, where a funding is reverted of a deal that its lender does not fund again, until that one's alerts would come
	fastestFast = 10 * time.Millisecond // between two of them
	slowestFast = 50 * time.Millisecond
)

func newPace(rng *rand.Rand, opt options) *pace {
	p := &pace{rng: rng, alone: opt.alone, pause: opt.pause, slow: opt.steps}
	if rng.IntN(burstEvery) > 0 && !opt.long {
		return p
	}
	p.fast = fewestFast + rng.IntN(mostFast-fewestFast+1)
	if opt.long {
		p.fast = longBurst
	}
	p.hit = p.fast - 1 - rng.IntN(p.fast/2)
	p.apart = fastestFast + time.Duration(rng.Int64N(int64(slowestFast-fastestFast)))
	p.due = 1 + rng.IntN(opt.steps)
	p.awaits = opt.alone && rng.IntN(4) > 0
	return p
}

// blocks are those that are left.
func (p *pace) blocks() int { return p.slow + p.fast }

// next says how long to wait after a block, and whether a fault begins then. Quiet: nothing is broken. Turns: a reorg is next.
func (p *pace) next(quiet, turns bool) (wait time.Duration, fault bool) {
	p.began = p.began || p.slow == 0 || p.slow <= p.due && (quiet || !p.awaits)
	if p.began && p.fast > 0 {
		p.fast--
		return p.apart, p.fast == p.hit && (quiet || !p.alone)
	}
	p.slow--
	wait = time.Duration(p.rng.Int64N(int64(p.pause)))
	if p.alone {
		return wait, quiet
	}
	return wait, p.rng.IntN(6) == 0 || turns && p.rng.IntN(2) == 0
}
