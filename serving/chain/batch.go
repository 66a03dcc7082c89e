package chain

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/rpc"
)

// Request is a JSON-RPC call. After the batch Err is nil, *RevertError, *NodeError or ErrUnsupported.
type Request struct {
	Method string
	Params []any
	Result any // pointer to decode the result into
	Err    error
}

type countKey struct{}

// Counting returns a context that counts the requests to endpoints, including retries.
func Counting(ctx context.Context) (context.Context, *atomic.Int64) {
	n := new(atomic.Int64)
	return context.WithValue(ctx, countKey{}, n), n
}

type apartKey struct{}

// Apart is a context under which each batch is asked of another endpoint than the one before it, where there is one that
// can be asked: so that what one said another may contradict.
func Apart(ctx context.Context) context.Context {
	return context.WithValue(ctx, apartKey{}, new(atomic.Pointer[endpoint]))
}

// Beside is a context whose first batch is asked of another endpoint than the last one under ctx, whatever is asked under
// ctx meanwhile.
func Beside(ctx context.Context) context.Context {
	before := new(atomic.Pointer[endpoint])
	if last, ok := ctx.Value(apartKey{}).(*atomic.Pointer[endpoint]); ok {
		before.Store(last.Load())
	}
	return context.WithValue(ctx, apartKey{}, before)
}

type againKey struct{}

// Again is a context whose first batch is asked of the same endpoint as the last one under ctx, where that can be asked.
func Again(ctx context.Context) context.Context {
	if last, ok := ctx.Value(apartKey{}).(*atomic.Pointer[endpoint]); ok {
		ctx = context.WithValue(ctx, againKey{}, last.Load())
	}
	return Apart(ctx)
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

// ask tries endpoints one after the other until one responds.
func (c *Client) ask(ctx context.Context, requests []*Request) error {
	var last error
	before, _ := ctx.Value(apartKey{}).(*atomic.Pointer[endpoint])
	if before == nil {
		before = new(atomic.Pointer[endpoint])
	}
	again, _ := ctx.Value(againKey{}).(*endpoint)
	endpoints := c.order(requests, before.Load(), again)
	for attempt := range c.cfg.Attempts {
		if attempt > 0 && attempt%len(endpoints) == 0 {
			if err := pause(ctx, 20*time.Millisecond<<(attempt/len(endpoints))); err != nil {
				return err
			}
		}
		e := endpoints[attempt%len(endpoints)]
		err := c.askOne(ctx, e, requests)
		if err == nil {
			before.Store(e)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		last = worse(last, err)
	}
	return last
}

// askOne sends the requests to one endpoint and classifies its errors.
func (c *Client) askOne(ctx context.Context, e *endpoint, requests []*Request) error {
	if n, ok := ctx.Value(countKey{}).(*atomic.Int64); ok {
		n.Add(1)
	}
	calls := make([]rpc.BatchElem, len(requests))
	for i, r := range requests {
		calls[i] = rpc.BatchElem{Method: r.Method, Args: r.Params, Result: r.Result}
	}
	if err := e.send(ctx, calls); err != nil {
		e.failed(err)
		if _, ok := errors.AsType[*ChainError](err); ok {
			return err
		}
		if said, ok := errors.AsType[rpc.Error](err); ok { // from the chain ID check, or for the whole batch
			_, ours := answered(said)
			return fmt.Errorf("%w: %w", ErrUnavailable, ours)
		}
		return fmt.Errorf("%w: %w", ErrUnavailable, redacted(err))
	}
	for i, r := range requests {
		r.Err = nil
		said, ok := errors.AsType[rpc.Error](calls[i].Error)
		if !ok {
			continue
		}
		retry, ours := answered(said)
		switch {
		case errors.Is(ours, ErrUnsupported):
			e.hasNot(r.Method)
			if slices.ContainsFunc(c.endpoints, func(other *endpoint) bool { return other.has(r.Method) }) {
				return ours
			}
			r.Err = ours
		case retry:
			return ours
		default:
			r.Err = ours
		}
	}
	return nil
}

// order is the endpoints as they should be asked: those that have the methods first, then those that do not rest, then
// the one to be asked again, and those of another node than the one before, then as configured.
func (c *Client) order(requests []*Request, before, again *endpoint) []*endpoint {
	now := time.Now()
	rank := func(e *endpoint) (n int) {
		if slices.ContainsFunc(requests, func(r *Request) bool { return !e.has(r.Method) }) {
			n += 4
		}
		if e.resting(now) {
			n += 2
		}
		if before != nil && e.host == before.host || before == nil && again != nil && e != again {
			n++
		}
		return n
	}
	ordered := slices.Clone(c.endpoints)
	slices.SortStableFunc(ordered, func(a, b *endpoint) int { return rank(a) - rank(b) })
	return ordered
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

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
