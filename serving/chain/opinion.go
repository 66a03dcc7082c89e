package chain

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// ErrDiffer: two nodes said different things of one block, and no third agreed with either.
var ErrDiffer = errors.New("nodes of the chain say different things of one block")

type apartKey struct{}

// Apart is a context under which each batch is asked of another node than the one before it, so that what one said another
// may contradict. Where one is enough (Quorum), anyone is asked.
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

type roundKey struct{}

// round is one attempt to have two nodes say the same.
type round struct {
	turn int // the order in which nodes are asked is turned by so many

	mu      sync.Mutex
	heard   []*endpoint
	against []*endpoint // those of them that say otherwise (Dissents)
}

// maxRounds is every pair of three nodes.
const maxRounds = 3

// Agreed is what ask finds, which asks two nodes for their opinions (Apart, Beside) and returns ErrDiffer where they say
// different things. Then others are asked, where three respond, until two agree; who said otherwise is asked last from then
// on, until it agrees with another again.
func Agreed[T any](ctx context.Context, c *Client, ask func(context.Context) (T, error)) (T, error) {
	var before []*endpoint
	var differ error
	for turn := range maxRounds {
		r := &round{turn: turn}
		v, err := ask(context.WithValue(ctx, roundKey{}, r))
		heard := r.said()
		switch {
		case errors.Is(err, ErrDiffer):
			differ = err
		case differ != nil && errors.Is(err, ErrUnavailable): // one of those who differ may be alone now
		default:
			if err == nil {
				c.judge(heard, append(before, r.against...))
			}
			return v, err
		}
		before = append(before, heard...)
		if len(c.responding()) < 3 {
			break
		}
	}
	var none T
	return none, differ
}

// hear notes who answered a batch.
func hear(ctx context.Context, e *endpoint) {
	if r, ok := ctx.Value(roundKey{}).(*round); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.heard = append(r.heard, e)
	}
}

func (r *round) said() []*endpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.heard), func(e *endpoint) bool {
		return slices.ContainsFunc(r.against, func(o *endpoint) bool { return o.host == e.host })
	})
}

// judge notes who of those heard before said otherwise than those who agreed, if they are two.
func (c *Client) judge(agreed, before []*endpoint) {
	of := func(all []*endpoint, e *endpoint) bool {
		return slices.ContainsFunc(all, func(o *endpoint) bool { return o.host == e.host })
	}
	if !slices.ContainsFunc(agreed, func(e *endpoint) bool { return e.host != agreed[0].host }) {
		return
	}
	for _, e := range c.endpoints {
		e.mu.Lock()
		was := e.doubted
		e.doubted = !of(agreed, e) && (was || of(before, e))
		if e.doubted && !was {
			c.metrics.contradicted.WithLabelValues(e.name).Inc()
			c.log.Warn("endpoint says otherwise than two others", zap.String("endpoint", e.name))
		}
		e.mu.Unlock()
	}
}

// responding are the hosts of the nodes that may be asked and do not rest, those first that are believed.
func (c *Client) responding() []string {
	now := time.Now()
	endpoints := slices.DeleteFunc(slices.Clone(c.endpoints), func(e *endpoint) bool {
		return e.standing() == outvoted || e.resting(&e.calls, now)
	})
	slices.SortStableFunc(endpoints, func(a, b *endpoint) int { return a.doubt() - b.doubt() })
	var hosts []string
	for _, e := range endpoints {
		if !slices.Contains(hosts, e.host) {
			hosts = append(hosts, e.host)
		}
	}
	return hosts
}

// turn brings endpoints into the order of a round, in each of which another node comes first.
func (c *Client) turn(ctx context.Context, endpoints []*endpoint) {
	r, ok := ctx.Value(roundKey{}).(*round)
	if !ok || r.turn == 0 {
		return
	}
	hosts := c.responding()
	place := func(e *endpoint) int {
		if at := slices.Index(hosts, e.host); at >= 0 {
			return (at + len(hosts) - r.turn%len(hosts)) % len(hosts)
		}
		return len(hosts)
	}
	slices.SortStableFunc(endpoints, func(a, b *endpoint) int { return place(a) - place(b) })
}
