package hotcache

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

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
}

// NewOver puts the cache before the router.
func NewOver(router Router, cache *Reader) *Over { return &Over{Router: router, cache: cache} }

var _ query.Reader = (*Over)(nil)

// Listings implements query.Reader.
func (o *Over) Listings(ctx context.Context, q query.ListingsQuery) (query.Answer[query.Page[query.DealWithBids]], error) {
	return over(o, o.cache.metrics.misses,
		func(wm query.Watermark) (query.Answer[query.Page[query.DealWithBids]], error) {
			return o.cache.Listings(ctx, q, wm)
		},
		func() (query.Answer[query.Page[query.DealWithBids]], error) { return o.Router.Listings(ctx, q) })
}

// Pool implements query.Reader.
func (o *Over) Pool(ctx context.Context) (query.Answer[query.PoolOverview], error) {
	return over(o, o.cache.metrics.poolMisses,
		func(wm query.Watermark) (query.Answer[query.PoolOverview], error) { return o.cache.Pool(ctx, wm) },
		func() (query.Answer[query.PoolOverview], error) { return o.Router.Pool(ctx) })
}

// over answers from the cache as of the lowest watermark, and from the processors where that misses.
func over[A any](o *Over, misses *prometheus.CounterVec, cached func(query.Watermark) (A, error), asked func() (A, error)) (A, error) {
	wm, err := o.Lowest()
	if err != nil {
		misses.WithLabelValues(string(MissUnknown)).Inc()
		return asked()
	}
	answer, err := cached(wm)
	if miss := Miss(""); errors.As(err, &miss) {
		return asked()
	}
	return answer, err
}
