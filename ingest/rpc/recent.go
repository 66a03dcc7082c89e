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

// recentHeaders holds the newest headers that an endpoint served: heads and the last blocks of batches. A vote uses
// them to find the endpoints that served a block which the majority lacks, also one that votes with the majority. A
// lower block never displaces a higher one.
type recentHeaders struct {
	by [128][maxReorged + 1]seenHeader // by block number
}

// seenHeader is one header.
type seenHeader struct {
	number       uint64
	hash, parent common.Hash
	at           time.Time
}

// recentFor is how long a header counts against the endpoint that served it: the chain may have changed since.
const recentFor = time.Minute

// remember records headers that the endpoint served. It skips those too high to be believed, which would displace
// others.
func (e *endpoint) remember(headers ...follow.Header) {
	top, now := e.client.reach(e), time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range headers {
		if h := &headers[i]; top == 0 || above(h.Number, top) <= maxJump {
			e.recent.add(seenHeader{h.Number, h.Hash, h.Parent, now})
		}
	}
}

// bucket returns the headers of the numbers that share a bucket.
func (t *recentHeaders) bucket(number uint64) []seenHeader { return t.by[number%uint64(len(t.by))][:] }

// add records a header in place of an expired one, or of the lowest, and of these the oldest.
func (t *recentHeaders) add(s seenHeader) {
	of := t.bucket(s.number)
	rank := func(x seenHeader) uint64 {
		if s.at.Sub(x.at) >= recentFor {
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

// contradicting returns the blocks that contradict the majority's block, and forgets them: each counts once.
func (t *recentHeaders) contradicting(most *follow.Header) (hashes []common.Hash) {
	for _, of := range [][]seenHeader{t.bucket(most.Number), t.bucket(most.Number + 1)} {
		for i := range of {
			s := &of[i]
			if s.number == most.Number && s.hash != most.Hash || s.number == most.Number+1 && s.parent != most.Hash {
				if time.Since(s.at) < recentFor {
					hashes = append(hashes, s.hash)
				}
				*s = seenHeader{}
			}
		}
	}
	return hashes
}

// maxReorged is how many blocks of a height an endpoint may serve before the others are no longer asked for them.
const maxReorged = 3

// contradicted counts the endpoints that served a block that lost a vote, or its child. A reorg is no lie: then as
// many endpoints served the old block as now have the new one, or one still knows it by hash.
func (c *Client) contradicted(ctx context.Context, b *ballot, most follow.Header, sure bool) {
	have := b.have[most.Hash]
	if len(have) < 2 {
		return // one endpoint's claim blames none
	}
	shownBy := map[common.Hash][]*endpoint{}
	many := map[*endpoint]bool{}
	for _, e := range c.endpoints {
		e.mu.Lock()
		hashes := e.recent.contradicting(&most)
		e.mu.Unlock()
		many[e] = len(hashes) > maxReorged
		for _, hash := range hashes {
			shownBy[hash] = append(shownBy[hash], e)
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
		delete(shownBy, hash)
	}
	for hash, by := range shownBy {
		liar := slices.ContainsFunc(by, func(e *endpoint) bool { return many[e] })
		others := slices.DeleteFunc(slices.Clone(have), func(e *endpoint) bool { return slices.Contains(by, e) })
		if len(by) >= len(have) || !liar && c.knows(ctx, hash, c.patience(), others) {
			continue
		}
		for _, e := range by {
			e.lost(false, lied(lieFork, "it served block %s, but %d endpoints have block %d %s", hash, len(have), most.Number, most.Hash))
		}
	}
}

// knows reports whether one of the endpoints has a block by its hash. It need not be on the chain any more.
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

// Had asks all endpoints for a block by its hash, with a short limit. It returns how many have it, at most two, and
// how many answer without it. A single configured endpoint counts as two.
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
			case asking.Err() == nil && classify(err) == classGone && !e.stalled(c.cfg.Silence):
				lack++
			}
		})
	}
	g.Wait()
	return min(have, 2), lack
}

// Seconded waits until two endpoints have a block, or one has it and all others are silent for a while. It returns
// ErrGone if others answer without it. known: the block is of long standing, so that one other endpoint may lack it.
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
	// reorgRest is the pause after losing a vote on a block that is not final: perhaps the endpoint saw a reorg
	// first or last.
	reorgRest = 250 * time.Millisecond
	lostOften = 3                // lost votes that make a liar, if between two of them there are
	lostPause = 10 * time.Minute // at most this, however slow the chain is,
	lostApart = time.Second      // and at least this

	forkRest    = 2 * time.Second // pause of a liar; it doubles each time
	maxForkRest = time.Minute
	forkMemory  = time.Hour // without a lie after which forkRest applies again
)

// lost records that the endpoint had or served a block that lost a vote. final: the block was below finality.
func (e *endpoint) lost(final bool, err error) {
	if e.resting() {
		return // it was counted already
	}
	if !final && !e.losesOften() {
		return
	}
	e.failed(err)
}

// losesOften counts a lost vote on a block that is not final, and reports whether there were too many.
func (e *endpoint) losesOften() bool {
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

// forked returns the pause of a liar. The caller holds mu.
func (e *endpoint) forked() time.Duration {
	d := e.forks.add(time.Now(), forkMemory, forkRest, maxForkRest)
	e.head, e.announced.newest = 0, follow.Header{} // of a wrong chain
	e.announced.ignored = time.Now().Add(d)
	return d
}

// strikes counts the recent offences of an endpoint of one kind.
type strikes struct {
	n  int
	at time.Time
}

// add counts one more, and returns its penalty: first, doubled each time, and at most `most`. Without one for
// `forgotten`, the count begins again.
func (s *strikes) add(now time.Time, forgotten, first, most time.Duration) time.Duration {
	if now.Sub(s.at) > forgotten {
		s.n = 0
	}
	d := min(first<<min(s.n, 16), most)
	s.n, s.at = s.n+1, now
	return d
}
