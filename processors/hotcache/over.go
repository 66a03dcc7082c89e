package hotcache

import (
	"context"
	"errors"

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

// Pool implements query.Reader.
func (o *Over) Pool(ctx context.Context) (query.Answer[query.PoolOverview], error) {
	wm, err := o.Lowest()
	if err != nil {
		o.cache.metrics.poolMisses.WithLabelValues(string(MissUnknown)).Inc()
		return o.Router.Pool(ctx)
	}
	answer, err := o.cache.Pool(ctx, wm)
	if miss := Miss(""); errors.As(err, &miss) {
		return o.Router.Pool(ctx)
	}
	return answer, err
}
