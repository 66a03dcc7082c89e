package hotcache

import (
	"context"
	"errors"
	"sync/atomic"

	"golang.org/x/sync/singleflight"

	"github.com/lienstream/lienstream/processors/query"
)

// Router is the read API of the processors, which knows their lowest watermark without a network.
type Router interface {
	query.Reader
	Lowest() (query.Watermark, error)
}

// Over is the read API with the hot cache before it: a page of listings, or an overview of the pool, that
// Redis cannot answer is asked of the processors, and all else always is.
type Over struct {
	Router
	cache *Reader

	pool    atomic.Pointer[query.Answer[query.PoolOverview]] // the last of Redis
	flights singleflight.Group
}

// NewOver puts the cache before the router.
func NewOver(router Router, cache *Reader) *Over { return &Over{Router: router, cache: cache} }

var _ query.Reader = (*Over)(nil)

// Listings implements query.Reader.
func (o *Over) Listings(ctx context.Context, q query.ListingsQuery) (query.Answer[query.Page[query.DealWithBids]], error) {
	wm, err := o.Lowest()
	if err != nil {
		o.cache.metrics.misses.WithLabelValues(string(MissUnknown)).Inc()
		return o.Router.Listings(ctx, q)
	}
	answer, err := o.cache.Listings(ctx, q, wm)
	if miss := Miss(""); errors.As(err, &miss) {
		return o.Router.Listings(ctx, q)
	}
	return answer, err
}

// Pool implements query.Reader. Everybody asks alike: Redis is asked once at a time, and not at all
// while the lowest watermark is the block of the last answer, of which no better one can be had.
func (o *Over) Pool(ctx context.Context) (query.Answer[query.PoolOverview], error) {
	wm, err := o.Lowest()
	if err != nil {
		o.cache.metrics.poolMisses.WithLabelValues(string(MissUnknown)).Inc()
		return o.Router.Pool(ctx)
	}
	if last := o.pool.Load(); last != nil && last.At == wm.At {
		return *last, nil
	}
	flight := o.flights.DoChan(barrier(wm.At), func() (any, error) {
		answer, err := o.cache.Pool(context.WithoutCancel(ctx), wm) // others wait for it too; it ends in Timeout
		if err == nil {
			o.pool.Store(&answer)
		}
		return answer, err
	})
	select {
	case r := <-flight:
		if r.Err != nil {
			return o.Router.Pool(ctx)
		}
		return r.Val.(query.Answer[query.PoolOverview]), nil
	case <-ctx.Done():
		return query.Answer[query.PoolOverview]{}, ctx.Err()
	}
}
