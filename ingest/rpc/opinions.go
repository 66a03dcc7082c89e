package rpc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/topics/pause"
)

// Opinions returns what each endpoint that answers says of one call as of a block, as Call asks them: for what nobody need agree on.
func (c *Client) Opinions(ctx context.Context, block common.Hash, one Call) (all []CallResult, err error) {
	said, err := c.opinions(ctx, block, []Call{one})
	for _, answers := range said {
		all = append(all, answers...)
	}
	return all, err
}

// An endpoint that does not answer a call is waited for, so that nobody is believed alone because another one is late: its
// answers may take opinionWait, and each time twice as long, up to opinionPatience in all. Who lacks the block is behind,
// and waited for as long as a block takes to spread. Who said nothing then is waited for no longer than opinionWait, and
// after each answer by as much more: or it would delay every block with a call.
const (
	opinionWait     = time.Second
	opinionPatience = 7 * time.Second
)

// opinions is what endpoints say of calls as of a block: all that have an answer. nil: that they have not the state.
func (c *Client) opinions(ctx context.Context, block common.Hash, calls []Call) (map[*endpoint][]CallResult, error) {
	ask := func(ctx context.Context, e *endpoint) ([]CallResult, error) { return e.call(ctx, block, calls) }
	first, by, err := hedged(ctx, c, choice{}, ask)
	if err != nil {
		return nil, fmt.Errorf("call at block %s: %w", block, err)
	}
	var g sync.WaitGroup
	var mu sync.Mutex
	by.spoke()
	said := map[*endpoint][]CallResult{by: first}
	for _, e := range c.endpoints {
		if e == by || e.lacksCalls() {
			continue
		}
		g.Go(func() {
			answers, says := e.opinion(ctx, ask)
			mu.Lock()
			defer mu.Unlock()
			if says {
				said[e] = answers
			}
		})
	}
	g.Wait()
	return said, ctx.Err()
}

// opinion is what an endpoint says, if anything; nil: that it has not the state.
func (e *endpoint) opinion(ctx context.Context, ask func(context.Context, *endpoint) ([]CallResult, error)) (answers []CallResult, says bool) {
	began := time.Now()
	e.mu.Lock()
	patience := e.patience
	e.mu.Unlock()
	for wait, rest := opinionWait, minRest; e.rested(ctx, shortRest); wait, rest = 2*wait, 2*rest {
		bounded, cancel := context.WithTimeout(ctx, min(wait, patience-time.Since(began)))
		answers, err := ask(bounded, e)
		cancel()
		if err == nil {
			e.well()
			e.spoke()
			return answers, true
		}
		if ctx.Err() != nil {
			return nil, false
		}
		e.failed(err)
		class, lasts := classify(err), time.Since(began)+rest
		switch {
		case class == classState:
			return nil, true
		case class == classMethod || class == classGone && lasts >= opinionWait:
			return nil, false
		case lasts >= patience:
			e.mu.Lock()
			e.patience = opinionWait
			e.mu.Unlock()
			if patience > opinionWait {
				e.client.log.Warn("endpoint does not say what a contract answers, the others decide without it", zap.String("endpoint", e.name), zap.Error(e.redact(err)))
			}
			return nil, false
		}
		if pause.For(ctx, rest) != nil {
			return nil, false
		}
	}
	return nil, false
}

// spoke records an answer to a call.
func (e *endpoint) spoke() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.patience = min(e.patience+opinionWait, opinionPatience)
}
