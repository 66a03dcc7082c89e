package rpc

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/pause"
)

// told are the newest headers that an endpoint served: heads, and the ends of batches, where what does not fit shows. A vote
// says who told what is not the endpoints', also of an endpoint that votes with them. Whatever it tells of afterwards, it
// cannot have a block forgotten by one of a lower number.
type told struct {
	by [128][maxReorged + 1]sight // by the number
}

// sight is one header.
type sight struct {
	number       uint64
	hash, parent common.Hash
	at           time.Time
}

// toldFor is how long a header counts against who told it: the chain may have changed since.
const toldFor = time.Minute

// tells records headers that the endpoint served, but none so high that it is not believed: it would take another one's place.
func (e *endpoint) tells(headers ...follow.Header) {
	top, now := e.client.reach(e), time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range headers {
		if h := &headers[i]; top == 0 || above(h.Number, top) <= maxJump {
			e.told.add(sight{h.Number, h.Hash, h.Parent, now})
		}
	}
}

// of are the headers whose numbers share a place.
func (t *told) of(number uint64) []sight { return t.by[number%uint64(len(t.by))][:] }

// add records a header in place of one that it is too late for, or of the lowest and of these the oldest.
func (t *told) add(s sight) {
	of := t.of(s.number)
	rank := func(x sight) uint64 {
		if s.at.Sub(x.at) >= toldFor {
			return 0
		}
		return x.number + 1
	}
	least := &of[0]
	for i := range of {
		x := &of[i]
		if x.hash == s.hash {
			least = x
			break
		}
		if c := cmp.Compare(rank(*x), rank(*least)); c < 0 || c == 0 && x.at.Before(least.at) {
			least = x
		}
	}
	if rank(*least) <= rank(s) {
		*least = s
	}
}

// against returns the blocks told of that contradict the endpoints' block of a height, and forgets them: each counts once.
func (t *told) against(most *follow.Header) (hashes []common.Hash) {
	for _, of := range [][]sight{t.of(most.Number), t.of(most.Number + 1)} {
		for i := range of {
			s := &of[i]
			if s.number == most.Number && s.hash != most.Hash || s.number == most.Number+1 && s.parent != most.Hash {
				if time.Since(s.at) < toldFor {
					hashes = append(hashes, s.hash)
				}
				*s = sight{}
			}
		}
	}
	return hashes
}

// maxReorged is how many blocks of a height an endpoint may tell of before they are no more looked for with others.
const maxReorged = 3

// contradicted counts the endpoints that told of a block that lost a vote, or of one that follows from it. A block that a reorg
// has replaced, or will, is known by more: as many told of it as now have another one, or one of these has it still, by hash.
func (c *Client) contradicted(ctx context.Context, b *ballot, most follow.Header, sure bool) {
	have := b.have[most.Hash]
	if len(have) < 2 {
		return // one endpoint's word blames nobody
	}
	told := map[common.Hash][]*endpoint{}
	many := map[*endpoint]bool{}
	for _, e := range c.endpoints {
		e.mu.Lock()
		hashes := e.told.against(&most)
		e.mu.Unlock()
		many[e] = len(hashes) > maxReorged
		for _, hash := range hashes {
			told[hash] = append(told[hash], e)
		}
	}
	for hash, by := range b.have {
		if hash == most.Hash {
			continue
		}
		err := lied(lieFork, "block %d is %s, but %d endpoints have %s", most.Number, hash, len(have), most.Hash)
		reorg := !sure && c.knows(ctx, hash, c.patience(), have)
		for _, e := range by {
			if reorg {
				e.mu.Lock()
				e.restFor(reorgRest)
				e.mu.Unlock()
			} else {
				e.lost(sure, err)
			}
		}
		delete(told, hash)
	}
	for hash, by := range told {
		liar := slices.ContainsFunc(by, func(e *endpoint) bool { return many[e] })
		others := slices.DeleteFunc(slices.Clone(have), func(e *endpoint) bool { return slices.Contains(by, e) })
		if len(by) >= len(have) || !liar && c.knows(ctx, hash, c.patience(), others) {
			continue
		}
		for _, e := range by {
			e.lost(false, lied(lieFork, "it told of block %s, but %d endpoints have block %d %s", hash, len(have), most.Number, most.Hash))
		}
	}
}

