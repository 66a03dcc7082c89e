package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/rpc"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lienstream/lienstream/topics/pause"
)

// Request is a JSON-RPC call. After the batch Err is nil, *RevertError, *NodeError or ErrUnsupported.
type Request struct {
	Method string
	Params []any
	Result any // pointer to decode the result into
	Err    error

	nullRefuses bool // a result of null means that this node lacks it, and another may have it
	sends       bool // it is a transaction of a sender
}

type countKey struct{}

// Counting returns a context that counts the requests to endpoints, including retries.
func Counting(ctx context.Context) (context.Context, *atomic.Int64) {
	n := new(atomic.Int64)
	return context.WithValue(ctx, countKey{}, n), n
}

// Counted wraps a handler so that each answer observes the number of its requests to endpoints.
func Counted[In, Out any](asked prometheus.Observer, handle func(context.Context, In, Out) error) func(context.Context, In, Out) error {
	return func(ctx context.Context, in In, out Out) error {
		ctx, requests := Counting(ctx)
		err := handle(ctx, in, out)
		asked.Observe(float64(requests.Load()))
		return err
	}
}

// Batch sends the requests to one endpoint, in one round trip if Config.MaxBatch allows. On an error no result
// may be used: ErrUnavailable, ErrBlockGone, *ChainError or that of ctx.
func (c *Client) Batch(ctx context.Context, requests ...*Request) error {
	var err error
	for chunk := range slices.Chunk(requests, c.cfg.MaxBatch) {
		if err = c.ask(ctx, chunk); err != nil {
			break
		}
	}
	for _, r := range requests {
		o := outcome(r.Err)
		if err != nil {
			o = outcome(err)
		}
		c.metrics.calls.WithLabelValues(r.Method, o).Inc()
	}
	return err
}

