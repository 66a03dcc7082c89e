package rpc

import (
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

// against returns the header that contradicts the endpoints' block of a height, or of the height below.
func (t *told) against(most *follow.Header) common.Hash {
	for i := range t.all {
		s := &t.all[i]
		if time.Since(s.at) < toldFor && (s.number == most.Number && s.hash != most.Hash || s.number == most.Number+1 && s.parent != most.Hash) {
			return s.hash
		}
	}
	return common.Hash{}
}

// drop forgets a header, which counts once.
func (t *told) drop(hash common.Hash) {
	for i := range t.all {
		if t.all[i].hash == hash {
			t.all[i] = sight{}
		}
	}
}

// contradicted counts the endpoints that told of a block that lost a vote, or of one that follows from it. What as many told
// as now have another one, a reorg has replaced.
func (c *Client) contradicted(most follow.Header, n int, sure bool) {
	by := map[common.Hash][]*endpoint{}
	for _, e := range c.endpoints {
		e.mu.Lock()
		for hash := e.told.against(&most); hash != (common.Hash{}); hash = e.told.against(&most) {
			by[hash] = append(by[hash], e)
			e.told.drop(hash)
		}
		e.mu.Unlock()
	}
	for hash, all := range by {
		if len(all) >= max(n, 2) {
			continue
		}
		for _, e := range all {
			e.lost(sure, lied(lieFork, "it told of block %s, but %d endpoints have block %d %s", hash, n, most.Number, most.Hash))
		}
	}
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
	return e.losses >= lostOften
}

// forked is the rest of a liar. The caller holds mu.
func (e *endpoint) forked() time.Duration {
	if time.Since(e.forkedAt) > forkMemory {
		e.forks = 0
	}
	d := min(forkRest<<min(e.forks, 16), maxForkRest)
	e.forks, e.forkedAt = e.forks+1, time.Now()
	e.head = 0 // of a chain that is not the endpoints'
	return d
}
