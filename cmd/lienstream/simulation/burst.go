package simulation

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Of a burst of questions. Partitions come to a block some milliseconds apart, and standbys up to 50 ms after owners: who asks
// every 100 ms hardly ever asks meanwhile.
const (
	burstsEvery  = 6 // blocks
	askedInBurst = 12
	burstPause   = 10 * time.Millisecond // between two of its questions, at the most
)

// bursts has clients ask one thing again and again while a block comes, or what all partitions have a part of, through any
// serving node: half of the questions name the newest block that any client has seen.
func (r *run) bursts(ctx context.Context, wg *sync.WaitGroup, servings []string, rng *rand.Rand) {
	if rng.IntN(burstsEvery) > 0 {
		return
	}
	questions := pathsOfAll()
	if one := rng.IntN(2 * len(r.oracle.paths)); one < len(r.oracle.paths) {
		questions = r.oracle.paths[one : one+1]
	}
	for range servings {
		own := rand.New(rand.NewPCG(rng.Uint64(), 0))
		wg.Go(func() { r.burst(ctx, servings, questions, own) })
	}
}

// burst is one client's part of it. What is refused it does not ask again until it is answered: so it measures no outage.
func (r *run) burst(ctx context.Context, servings, questions []string, rng *rand.Rand) {
	for i := 0; i < askedInBurst && ctx.Err() == nil; i++ {
		time.Sleep(time.Duration(rng.Int64N(int64(burstPause))))
		path, atLeast := questions[rng.IntN(len(questions))], uint64(0)
		if rng.IntN(2) == 0 {
			r.rmu.Lock()
			atLeast = r.newest[classOf(path)]
			r.rmu.Unlock()
		}
		r.ask(ctx, servings[rng.IntN(len(servings))], path, atLeast, true)
	}
}