// ask tries endpoints one after the other until one responds. One that refuses counts as one that does not respond, but
// its refusal is the result if no other responds.
func (c *Client) ask(ctx context.Context, requests []*Request) error {
	var last error
	var refusal *response
	before, _ := ctx.Value(lastAnswerKey{}).(*atomic.Pointer[endpoint])
	if before == nil {
		before = new(atomic.Pointer[endpoint])
	}
	endpoints, attempts := c.order(ctx, requests, before.Load()), c.cfg.Attempts
	if allowed(ctx) != nil {
		attempts = min(attempts, len(endpoints))
	}
	if len(endpoints) == 0 {
		return fmt.Errorf("%w among the endpoints that this read may use", ErrUnavailable)
	}
	for attempt := range attempts {
		e := endpoints[attempt%len(endpoints)]
		if (refusal != nil || errors.Is(last, ErrUnsupported)) && attempt >= len(endpoints) {
			continue // it has refused this already
		}
		if attempt > 0 && attempt%len(endpoints) == 0 {
			if err := pause.For(ctx, jittered(20*time.Millisecond<<(attempt/len(endpoints)))); err != nil {
				return err
			}
		}
		said, err := c.askOnce(ctx, e, &e.calls, requests)
		refused := err == nil && said.refused
		if err == nil && !refused {
			if err = said.take(requests); err == nil {
				before.Store(e)
				noteAnswer(ctx, e)
				return nil
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if refused {
			refusal = said
		}
		last = worse(last, err)
	}
	if refusal != nil {
		before.Store(refusal.from)
		noteAnswer(ctx, refusal.from)
		return refusal.take(requests)
	}
	return last
}

// response is what an endpoint answered to requests.
type response struct {
	from    *endpoint
	of      *series
	calls   []rpc.BatchElem // with results that are not decoded yet
	errs    []error         // nil, *RevertError, *NodeError or ErrUnsupported
	refused bool            // for a reason that another endpoint may not have
}

// take decodes a response into the results and errors of the requests.
func (r *response) take(requests []*Request) error {
	for i, request := range requests {
		if request.Err = r.errs[i]; request.Err != nil {
			continue
		}
		if err := json.Unmarshal(*r.calls[i].Result.(*json.RawMessage), request.Result); err != nil {
			err = fmt.Errorf("%s: %w", request.Method, err)
			r.from.failed(r.of, err, 0)
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	r.from.succeeded(r.of)
	return nil
}

// poll sends the requests to one endpoint. A refusal is a result.
func (c *Client) poll(ctx context.Context, e *endpoint, requests []*Request) error {
	said, err := c.askOnce(ctx, e, &e.polls, requests)
	if err != nil {
		return err
	}
	return said.take(requests)
}

// askOnce sends the requests to one endpoint and classifies its errors.
func (c *Client) askOnce(ctx context.Context, e *endpoint, of *series, requests []*Request) (*response, error) {
	if n, ok := ctx.Value(countKey{}).(*atomic.Int64); ok {
		n.Add(1)
	}
	calls := make([]rpc.BatchElem, len(requests))
	for i, r := range requests {
		calls[i] = rpc.BatchElem{Method: r.Method, Args: r.Params, Result: new(json.RawMessage)}
	}
	if err := c.deliver(ctx, e, of, calls); err != nil {
		return nil, err
	}
	all := &response{from: e, of: of, calls: calls, errs: make([]error, len(calls))}
	for i, r := range requests {
		said, ok := errors.AsType[rpc.Error](calls[i].Error)
		if !ok {
			if r.nullRefuses && string(*calls[i].Result.(*json.RawMessage)) == "null" {
				all.refused = true
			}
			continue
		}
		retry, ours := r.answered(said)
		_, refused := errors.AsType[*NodeError](ours)
		switch {
		case errors.Is(ours, ErrUnsupported):
			now := time.Now()
			e.noteLack(r.Method, now)
			if slices.ContainsFunc(c.endpoints, func(other *endpoint) bool { return other.has(r.Method, now) }) {
				return nil, ours
			}
		case errors.Is(ours, errThrottled):
			e.throttled(of)
			return nil, ours
		case refused:
			all.refused = all.refused || retry
		case retry:
			return nil, ours
		}
		all.errs[i] = ours
	}
	return all, nil
}

// deliver sends one request, once fewer than Config.Parallel are under way. Polls do not wait, or slow calls would stop
// the head.
func (c *Client) deliver(ctx context.Context, e *endpoint, of *series, calls []rpc.BatchElem) error {
	timeout := c.cfg.PollTimeout
	if of != &e.polls {
		timeout = c.cfg.Timeout
		if err := c.slots.Acquire(ctx, 1); err != nil {
			return fmt.Errorf("%w: wait for other requests: %w", ErrUnavailable, err)
		}
		defer c.slots.Release(1)
	}
	started := time.Now()
	err := e.send(ctx, calls, timeout)
	if err == nil {
		if of != &e.polls && time.Since(started) > timeout/slowShare {
			e.noteSlow(time.Now())
		}
		return nil
	}
	if took := time.Since(started); ctx.Err() == nil || took > timeout/2 { // otherwise other requests have used up the caller's time
		e.failed(of, err, took)
	}
	if _, ok := errors.AsType[*ChainError](err); ok {
		return err
	}
	if said, ok := errors.AsType[rpc.Error](err); ok { // from the chain ID check, or for the whole batch
		_, ours := answered(said)
		return fmt.Errorf("%w: %w", ErrUnavailable, ours)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, redacted(err))
}

// order sorts the endpoints by:
//
//  1. not paused after a failure
//  2. the turn of the round (turn)
//  3. how far they are believed (doubt)
//  4. that they have the methods. This comes after doubt, or a doubted node that has a method would answer twice.
//  5. the order of the configuration
//
// It leaves out endpoints that are outvoted or not allowed and, where two nodes must answer, those of the node before.
func (c *Client) order(ctx context.Context, requests []*Request, before *endpoint) []*endpoint {
	now := time.Now()
	ordered := slices.DeleteFunc(slices.Clone(c.endpoints), func(e *endpoint) bool { return e.vote() == outvoted })
	if len(ordered) == 0 {
		ordered = slices.Clone(c.endpoints)
	}
	ordered = slices.DeleteFunc(ordered, allowed(ctx).excludes)
	if before != nil && c.Quorum() > 1 {
		ordered = slices.DeleteFunc(ordered, func(e *endpoint) bool { return e.host == before.host })
	}
	first := func(last func(*endpoint) bool) {
		slices.SortStableFunc(ordered, func(a, b *endpoint) int { return number(last(a)) - number(last(b)) })
	}
	first(func(e *endpoint) bool { return lacks(ctx, e, requests) })
	slices.SortStableFunc(ordered, func(a, b *endpoint) int { return a.doubt() - b.doubt() })
	c.turn(ctx, ordered)
	first(func(e *endpoint) bool { return e.resting(&e.calls, now) })
	return ordered
}

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

// worse returns the more specific error: block gone, then wrong chain, then the rest.
func worse(a, b error) error {
	weight := func(err error) int {
		_, chain := errors.AsType[*ChainError](err)
		switch {
		case err == nil:
			return 0
		case errors.Is(err, ErrBlockGone):
			return 4
		case errors.Is(err, ErrUnsupported):
			return 1
		case chain:
			return 3
		}
		return 2
	}
	if weight(b) > weight(a) {
		return b
	}
	return a
}

// jittered is a random time around d.
func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d) }
