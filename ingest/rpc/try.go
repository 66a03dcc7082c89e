package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// choice is who should be asked, if there is a choice.
type choice struct {
	avoid    *endpoint // not this one
	receipts bool      // one that answers eth_getBlockReceipts
	block    uint64    // one that is known to have this block
	turn     turn      // the one whose turn it is
}

// turn is what endpoints are asked for one after the other, whoever was not asked for the longest time.
type turn uint8

const (
	noTurn turn = iota
	turnHead
	turnFinal
	turnSafe

	turns
)

func (w choice) fits(e *endpoint) bool {
	return e != w.avoid && (!w.receipts || !e.noReceipts.Load())
}

// order is an endpoint's place: lower is asked before. Who is behind comes after who is not.
func (w choice) order(c *Client, e *endpoint, score float64, now time.Time) float64 {
	const last = 1e18 // more than any score
	e.mu.Lock()
	head, behind, asked := e.head, e.behind, e.turns[w.turn]
	e.mu.Unlock()
	switch {
	case w.turn != noTurn:
		age := now.Sub(asked)
		if behind {
			age -= staleAgain
		}
		return -float64(age)
	case head < w.block && w.block <= c.top(nil):
		return score + last
	}
	return score
}

// top is the highest head that any endpoint but one is known to have.
func (c *Client) top(but *endpoint) (top uint64) {
	for _, e := range c.endpoints {
		if e == but {
			continue
		}
		e.mu.Lock()
		top = max(top, e.head)
		e.mu.Unlock()
	}
	return top
}

// try runs op on the best endpoint, and on others until one does well. It goes on until ctx ends, but for
// what no endpoint can answer: when each was asked twice and every time the block was unknown, or the
// answers did not fit together, it is ErrGone; ErrNoState and ErrNoProof likewise. Who is not wanted is asked only if there is no
// other.
func (c *Client) try(ctx context.Context, want choice, op func(context.Context, *endpoint) error) error {
	var (
		last    error
		state   int
		useless int
		enough  = 2 * len(c.endpoints)
		asked   = make(map[*endpoint]int, len(c.endpoints))
	)
	for {
		e, err := c.pick(ctx, want, asked)
		if err != nil {
			return errors.Join(err, last)
		}
		if err = op(ctx, e); err == nil {
			e.well()
			if want.block > 0 {
				e.has(want.block)
			}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		asked[e]++
		e.failed(err)
		last = fmt.Errorf("%s: %w", e.name, e.redact(err))
		switch classify(err) {
		case classState:
			if state++; state >= enough {
				return fmt.Errorf("%w: %w", ErrNoState, last)
			}
		case classMethod:
			if state++; want.receipts && state >= enough {
				return fmt.Errorf("%w: %w", ErrNoProof, last)
			}
		case classGone, classLie, classRange:
			if useless++; useless >= enough {
				return fmt.Errorf("%w: %w", ErrGone, last)
			}
		default:
		}
	}
}

// pick chooses the endpoint to ask: awake, asked least often for this, with the best score. When all of
// them rest it waits for the first to wake.
func (c *Client) pick(ctx context.Context, want choice, asked map[*endpoint]int) (*endpoint, error) {
	for {
		var (
			best      *endpoint
			bestScore float64
			soonest   = time.Duration(-1)
			now       = time.Now()
		)
		for _, e := range c.endpoints {
			if len(c.endpoints) > 1 && asked[e] == 0 && len(asked) < len(c.endpoints)-1 && !want.fits(e) {
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
		if best != nil {
			if want.turn != noTurn {
				best.mu.Lock()
				best.turns[want.turn] = now
				best.mu.Unlock()
			}
			return best, nil
		}
		t := time.NewTimer(max(soonest, time.Millisecond))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		}
	}
}
