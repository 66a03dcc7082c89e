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

// reader reads the services without a pause while things happen to the nodes. It notes for how long reads
// failed, and keeps answers, to be judged when the chain stands still.
type reader struct {
	a      *api
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	reads   int
	failed  int
	longest time.Duration // from the start of the first failed read of a row to the end of the next good one
	slowest time.Duration // of a read that was answered
	last    string        // what the last failed read said
	lowest  uint64        // block of the answers since mark
	kept    map[string]map[string]object
	order   []string
}

// keptBlocks bounds what a reader keeps: whole answers, as of so many blocks.
const keptBlocks = 24

func readOn(t *testing.T, a *api, paths ...string) *reader {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &reader{a: a, cancel: cancel, kept: map[string]map[string]object{}}
	r.mark()
	for _, path := range paths {
		r.done.Go(func() { r.loop(ctx, path) })
	}
	t.Cleanup(func() { cancel(); r.done.Wait() })
	return r
}

func (r *reader) loop(ctx context.Context, path string) {
	var since time.Time // of the first failed read in a row
	for ctx.Err() == nil {
		began := time.Now()
		res, err := r.a.get(ctx, path)
		if ctx.Err() != nil {
			return
		}
		if err == nil && res.Status != http.StatusOK {
			err = fmt.Errorf("%d %v", res.Status, res.Body)
		}
		r.mu.Lock()
		r.reads++
		if err != nil {
			r.failed++
			r.last = path + ": " + err.Error()
			if since.IsZero() {
				since = began
			}
		} else {
			if !since.IsZero() {
				r.longest = max(r.longest, time.Since(since))
				since = time.Time{}
			}
			r.slowest = max(r.slowest, time.Since(began))
			r.keep(path, res)
		}
		r.mu.Unlock()
		select { // a reader that never rests starves what it reads from
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
	if !since.IsZero() {
		r.mu.Lock()
		r.longest = max(r.longest, time.Since(since))
		r.mu.Unlock()
	}
}

// keep keeps an answer; of many, a random few.
func (r *reader) keep(path string, res answer) {
	var number uint64
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
}

// mark begins to note the lowest block anew.
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

// stop ends the reading and reports it.
func (r *reader) stop(t *testing.T, what string) (longest time.Duration) {
	t.Helper()
	r.cancel()
	r.done.Wait()
	t.Logf("%s: of %d reads %d failed, for %v at the longest; the slowest that was answered took %v",
		what, r.reads, r.failed, r.longest.Round(time.Millisecond), r.slowest.Round(time.Millisecond))
	if r.failed > 0 {
		t.Logf("%s: the last that failed: %s", what, tail(r.last, 300))
	}
	if r.reads == r.failed {
		t.Fatalf("%s: no read was answered", what)
	}
	return r.longest
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
