package hotcache

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lienstream/lienstream/processors/market/query"
)

// Upstream is the read API of the processors. Its lowest watermark needs no network.
type Upstream interface {
	query.Reader
	Lowest() (query.Watermark, error)
	Shown(at query.Moment)
}

// CachedReader is the read API behind the hot cache: listings and the pool overview come from Redis if
// possible, everything else from the processors.
type CachedReader struct {
	Upstream
	cache *Cache
}

// NewCachedReader puts the cache in front of the router.
func NewCachedReader(router Upstream, cache *Cache) *CachedReader {
	return &CachedReader{Upstream: router, cache: cache}
}

var _ query.Reader = (*CachedReader)(nil)

// Listings implements query.Reader.
func (o *CachedReader) Listings(ctx context.Context, q query.ListingsQuery) (query.Answer[query.Page[query.DealWithBids]], error) {
	return throughCache(ctx, o, o.cache.metrics.misses,
		func(wm query.Watermark) (query.Answer[query.Page[query.DealWithBids]], error) {
			return o.cache.Listings(ctx, q, wm)
		},
		func() (query.Answer[query.Page[query.DealWithBids]], error) { return o.Upstream.Listings(ctx, q) })
}

// Pool implements query.Reader.
func (o *CachedReader) Pool(ctx context.Context) (query.Answer[query.PoolOverview], error) {
	return throughCache(ctx, o, o.cache.metrics.poolMisses,
		func(wm query.Watermark) (query.Answer[query.PoolOverview], error) { return o.cache.Pool(ctx, wm) },
		func() (query.Answer[query.PoolOverview], error) { return o.Upstream.Pool(ctx) })
}

// throughCache answers from the cache as of the block that all reads are as of, and from the processors where that
// misses. An answer as of another block, which Redis has a moment longer or sooner, would make the next one go back, or
// keep it from being given.
func throughCache[T any](
	ctx context.Context, o *CachedReader, misses *prometheus.CounterVec,
	cached func(query.Watermark) (query.Answer[T], error), asked func() (query.Answer[T], error),
) (query.Answer[T], error) {
	wm, err := o.Lowest()
	if err != nil {
		misses.WithLabelValues(string(MissUnknown)).Inc()
		return asked()
	}
	if wm.At.Number < query.MinBlock(ctx) {
		return asked() // the processors wait for the minimum block
	}
	answer, err := cached(wm)
	if miss := Miss(""); errors.As(err, &miss) {
		return asked()
	}
	if err == nil && answer.At.Hash != wm.At.Hash {
		misses.WithLabelValues(string(MissStale)).Inc()
		return asked()
	}
	if err == nil {
		o.Shown(wm.Moment())
	}
	return answer, err
}
