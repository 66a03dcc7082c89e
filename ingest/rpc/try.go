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

// choice is a preference for endpoints.
type choice struct {
	avoid    *endpoint // prefer any other
	not      *endpoint // only others: errNobodyElse if they fail
	receipts bool      // prefer one that supports eth_getBlockReceipts, and returns all of a block's at once
	logs     bool      // only those that support eth_getLogs: errNoLogs if there is none, or they fail twice, or rest for long
	block    uint64    // prefer one that is known to have this block
	turn     turn      // prefer the one whose turn it is
}

// turn is a kind of request that the endpoints get one after the other.
type turn uint8

const (
	noTurn turn = iota // others
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

// patience is how long one endpoint is waited for before another one is asked as well, unless all of them take longer.
const patience = 250 * time.Millisecond

// hedged calls op with the best endpoint, and with the next one as well if that is slow: what one says at once must not
// wait for another. The first answer counts, and who was slower is asked less often. op may run twice at the same time.
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
		asked   = map[*endpoint]bool{} // and have not answered yet
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

// notHis is an error of an op that is not of the endpoint that it was called with.
type notHis struct{ err error }

func (e *notHis) Error() string { return e.err.Error() }
func (e *notHis) Unwrap() error { return e.err }

// try calls op with the best endpoint, and then with others until one succeeds or ctx is done. If it was tried twice as
// often as there are endpoints without the block, or with inconsistent responses, it returns ErrGone, but waits for those first
// that are known to have it and fail in other ways, up to claimWait; likewise ErrNoState,
// ErrNoProof and ErrTooBig. Endpoints outside the preference are used only if there is no other. It returns errOneTooBig at once
// where receipts have the logs. Who fails in other ways is asked again, after a pause that grows with each round of all.
func (c *Client) try(ctx context.Context, want choice, op func(context.Context, *endpoint) error) error {
	var (
		last    error
		state   int
		useless int
		failed  int
		enough  = 2 * len(c.endpoints)
		asked   = make(map[*endpoint]int, len(c.endpoints))
		lack    []*endpoint // they have answered without the block
		until   time.Time   // for so long the others are waited for
	)
	for {
		if want.not != nil && c.askedAll(asked, want.not) {
			return errors.Join(errNobodyElse, last)
		}
		if want.logs && c.noLogs(asked, want.not) {
			return errors.Join(errNoLogs, last)
		}
		var e *endpoint
		var err error
		if useless < enough {
			if e, err = c.pick(ctx, want, asked); err != nil {
				return errors.Join(err, last)
			}
		} else if e = c.owner(ctx, want.block, lack, until); e == nil {
			return cmp.Or(ctx.Err(), fmt.Errorf("%w: %w", ErrGone, last))
		}
		e.load(1) // who comes next chooses another one
		err = c.shows(ctx, want.block, e, op)
		if e.load(-1); err == nil {
			e.well()
			if want.block > 0 {
				e.has(want.block)
			}
			tell(ctx, nil)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if not, ok := errors.AsType[*notHis](err); ok {
			return not.err
		}
		asked[e]++
		if errors.Is(err, errOneTooBig) && c.cfg.Proof != ProofOff {
			return err
		}
		e.failed(err)
		last = fmt.Errorf("%s: %w", e.name, e.redact(err))
		tell(ctx, last)
		class := classify(err)
		if errors.Is(err, errUnshown) {
			class = classGone
			useless++ // it has had its time, and is not asked twice
		}
		if class == classMethod && !want.receipts && !errors.Is(err, errNoLogs) {
			class = classOther // nothing else would do
		}
		switch class {
		case classState:
			if state++; state >= enough {
				return fmt.Errorf("%w: %w", ErrNoState, last)
			}
		case classMethod, classUnsigned:
			if state++; want.receipts && state >= enough {
				return fmt.Errorf("%w: %w", ErrNoProof, last)
			}
		case classGone, classLie, classRange:
			if class == classRange && want.receipts {
				if state++; state >= enough {
					return fmt.Errorf("%w: %w", ErrTooBig, last)
				}
				continue
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

// claimWait is how long a block is waited for that others answer without, and how long an endpoint may take to show one that
// it alone tells of: a head is only a claim, and who makes one must not stop the blocks that others have.
const claimWait = 2 * time.Second

var errUnshown = errors.New("it does not show the block that it alone tells of")

// shows calls op with an endpoint, for as long as that may take.
func (c *Client) shows(ctx context.Context, block uint64, e *endpoint, op func(context.Context, *endpoint) error) error {
	if reach := c.reach(e); reach == 0 || block <= reach {
		return op(ctx, e)
	}
	bounded, cancel := allow(ctx, claimWait)
	defer cancel()
	err := op(bounded, e)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errUnshown, err)
	}
	return err
}

// owner waits for an endpoint that is known to have a block; nil: there is none but those that lack it, or it rests for longer.
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

// maxRound is the longest pause of a request that all endpoints have failed at. It grows with each round of them: what
// they answer beside it ends their rests, and says nothing of this one.
const maxRound = 2 * time.Second

// noLogs reports whether one of the endpoints, but for one, does not support eth_getLogs, and the others do not either or were tried twice.
func (c *Client) noLogs(asked map[*endpoint]int, but *endpoint) (one bool) {
	for _, e := range c.endpoints {
		if e == but {
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

// askedAll reports whether all endpoints but one were tried twice.
func (c *Client) askedAll(asked map[*endpoint]int, but *endpoint) bool {
	for _, e := range c.endpoints {
		if e != but && asked[e] < 2 {
			return false
		}
	}
	return true
}

// prefers reports whether an endpoint within the preference is left that was not asked yet. Where none is, the others are.
func (c *Client) prefers(want choice, asked map[*endpoint]int, now time.Time) bool {
	return slices.ContainsFunc(c.endpoints, func(e *endpoint) bool {
		return e != want.not && asked[e] == 0 && (!want.logs || !e.lacksLogs()) && want.fits(e, now)
	})
}

// pick chooses the endpoint: available, used least often for this, with the best score. If all are paused it
// waits for the first. Who lacks logs has its answer in memory, and is no choice where they are wanted: it would be chosen
// without end while the others rest.
func (c *Client) pick(ctx context.Context, want choice, asked map[*endpoint]int) (*endpoint, error) {
	for {
		var (
			best      *endpoint
			bestScore float64
			soonest   = time.Duration(-1)
			now       = time.Now()
			prefers   = c.prefers(want, asked, now)
			noLogs    bool
		)
		for _, e := range c.endpoints {
			if e == want.not {
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
		if best != nil {
			if want.turn != noTurn {
				best.mu.Lock()
				best.turns[want.turn] = now
				best.mu.Unlock()
			}
			return best, nil
		}
		switch none, long := soonest < 0, soonest > shortRest; {
		case noLogs && (none || long && c.cfg.Proof != ProofOff): // with ProofOff nothing else has them
			return nil, errNoLogs
		case want.not != nil && (none || long):
			return nil, errNobodyElse
		}
		if err := pause.For(ctx, max(soonest, time.Millisecond)); err != nil {
			return nil, err
		}
	}
}
