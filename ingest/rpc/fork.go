package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/ingest/follow"
)

// That headers hash and link shows that they belong together, and not that anybody else has them: an endpoint may make up
// a chain, with logs or without. Which chain is the endpoints' is put to the vote.
//
// Invariants, where several endpoints are configured:
//
//  1. A block becomes final, or is the topic's first, only if more endpoints have it than have another one, and at least
//     two of them: one alone only if all others are silent. An endpoint is silent if in all votes of Config.Silence it
//     neither had the block nor a higher head than before; one that does not answer, refuses, stands still, or says itself
//     that it is syncing: nobody else can say so of it. Two that answer without the block are not silent, and who asked for
//     fewer requests is after twice that time.
//  2. A known block is replaced only by one that more endpoints have, and by one endpoint's only if the others say that
//     they have none, or did not answer for a while.
//     Who has the one that fewer have, or has told of it or of what follows from it while it votes with the others, is
//     counted as a liar and rests, longer each time. Where the block is not final, it may have seen a reorg first or last:
//     it rests shortly, and is counted if it goes on for seconds.
//  3. Everybody has a vote, also who rests; only who asked for fewer requests is left alone. A response that does not fit
//     another endpoint's headers costs no more than the shortest rest.
//  4. Where as many have one block as another, nobody can know: nothing is decided until they agree again.
//
// A vote costs an endpoint one header, or two where it lacks the block, and waits for no other request to it. Below
// finality that is one vote for each advance, and above one for each head that contradicts; blocks at the tip come in
// without any, and are reverted if they lose.

// ErrSplit: it is not known which block is the endpoints'. Try again later.
var ErrSplit = errors.New("the endpoints do not agree on a block")

// voteWait is how long an endpoint may take for its vote.
const voteWait = 5 * time.Second

// hasty is the part of Config.Silence after which one endpoint alone replaces what is not final.
const hasty = 20

// ballot is a vote in progress.
type ballot struct {
	mu      sync.Mutex
	headers map[common.Hash]follow.Header
	have    map[common.Hash][]*endpoint
	lack    []*endpoint
}

// Vote asks all endpoints for a block, and returns the one that most of them have. sure: one endpoint's word is enough
// only if all others are silent. It returns ErrSplit if none is that block, and ErrGone if nobody has one.
func (c *Client) Vote(ctx context.Context, number uint64, sure bool) (follow.Header, error) {
	began := time.Now()
	asking, cancel := context.WithTimeout(context.WithValue(ctx, voting{}, true), voteWait)
	defer cancel()
	b := ballot{headers: map[common.Hash]follow.Header{}, have: map[common.Hash][]*endpoint{}}
	var g sync.WaitGroup
	for _, e := range c.endpoints {
		if e.throttled() {
			e.missed(began)
			continue
		}
		g.Go(func() {
			h, err := e.vote(asking, number)
			b.mu.Lock()
			defer b.mu.Unlock()
			switch {
			case err == nil:
				b.headers[h.Hash] = h
				b.have[h.Hash] = append(b.have[h.Hash], e)
				if 2*len(b.have[h.Hash]) > len(c.endpoints) {
					cancel() // whatever the others say
				}
			case errors.Is(err, errNoBlock):
				b.lack = append(b.lack, e)
			default:
				if !errors.Is(asking.Err(), context.Canceled) {
					e.missed(began)
				}
				if asking.Err() == nil {
					e.failed(err)
				}
			}
		})
	}
	g.Wait()
	if ctx.Err() != nil {
		return follow.Header{}, ctx.Err()
	}
	return c.counted(&b, number, sure)
}

