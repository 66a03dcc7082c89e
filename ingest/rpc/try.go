package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/lienstream/lienstream/topics/pause"
)

// patience is the minimum wait for one endpoint before another one is asked as well.
const patience = 250 * time.Millisecond

// hedged calls op with the best endpoint, and with the next one as well if that is slow. The first success counts, and
// slower endpoints are asked less often. op may run twice at the same time.
func hedged[T any](ctx context.Context, c *Client, want choice, op func(context.Context, *endpoint) (T, error)) (first T, by *endpoint, err error) {
	type result struct {
		value T
		by    *endpoint
		err   error
	}
	var (
		g       sync.WaitGroup
		results = make(chan result, 2)
		mu      sync.Mutex
		asked   = map[*endpoint]bool{} // that have not answered yet
	)
	defer g.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ask := func() {
		var r result
		want := want
		mu.Lock()
		for e := range asked {
			want.avoid = e
		}
		mu.Unlock()
		r.err = c.try(ctx, want, func(ctx context.Context, e *endpoint) error {
			mu.Lock()
			asked[e] = true
			mu.Unlock()
			value, err := op(ctx, e)
			mu.Lock()
			delete(asked, e)
			mu.Unlock()
			r.value, r.by = value, e
			return err
		})
		results <- r
	}
	g.Go(ask)
	running := 1
	hedge := time.NewTimer(c.patience())
	defer hedge.Stop()
	for {
		select {
		case <-hedge.C:
			if len(c.endpoints) > 1 {
				running++
				g.Go(ask)
			}
		case r := <-results:
			if running--; r.err != nil && running > 0 {
				continue
			}
			mu.Lock()
			defer mu.Unlock()
			for e := range asked {
				e.slow(want.turn)
			}
			return r.value, r.by, r.err
		}
	}
}

// patience is the time to wait for one endpoint: four times what the fastest takes, if that is longer.
func (c *Client) patience() time.Duration {
	fastest := time.Duration(math.MaxInt64)
	for _, e := range c.endpoints {
		e.mu.Lock()
		fastest = min(fastest, e.latency)
		e.mu.Unlock()
	}
	return max(patience, 4*fastest)
}

// top is the highest head known of any endpoint except one.
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

// callerError is an error of op itself, not of the endpoint that it was called with.
type callerError struct{ err error }

func (e *callerError) Error() string { return e.err.Error() }
func (e *callerError) Unwrap() error { return e.err }

// try calls op with the best endpoint, and then with others, until one succeeds or ctx is done. A failure of all has
// these outcomes:
//
//   - ErrGone: after twice as many tries as there are endpoints, all without the block or with inconsistent responses.
//     Endpoints that are known to have the block and fail in other ways are waited for first, up to claimWait.
//   - ErrTooBig: after as many tries for receipts that were all too large.
//   - ErrNoState, ErrNoProof: an endpoint that lacks the state or receipts, or does not serve them, is asked once, and the others are waited
//     for, up to claimWait.
//   - errOneTooBig: at once, where receipts have the logs.
//   - anything else is retried without end, after a pause that grows with each round of all endpoints.
//
// Endpoints outside the preference are used only if there is no other.
func (c *Client) try(ctx context.Context, want choice, op func(context.Context, *endpoint) error) error {
	var (
		last    error
		big     int
		useless int
		failed  int
		enough  = 2 * len(c.endpoints)
		asked   = make(map[*endpoint]int, len(c.endpoints))
		lack    []*endpoint // they answered without the block
		until   time.Time   // how long the others are waited for
		cannot  error       // why those of want.cannot cannot
	)
	for {
		if want.not != nil && c.askedAll(asked, want.not) {
			return errors.Join(errNobodyElse, last)
		}
		if want.logs && c.noLogs(asked, want.not) {
			return errors.Join(errNoLogs, last)
		}
		if cannot != nil && (time.Now().After(want.until) || !slices.ContainsFunc(c.endpoints, want.allows)) {
			return fmt.Errorf("%w: %w", cannot, last)
		}
		var e *endpoint
		var err error
		if useless < enough {
			if e, err = c.pick(ctx, want, asked); err != nil {
				if cannot != nil && errors.Is(err, errNobodyElse) {
					err = cannot
				}
				return errors.Join(err, last)
			}
		} else if e = c.owner(ctx, want.block, lack, until); e == nil {
			return cmp.Or(ctx.Err(), fmt.Errorf("%w: %w", ErrGone, last))
		} else {
			e.load(1)
		}
		err = c.callClaimed(ctx, want.block, e, op)
		if e.load(-1); err == nil {
			e.well()
			if want.block > 0 {
				e.has(want.block)
			}
			report(ctx, nil)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if not, ok := errors.AsType[*callerError](err); ok {
			return not.err
		}
		asked[e]++
		if errors.Is(err, errOneTooBig) && c.cfg.Proof != ProofOff {
			return err
		}
		e.failed(err)
		last = fmt.Errorf("%s: %w", e.name, e.redact(err))
		report(ctx, last)
		class := classify(err)
		if errors.Is(err, errUnprovenClaim) {
			class = classGone
			useless++ // its time is over: it is not asked twice
		}
		if errors.Is(err, errNotServed) {
			class = classState
		}
		if class == classMethod && !want.receipts && !errors.Is(err, errNoLogs) {
			class = classOther // there is no other way
		}
		switch class {
		case classState, classMethod, classUnsigned:
			if errors.Is(err, errNoLogs) {
				continue // it is not chosen any more
			}
			if cannot == nil {
				cannot, want.until = ErrNoProof, time.Now().Add(claimWait)
			}
			if class == classState {
				cannot = ErrNoState
			}
			if asked[e] > 1 || !c.only() { // else another node behind its URL may be able to
				want.cannot = append(want.cannot, e)
			}
		case classGone, classLie, classRange:
			if class == classRange && want.receipts {
				if big++; big >= enough {
					return fmt.Errorf("%w: %w", ErrTooBig, last)
				}
				continue
			}
			if cannot != nil && asked[e] > 1 {
				want.cannot = append(want.cannot, e) // an endpoint has the block, if not all of it
			}
			if useless++; lack == nil {
				until = time.Now().Add(claimWait)
			}
			lack = append(lack, e)
		default:
			if failed++; failed%len(c.endpoints) == 0 {
				if err := pause.For(ctx, min(minRest<<min(failed/len(c.endpoints)-1, 16), maxRound)); err != nil {
					return err
				}
			}
		}
	}
}

// claimWait is how long a block is waited for that other endpoints answer without, and how long an endpoint may take
// to deliver a block that it alone reported: a head is only a claim, and must not stop the blocks that others have.
const claimWait = 2 * time.Second

// errUnprovenClaim: an endpoint took too long for a block that it alone reported.
var errUnprovenClaim = errors.New("endpoint does not deliver a block that it alone reported")

// callClaimed calls op with an endpoint, limited to claimWait if it alone reported the block.
func (c *Client) callClaimed(ctx context.Context, block uint64, e *endpoint, op func(context.Context, *endpoint) error) error {
	if reach := c.reach(e); reach == 0 || block <= reach {
		return op(ctx, e)
	}
	bounded, cancel := allow(ctx, claimWait)
	defer cancel()
	err := op(bounded, e)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errUnprovenClaim, err)
	}
	return err
}

// maxRound is the longest pause of a request that all endpoints failed. It is beside the pauses of the endpoints,
// which end with any successful request.
const maxRound = 2 * time.Second
