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

// ErrDiffer: two nodes gave different answers about one block, and no third agreed with either.
var ErrDiffer = errors.New("nodes of the chain say different things of one block")

type lastAnswerKey struct{}

// WithOtherNode is a context under which each batch goes to another node than the batch before it, so that one node can
// contradict the other. Where one node is enough (Quorum), a batch may go to any.
func WithOtherNode(ctx context.Context) context.Context {
	return context.WithValue(ctx, lastAnswerKey{}, new(atomic.Pointer[endpoint]))
}

// WithSecondNode is a context whose first batch goes to another node than the last batch under ctx so far. Later
// batches under ctx do not change that.
func WithSecondNode(ctx context.Context) context.Context {
	before := new(atomic.Pointer[endpoint])
	if last, ok := ctx.Value(lastAnswerKey{}).(*atomic.Pointer[endpoint]); ok {
		before.Store(last.Load())
	}
	return context.WithValue(ctx, lastAnswerKey{}, before)
}

type roundKey struct{}

// agreementRound is one attempt to get the same answer from two nodes.
type agreementRound struct {
	turn int // by how many places the order of the nodes is rotated

	mu       sync.Mutex
	answered []*endpoint
	against  []*endpoint // those of them that dissent (Dissents)
}

// maxRounds is the number of pairs of three nodes.
const maxRounds = 3

// Agreed calls ask, which asks two nodes (WithOtherNode, WithSecondNode) and returns ErrDiffer if their answers differ.
// If they differ and three nodes respond, it asks other pairs until two agree. A node that contradicted these is asked
// last from then on, until it agrees with another again.
func Agreed[T any](ctx context.Context, c *Client, ask func(context.Context) (T, error)) (T, error) {
	var before []*endpoint
	var differ error
	for turn := range maxRounds {
		r := &agreementRound{turn: turn}
		v, err := ask(context.WithValue(ctx, roundKey{}, r))
		heard := r.agreed()
		switch {
		case errors.Is(err, ErrDiffer):
			differ = err
		case differ != nil && errors.Is(err, ErrUnavailable): // one of the two that differ may be alone now
		default:
			if err == nil {
				c.noteContradicted(heard, append(before, r.against...))
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

// noteAnswer notes which endpoint answered a batch.
func noteAnswer(ctx context.Context, e *endpoint) {
	if r, ok := ctx.Value(roundKey{}).(*agreementRound); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.answered = append(r.answered, e)
	}
}

// agreed are the endpoints that answered, without those that dissent.
func (r *agreementRound) agreed() []*endpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.answered), func(e *endpoint) bool {
		return slices.ContainsFunc(r.against, func(o *endpoint) bool { return o.host == e.host })
	})
}

// noteContradicted marks the endpoints of earlier rounds that contradict those that agreed, if the latter are two
// nodes.
func (c *Client) noteContradicted(agreed, before []*endpoint) {
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
			c.log.Warn("endpoint contradicts two others", zap.String("endpoint", e.name))
		}
		e.mu.Unlock()
	}
}

// responding are the hosts of the nodes that are neither outvoted nor paused, the least doubted first.
func (c *Client) responding() []string {
	now := time.Now()
	endpoints := slices.DeleteFunc(slices.Clone(c.endpoints), func(e *endpoint) bool {
		return e.vote() == outvoted || e.resting(&e.calls, now)
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

// turn sorts endpoints for a round of Agreed: in each round another node comes first.
func (c *Client) turn(ctx context.Context, endpoints []*endpoint) {
	r, ok := ctx.Value(roundKey{}).(*agreementRound)
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
