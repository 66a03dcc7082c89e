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

// Opinion is the result of a call according to one endpoint.
type Opinion struct {
	By int // the endpoint's place in the configuration
	CallResult
}

// Opinions returns the result of one call as of a block from each endpoint that answers, asked as Call does, for uses
// that need no agreement.
func (c *Client) Opinions(ctx context.Context, block common.Hash, one Call) (all []Opinion, err error) {
	said, err := c.opinions(ctx, block, []Call{one})
	for i, e := range c.endpoints {
		for _, answer := range said[e] {
			all = append(all, Opinion{By: i, CallResult: answer})
		}
	}
	return all, err
}

// An endpoint that does not answer a call is waited for, so that no other is believed alone because this one is late:
// its first response may take opinionWait, each retry twice as long, up to opinionPatience in all. An endpoint that
// lacks the block is waited for as long as a block takes to spread. After a failure to answer, it is waited for
// opinionWait only, so that it does not delay every block with a call, and after each answer by that much more.
const (
	opinionWait     = time.Second
	opinionPatience = 7 * time.Second
)

// opinions returns the results of calls as of a block from all endpoints that answer. nil: the endpoint lacks the
// state.
func (c *Client) opinions(ctx context.Context, block common.Hash, calls []Call) (map[*endpoint][]CallResult, error) {
	ask := func(ctx context.Context, e *endpoint) ([]CallResult, error) { return e.call(ctx, block, calls) }
	first, by, err := hedged(ctx, c, choice{}, ask)
	if err != nil {
		return nil, fmt.Errorf("call at block %s: %w", block, err)
	}
	var g sync.WaitGroup
	var mu sync.Mutex
	by.answeredCall()
	said := map[*endpoint][]CallResult{by: first}
	for _, e := range c.endpoints {
		if e == by || e.lacksCalls() {
			continue
		}
		g.Go(func() {
			answers, answered := e.opinion(ctx, ask)
			mu.Lock()
			defer mu.Unlock()
			if answered {
				said[e] = answers
			}
		})
	}
	g.Wait()
	return said, ctx.Err()
}

// opinion returns the results of one endpoint. answers is nil if it lacks the state; answered is false if it does not
// answer.
func (e *endpoint) opinion(ctx context.Context, ask func(context.Context, *endpoint) ([]CallResult, error)) (answers []CallResult, answered bool) {
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
			e.answeredCall()
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
				e.client.log.Warn("endpoint does not answer eth_call, the others decide without it", zap.String("endpoint", e.name), zap.Error(e.redact(err)))
			}
			return nil, false
		}
		if pause.For(ctx, rest) != nil {
			return nil, false
		}
	}
	return nil, false
}

// answeredCall records an answer to a call.
func (e *endpoint) answeredCall() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.patience = min(e.patience+opinionWait, opinionPatience)
}
