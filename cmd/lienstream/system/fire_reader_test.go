package system

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// reader reads the services without a pause while nodes fail. It measures how long no answer came, and keeps answers
// for judge.
type reader struct {
	a      *api
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu        sync.Mutex
	reads     int
	failed    int
	backwards int           // answers as of a block before that of the one before them
	longest   time.Duration // from the first time that an answer was asked for, whether that failed or hung, until it came
	when      string        // that was
	step      string        // of the test, at present
	stepped   time.Time     // when it began
	stalled   time.Duration // for which the machine let nobody run who had nothing to wait for
	last      string        // what the last failed read said
	lowest    uint64        // block of the answers since mark
	kept      map[string]map[string]object
	order     []string
}

// keptBlocks bounds what a reader keeps: whole answers, as of so many blocks.
const keptBlocks = 24

func readOn(t *testing.T, a *api, paths ...string) *reader {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &reader{a: a, cancel: cancel, kept: map[string]map[string]object{}}
	r.mark()
	r.during("reading began")
	for _, path := range paths {
		r.done.Go(func() { r.loop(ctx, path) })
	}
	r.done.Go(func() { r.watchMachine(ctx) })
	t.Cleanup(func() { cancel(); r.done.Wait() })
	return r
}

// watchMachine measures the longest stall of the machine, which others may use too.
func (r *reader) watchMachine(ctx context.Context) {
	const nap = 5 * time.Millisecond
	tick := time.NewTimer(nap)
	defer tick.Stop()
	for {
		since := time.Now()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.mu.Lock()
		r.stalled = max(r.stalled, time.Since(since)-nap)
		r.mu.Unlock()
		tick.Reset(nap)
	}
}

func (r *reader) loop(ctx context.Context, path string) {
	since := time.Now() // when the answer that is still to come was first asked for
	var last uint64
	waited := func() {
		if d := time.Since(since); d > r.longest {
			r.longest, r.when = d, fmt.Sprintf("%s, asked %v after %q", path, since.Sub(r.stepped).Round(time.Millisecond), r.step)
		}
	}
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		waited()
	}()
	for ctx.Err() == nil {
		res, err := r.a.get(ctx, path)
		if ctx.Err() != nil {
			return
		}
		good := err == nil && res.Status == http.StatusOK
		r.mu.Lock()
		r.reads++
		if good {
			waited()
			number := r.keep(path, res)
			if number < last {
				r.backwards++
			}
			last = number
		} else {
			r.failed++
			r.last = fmt.Sprintf("%s: %d %v %v", path, res.Status, res.Body, err)
		}
		r.mu.Unlock()
		select { // a reader that never rests starves what it reads from
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
		if good {
			since = time.Now()
		}
	}
}

// during names what happens from now on, for the report.
func (r *reader) during(step string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.step, r.stepped = step, time.Now()
}

// sees waits until the services show so many more blocks.
func (r *reader) sees(t *testing.T, blocks uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var first uint64
	for {
		res, err := r.a.get(ctx, "/listings?limit=1") // of all partitions
		if ctx.Err() != nil {
			t.Fatalf("not %d blocks in a minute: %v", blocks, err)
		}
		var number uint64
		_, _ = fmt.Sscan(res.Number, &number)
		if first == 0 {
			first = number
		}
		if first > 0 && number >= first+blocks {
			return
		}
	}
}

// keep keeps an answer; of many, a random few.
func (r *reader) keep(path string, res answer) (number uint64) {
	_, _ = fmt.Sscan(res.Number, &number)
	r.lowest = min(r.lowest, number)
	if r.kept[res.Block] == nil {
		if len(r.order) == keptBlocks {
			i := rand.IntN(len(r.order))
			delete(r.kept, r.order[i])
			r.order[i] = r.order[len(r.order)-1]
			r.order = r.order[:len(r.order)-1]
		}
		r.kept[res.Block] = map[string]object{}
		r.order = append(r.order, res.Block)
	}
	r.kept[res.Block][path] = res.Body
	return number
}

// mark resets the lowest block.
func (r *reader) mark() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lowest = ^uint64(0)
}

func (r *reader) lowestBlock() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lowest
}

// hops is how many processes an answer passes through, each of which the machine may stall.
const hops = 3

// stop ends the reading and returns the longest wait for an answer, less the machine's stalls.
func (r *reader) stop(t *testing.T, what string) (longest time.Duration) {
	t.Helper()
	r.cancel()
	r.done.Wait()
	t.Logf("%s: of %d reads %d failed; an answer took %v at the longest (%s); the machine stalled for %v",
		what, r.reads, r.failed, r.longest.Round(time.Millisecond), r.when, r.stalled.Round(time.Millisecond))
	if r.failed > 0 {
		t.Logf("%s: the last that failed: %s", what, tail(r.last, 300))
	}
	if r.reads == r.failed {
		t.Fatalf("%s: no read was answered", what)
	}
	return r.longest - hops*r.stalled
}

// judge compares what was kept with what the contracts say as of the same block. Blocks that a reorg took
// away cannot be judged any more; reader reads under load without reorgs.
func (r *reader) judge(ctx context.Context, t *testing.T, j *judge) {
	t.Helper()
	for block, answers := range r.kept {
		want, err := j.at(ctx, hash(block))
		if err != nil {
			t.Fatalf("an answer names block %s: %v", block, err)
		}
		for path, body := range answers {
			if id, ok := strings.CutPrefix(path, "/deals/"); ok {
				bids := []any{}
				for _, b := range want.Bids[id] {
					bids = append(bids, b)
				}
				equal(t, path+" as of "+block, body, object{"deal": want.Deals[id], "bids": bids, "reward": body["reward"]})
				continue
			}
			whole := body["nextCursor"] == nil
			items, _ := body["items"].([]any)
			seen := map[string]bool{}
			for _, item := range items {
				got := item.(object)
				id := got["id"].(string)
				if diff := cmp.Diff(want.Deals[id], got); diff != "" {
					t.Fatalf("%s as of %s: deal %s differs from the chain (-chain +service):\n%s", path, block, id, tail(diff, 2000))
				}
				seen[id] = true
			}
			for id, d := range want.Deals {
				in := strings.HasPrefix(path, "/deals") || d["state"] == "LISTED" && !expired(t, d, j, block)
				if seen[id] && !in || whole && in && !seen[id] {
					t.Fatalf("%s as of %s: deal %s is on the chain: %t, in the answer: %t", path, block, id, in, seen[id])
				}
			}
		}
	}
	t.Logf("answers as of %d blocks equal the chain", len(r.kept))
}
