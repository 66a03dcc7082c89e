package hotcache

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/market/query"
)

// Pool returns the pool overview as of wm's block, a descendant of it, or a block that was overtaken at most
// MaxLag ago. The value is read-only.
func (r *Cache) Pool(ctx context.Context, wm query.Watermark) (query.Answer[query.PoolOverview], error) {
	start := time.Now()
	r.recent.observe(wm, start)
	answer, err := r.pool(ctx, wm)
	if miss := Miss(""); errors.As(err, &miss) {
		r.metrics.poolMisses.WithLabelValues(string(miss)).Inc()
	} else if err == nil {
		r.metrics.poolHits.Inc()
	}
	if err != MissDown { //nolint:errorlint // it is never wrapped, and this path must be fast
		r.metrics.seconds.Observe(time.Since(start).Seconds())
	}
	return answer, err
}

func (r *Cache) pool(ctx context.Context, wm query.Watermark) (none query.Answer[query.PoolOverview], err error) {
	if r.breaker.open() {
		return none, MissDown
	}
	raw, err := r.askPool(ctx)
	if err != nil {
		return none, r.failed(ctx, err)
	}
	r.breaker.succeeded()
	if len(raw) == 0 {
		return none, MissCold
	}
	o, rest, err := decodeOverviewHead(raw)
	if err == nil {
		o.linked = o.descends(wm.At)
		if miss := r.judge(&o.page, wm, time.Now()); miss != nil {
			return none, miss
		}
		none.Value, err = decodeOverview(rest)
	}
	if err != nil {
		r.log.Error("cannot decode the pool in Redis", zap.Uint64("block", o.at.Number), zap.Error(err))
		return query.Answer[query.PoolOverview]{}, MissError
	}
	none.At = o.at
	return none, nil
}

// askPool takes one round trip. It fetches at most one byte more than a valid value has.
func (r *Cache) askPool(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	return r.client.GetRange(ctx, r.keys.pool, 0, maxPoolBytes).Bytes()
}
