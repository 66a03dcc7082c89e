package rpc

import (
	"context"
	"slices"
	"time"

	"github.com/lienstream/lienstream/topics/pause"
)

// choice is a preference for endpoints.
type choice struct {
	avoid    *endpoint   // prefer any other
	not      []*endpoint // only others: errNobodyElse if they fail
	receipts bool        // prefer one that returns all receipts of a block at once
	logs     bool        // only those that support eth_getLogs; errNoLogs if there is none, or all fail twice or are paused for long
	block    uint64      // prefer one that is known to have this block
	turn     turn        // prefer the one whose turn it is

	cannot []*endpoint // these answered that they cannot: they are not asked again
	until  time.Time   // until then the others are waited for
}

// allows reports whether an endpoint may be chosen.
func (w choice) allows(e *endpoint) bool {
	return !slices.Contains(w.not, e) && !slices.Contains(w.cannot, e)
}

// turn is a kind of request that goes to each endpoint in turn.
type turn uint8

const (
	noTurn turn = iota // any other request
	turnHead

	turns
)

func (w choice) fits(e *endpoint, now time.Time) bool {
	if e == w.avoid || w.receipts && e.noReceipts.Load() {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return !w.receipts || !now.Before(e.parts)
}

// order is an endpoint's rank: the lowest is used first. Endpoints that are behind come last.
func (w choice) order(c *Client, e *endpoint, score float64, now time.Time) float64 {
	const last = 1e18 // greater than any score
	e.mu.Lock()
	head, behind, asked, slow := e.head, e.behind, e.turns[w.turn], now.Before(e.slowUntil[w.turn])
	e.mu.Unlock()
	switch {
	case w.turn != noTurn:
		age := now.Sub(asked)
		if behind || slow {
			age -= staleAgain
		}
		return -float64(age)
	case slow:
		return score + last
	case head < w.block && w.block <= c.top(nil):
		return score + last
	}
	return score
}

// owner waits for an endpoint that is known to have a block. nil: there is none besides those in lack, or it is paused
// for longer.
func (c *Client) owner(ctx context.Context, block uint64, lack []*endpoint, until time.Time) *endpoint {
	for _, e := range c.endpoints {
		e.mu.Lock()
		has := block > 0 && e.head >= block
		e.mu.Unlock()
		if !has || slices.Contains(lack, e) {
			continue
		}
		if rest, _ := e.score(time.Now()); time.Now().Add(rest).Before(until) && pause.For(ctx, rest) == nil {
			return e
		}
	}
	return nil
}

// noLogs reports whether an endpoint does not support eth_getLogs, and all others lack it too or were tried twice. Some
// are left out.
func (c *Client) noLogs(asked map[*endpoint]int, but []*endpoint) (one bool) {
	for _, e := range c.endpoints {
		if slices.Contains(but, e) {
			continue
		}
		if e.lacksLogs() {
			one = true
		} else if asked[e] < 2 {
			return false
		}
	}
	return one
}

// askedAll reports whether all endpoints but some were tried twice.
func (c *Client) askedAll(asked map[*endpoint]int, but []*endpoint) bool {
	for _, e := range c.endpoints {
		if !slices.Contains(but, e) && asked[e] < 2 {
			return false
		}
	}
	return true
}

// prefers reports whether an endpoint within the preference was not asked yet. If not, any endpoint may be used.
func (c *Client) prefers(want choice, asked map[*endpoint]int, now time.Time) bool {
	return slices.ContainsFunc(c.endpoints, func(e *endpoint) bool {
		return want.allows(e) && asked[e] == 0 && (!want.logs || !e.lacksLogs()) && want.fits(e, now)
	})
}

// pick chooses an endpoint. If all are paused it waits for the first.
func (c *Client) pick(ctx context.Context, want choice, asked map[*endpoint]int) (*endpoint, error) {
	for {
		now := time.Now()
		best, soonest, noLogs := c.choose(want, asked, now)
		if best != nil {
			return best, nil
		}
		switch none, long := soonest < 0, soonest > shortRest; {
		case noLogs && (none || long && c.cfg.Proof != ProofOff): // with ProofOff there is no other source
			return nil, errNoLogs
		case want.not != nil && (none || long), len(want.cannot) > 0 && (none || now.Add(soonest).After(want.until)):
			return nil, errNobodyElse
		}
		if err := pause.For(ctx, max(soonest, time.Millisecond)); err != nil {
			return nil, err
		}
	}
}

// choose returns the endpoint that is available, used least often for this, and has the best score, with one more
// request to its load: requests that are sent at once choose one after the other, or all would choose the same.
// Endpoints without eth_getLogs are left out where logs are wanted: they fail at once, and would be chosen again and
// again while the others are paused. nil: all are paused, the first of them for soonest; negative: none may be chosen.
func (c *Client) choose(want choice, asked map[*endpoint]int, now time.Time) (best *endpoint, soonest time.Duration, noLogs bool) {
	c.choosing.Lock()
	defer c.choosing.Unlock()
	soonest = -1
	var bestScore float64
	prefers := c.prefers(want, asked, now)
	for _, e := range c.endpoints {
		if !want.allows(e) {
			continue
		}
		if want.logs && e.lacksLogs() {
			noLogs = true
			continue
		}
		if prefers && !want.fits(e, now) {
			continue
		}
		rest, score := e.score(now)
		if rest > 0 {
			if soonest < 0 || rest < soonest {
				soonest = rest
			}
			continue
		}
		if score = want.order(c, e, score, now); best == nil || asked[e] < asked[best] || asked[e] == asked[best] && score < bestScore {
			best, bestScore = e, score
		}
	}
	if best == nil {
		return nil, soonest, noLogs
	}
	best.mu.Lock()
	defer best.mu.Unlock()
	best.inflight++
	if want.turn != noTurn {
		best.turns[want.turn] = now
	}
	return best, 0, noLogs
}
