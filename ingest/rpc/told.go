package rpc

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/ingest/follow"
)

// told are the headers that an endpoint served last: heads, and the ends of batches, where what does not fit shows. A vote
// says who told what is not the endpoints', also of an endpoint that votes with them.
type told struct {
	all  [512]sight
	next int
}

// sight is one header.
type sight struct {
	number       uint64
	hash, parent common.Hash
	at           time.Time
}

// toldFor is how long a header counts against who told it: the chain may have changed since.
const toldFor = time.Minute

// tells records headers that the endpoint served.
func (e *endpoint) tells(headers ...follow.Header) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range headers {
		h := &headers[i]
		e.told.all[e.told.next] = sight{h.Number, h.Hash, h.Parent, time.Now()}
		e.told.next = (e.told.next + 1) % len(e.told.all)
	}
}

// against returns the blocks told of that contradict the endpoints' block of a height, and forgets them: each counts once.
func (t *told) against(most *follow.Header) (hashes []common.Hash) {
	for i := range t.all {
		s := &t.all[i]
		if s.number == most.Number && s.hash != most.Hash || s.number == most.Number+1 && s.parent != most.Hash {
			if time.Since(s.at) < toldFor && !slices.Contains(hashes, s.hash) {
				hashes = append(hashes, s.hash)
			}
			*s = sight{}
		}
	}
	return hashes
}

// maxReorged is how many blocks of a height an endpoint may tell of before they are no more looked for with others.
const maxReorged = 3

// contradicted counts the endpoints that told of a block that lost a vote, or of one that follows from it. A block that a reorg
// has replaced, or will, is known by more: as many told of it as now have another one, or one of these has it still, by hash.
func (c *Client) contradicted(ctx context.Context, b *ballot, most follow.Header, sure bool) {
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
	have := b.have[most.Hash]
	for hash, by := range b.have {
		if hash == most.Hash {
			continue
		}
		err := lied(lieFork, "block %d is %s, but %d endpoints have %s", most.Number, hash, len(have), most.Hash)
		reorg := !sure && c.knows(ctx, hash, have)
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
		if len(by) >= max(len(have), 2) || !liar && c.knows(ctx, hash, others) {
			continue
		}
		for _, e := range by {
			e.lost(false, lied(lieFork, "it told of block %s, but %d endpoints have block %d %s", hash, len(have), most.Number, most.Hash))
		}
	}
}

// knows reports whether one of the endpoints has a block by its hash, which need not be on its chain any more.
func (c *Client) knows(ctx context.Context, hash common.Hash, of []*endpoint) bool {
	asking, cancel := context.WithTimeout(context.WithValue(ctx, voting{}, true), c.patience())
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

const (
	reorgRest = 250 * time.Millisecond // after a vote on what is not final, lost by who perhaps saw a reorg first or last
	lostOften = 3                      // such votes make a liar, with no more than
	lostPause = 10 * time.Second       // between them, and no less than
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
	if time.Since(e.forkedAt) > forkMemory {
		e.forks = 0
	}
	d := min(forkRest<<min(e.forks, 16), maxForkRest)
	e.forks, e.forkedAt = e.forks+1, time.Now()
	e.head, e.announced.newest = 0, follow.Header{} // of a chain that is not the endpoints'
	e.announced.ignored = time.Now().Add(d)
	return d
}