// knows reports whether one of the endpoints has a block by its hash, which need not be on its chain any more.
func (c *Client) knows(ctx context.Context, hash common.Hash, limit time.Duration, of []*endpoint) bool {
	asking, cancel := context.WithTimeout(context.WithValue(ctx, voting{}, true), limit)
	defer cancel()
	var found atomic.Bool
	var g sync.WaitGroup
	for _, e := range of {
		g.Go(func() {
			if h, err := e.byHash(asking, hash); err == nil && h.Hash == hash {
				found.Store(true)
				cancel()
			}
		})
	}
	g.Wait()
	return found.Load()
}

// Had asks all endpoints for a block by its hash, shortly, and returns how many have it, at most two, and how many answer without. A
// single one is believed.
func (c *Client) Had(ctx context.Context, hash common.Hash) (have, lack int) {
	if c.only() {
		return 2, 0
	}
	return c.had(ctx, hash, c.patience())
}

func (c *Client) had(ctx context.Context, hash common.Hash, limit time.Duration) (have, lack int) {
	asking, cancel := context.WithTimeout(context.WithValue(ctx, voting{}, true), limit)
	defer cancel()
	var g sync.WaitGroup
	var mu sync.Mutex
	for _, e := range c.endpoints {
		if e.throttled() {
			continue
		}
		g.Go(func() {
			h, err := e.byHash(asking, hash)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && h.Hash == hash:
				if have++; have > 1 {
					cancel()
				}
			case asking.Err() == nil && classify(err) == classGone && !e.stands(c.cfg.Silence):
				lack++
			}
		})
	}
	g.Wait()
	return min(have, 2), lack
}

// Seconded waits until two endpoints have a block, or all others say nothing of it for a while. It returns ErrGone where they answer
// without it; that one does so is no reason if it is known to be of long standing.
func (c *Client) Seconded(ctx context.Context, b topics.BlockRef, known bool) error {
	if c.only() {
		return nil
	}
	for began := time.Now(); ; {
		have, lack := c.had(ctx, b.Hash, claimWait)
		took := time.Since(began)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case have > 1, have == 1 && (lack == 0 && took >= c.cfg.Hasty() || lack == 1 && known):
			return nil
		case took >= claimWait && (have == 0 || lack > 0):
			return fmt.Errorf("block %d %s: one endpoint alone has it: %w", b.Number, b.Hash, ErrGone)
		}
		if err := pause.For(ctx, patience); err != nil {
			return err
		}
	}
}

const (
	reorgRest = 250 * time.Millisecond // after a vote on what is not final, lost by who perhaps saw a reorg first or last
	lostOften = 3                      // such votes make a liar, with no more than
	lostPause = 10 * time.Minute       // between them, however slow the chain is, and no less than
	lostApart = time.Second

	forkRest    = 2 * time.Second // of a liar; it doubles each time
	maxForkRest = time.Minute
	forkMemory  = time.Hour // for so long
)

// lost records that the endpoint had, or told of, a block that lost a vote; final: it was on what does not change.
func (e *endpoint) lost(final bool, err error) {
	if e.resting() {
		return // it was counted
	}
	if !final && !e.often() {
		return
	}
	e.failed(err)
}

// often counts a lost vote on what is not final.
func (e *endpoint) often() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	switch since := now.Sub(e.lostAt); {
	case since > lostPause:
		e.losses, e.lostAt = 1, now
	case since > lostApart:
		e.losses, e.lostAt = e.losses+1, now
	}
	e.rest = now.Add(reorgRest)
	e.announced.ignored = e.rest
	return e.losses >= lostOften
}

// forked is the rest of a liar. The caller holds mu.
func (e *endpoint) forked() time.Duration {
	d := e.forks.again(time.Now(), forkMemory, forkRest, maxForkRest)
	e.head, e.announced.newest = 0, follow.Header{} // of a chain that is not the endpoints'
	e.announced.ignored = time.Now().Add(d)
	return d
}

// strikes is how often an endpoint did something lately, and when it last did.
type strikes struct {
	n  int
	at time.Time
}

// again counts one more, and returns what it costs: first, twice as long each time, and at most this. They are forgotten if none
// comes for long enough.
func (s *strikes) again(now time.Time, forgotten, first, most time.Duration) time.Duration {
	if now.Sub(s.at) > forgotten {
		s.n = 0
	}
	d := min(first<<min(s.n, 16), most)
	s.n, s.at = s.n+1, now
	return d
}
