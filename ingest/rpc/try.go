package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// try runs op on the best endpoint, and on others until one does well. It goes on until ctx ends, but for
// what no endpoint can answer: when each was asked twice and every time the block was unknown, or the
// answers did not fit together, it is ErrGone; ErrNoState likewise. avoid is asked only if there is no
// other.
func (c *Client) try(ctx context.Context, avoid *endpoint, op func(context.Context, *endpoint) error) error {
	var (
		last    error
		state   int
		useless int
		enough  = 2 * len(c.endpoints)
		asked   = make(map[*endpoint]int, len(c.endpoints))
	)
	for {
		e, err := c.pick(ctx, avoid, asked)
		if err != nil {
			return errors.Join(err, last)
		}
		if err = op(ctx, e); err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		asked[e]++
		if classify(err) == classTag {
			return err
		}
		e.failed(err)
		last = fmt.Errorf("%s: %w", e.name, e.redact(err))
		switch classify(err) {
		case classState:
			if state++; state >= enough {
				return fmt.Errorf("%w: %w", ErrNoState, last)
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
func (c *Client) pick(ctx context.Context, avoid *endpoint, asked map[*endpoint]int) (*endpoint, error) {
	for {
		var (
			best      *endpoint
			bestScore float64
			soonest   = time.Duration(-1)
			now       = time.Now()
		)
		for _, e := range c.endpoints {
			if e == avoid && len(c.endpoints) > 1 && asked[e] == 0 && len(asked) < len(c.endpoints)-1 {
				continue
			}
			rest, score := e.score(now)
			if rest > 0 {
				if soonest < 0 || rest < soonest {
					soonest = rest
				}
				continue
			}
			if best == nil || asked[e] < asked[best] || asked[e] == asked[best] && score < bestScore {
				best, bestScore = e, score
			}
		}
		if best != nil {
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