// counted is the outcome of a vote.
func (c *Client) counted(b *ballot, number uint64, sure bool) (follow.Header, error) {
	if len(b.have) == 0 {
		return follow.Header{}, fmt.Errorf("vote on block %d: %w", number, ErrGone)
	}
	order := slices.SortedFunc(maps.Keys(b.have), func(x, y common.Hash) int { return cmp.Compare(len(b.have[y]), len(b.have[x])) })
	most := order[0]
	n, next := len(b.have[most]), 0
	if len(order) > 1 {
		next = len(b.have[order[1]])
	}
	switch {
	case n == next:
		for _, by := range b.have {
			for _, e := range by {
				c.metrics.lies.WithLabelValues(e.name, "disagreement").Inc()
			}
		}
		return follow.Header{}, fmt.Errorf("block %d: %w: %s", number, ErrSplit, b)
	case sure && n < 2 && (next > 0 || len(b.lack) > 1 || !c.silent(b.have[most][0])):
		return follow.Header{}, fmt.Errorf("block %d: %w: %s, and the others are not yet silent for %s", number, ErrSplit, b, c.cfg.Silence)
	case n < 2 && !c.quiet(c.cfg.Silence/hasty, append(b.lack, b.have[most]...)...):
		return follow.Header{}, fmt.Errorf("block %d: %w: %s, and the others do not answer", number, ErrSplit, b)
	}
	for _, hash := range order[1:] {
		for _, e := range b.have[hash] {
			e.lost(sure, lied(lieFork, "block %d is %s, but %d endpoints have %s", number, hash, n, most))
		}
	}
	c.contradicted(b.headers[most], n, sure)
	return b.headers[most], nil
}

// String says who has which block.
func (b *ballot) String() string {
	var all []string
	names := func(by []*endpoint) string {
		var s []string
		for _, e := range by {
			s = append(s, e.name)
		}
		slices.Sort(s)
		return strings.Join(s, ", ")
	}
	for hash, by := range b.have {
		all = append(all, fmt.Sprintf("%s: %s", names(by), hash.TerminalString()))
	}
	if len(b.lack) > 0 {
		all = append(all, names(b.lack)+": none")
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// vote fetches a block that is put to the vote. Who lacks it is heard too, while its head rises.
func (e *endpoint) vote(ctx context.Context, number uint64) (follow.Header, error) {
	h, err := e.byNumber(ctx, number)
	switch {
	case err == nil:
		e.hear(number, true)
	case errors.Is(err, errNoBlock):
		e.missed(time.Now())
		if head, failed := e.header(ctx, `"latest"`); failed == nil && head.Number > e.peak() && !e.syncing(ctx) {
			e.hear(head.Number, false)
		}
	}
	return h, err
}

// hear records a block that an endpoint has shown: one put to the vote, or its head, which counts if it is higher than
// any before.
func (e *endpoint) hear(number uint64, voted bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if voted || number > e.highest {
		e.unheard = time.Time{}
	}
	e.highest = max(e.highest, number)
}

// missed records a vote in which the endpoint said nothing new.
func (e *endpoint) missed(since time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.unheard.IsZero() {
		e.unheard = since
	}
}

// peak is the highest block that the endpoint has shown.
func (e *endpoint) peak() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.highest
}

// syncing reports whether the endpoint says of itself that it is syncing.
func (e *endpoint) syncing(ctx context.Context) (is bool) {
	err := e.do(ctx, []call{{method: "eth_syncing", params: []byte("[]"), result: func(s *scanner) error {
		is = s.peek() == '{'
		return s.skip()
	}}})
	return is && err == nil
}

// silent reports whether all endpoints but one are silent.
func (c *Client) silent(but *endpoint) bool { return c.quiet(c.cfg.Silence, but) }

// quiet reports whether all endpoints but some have been silent for so long.
func (c *Client) quiet(limit time.Duration, but ...*endpoint) bool {
	for _, e := range c.endpoints {
		if slices.Contains(but, e) {
			continue
		}
		e.mu.Lock()
		d := limit
		if e.throttle.After(e.unheard) {
			d *= 2
		}
		heard := e.unheard.IsZero() || time.Since(e.unheard) < d
		e.mu.Unlock()
		if heard {
			return false
		}
	}
	return true
}

// voting marks the context of a vote.
type voting struct{}

func isVote(ctx context.Context) bool { return ctx.Value(voting{}) != nil }

// throttled reports whether the endpoint has asked for fewer requests.
func (e *endpoint) throttled() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Now().Before(e.throttle)
}
