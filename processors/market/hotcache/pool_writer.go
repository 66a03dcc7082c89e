package hotcache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// PoolSource is the read API of the processors, as of the block that all partitions have.
type PoolSource interface {
	Lowest() (query.Watermark, error)
	Pool(ctx context.Context) (query.Answer[query.PoolOverview], error)
}

// WatermarkSource lists the partitions that this node holds: a query.Source does.
type WatermarkSource interface {
	Watermarks() []query.Watermark
}

const (
	// poolTurn is the partition whose owner writes the overview, which spans all partitions.
	poolTurn = 0
	// poolInterval is how often the lowest watermark is checked, which needs no network: faster blocks are
	// written together.
	poolInterval = 20 * time.Millisecond
)

// PoolWriter keeps the pool overview in Redis, while this node owns partition 0.
//
// Invariants:
//  1. A value names the block that it was read at, which was the lowest watermark.
//  2. A value never replaces a later one. Two writers at a time, or one that was paused, do no other harm:
//     readers accept a value by its block's hash, from any writer.
//  3. It does not run in a task's goroutine, and nothing waits for it.
type PoolWriter struct {
	cfg     Config
	key     string
	client  redis.UniversalClient
	source  PoolSource
	holder  WatermarkSource
	metrics *poolWriterMetrics
	log     *zap.Logger

	// Used only by Run's goroutine:
	recent    recentBlocks
	written   query.Watermark // of the last value accepted by Redis
	writtenAt time.Time
}

// NewPoolWriter makes a writer. Run connects.
func NewPoolWriter(cfg Config, source PoolSource, holder WatermarkSource, log *zap.Logger, registerer prometheus.Registerer) (*PoolWriter, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	client, err := cfg.client(cfg.WriteTimeout, 1)
	if err != nil {
		return nil, err
	}
	return &PoolWriter{
		cfg: cfg, key: cfg.keys().pool, client: client, source: source, holder: holder,
		metrics: newPoolWriterMetrics(registerer), log: log.Named("hotcache"),
	}, nil
}

// Run writes the overview for each lowest watermark that it sees, until ctx is done. After a failure it retries
// with growing pauses.
func (w *PoolWriter) Run(ctx context.Context) error {
	defer func() {
		if err := w.client.Close(); err != nil {
			w.log.Debug("close redis client", zap.Error(err))
		}
	}()
	var backoff time.Duration
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(backoff, poolInterval)):
		}
		switch err := w.flush(ctx); {
		case err == nil:
			backoff = 0
		case ctx.Err() != nil:
			return nil
		default:
			if backoff == 0 {
				w.log.Warn("write the pool to redis: will retry", zap.Error(err))
			}
			backoff = min(max(2*backoff, 50*time.Millisecond), w.cfg.MaxBackoff)
		}
	}
}

// flush writes the overview, if this node is its writer and Redis does not have it yet.
func (w *PoolWriter) flush(ctx context.Context) error {
	if !w.turn() {
		return nil
	}
	wm, err := w.source.Lowest()
	if err != nil || engine.Far(wm.At.Number, wm.Latest) {
		return nil // a partition moves, or a backfill is going on: the cache would not be used
	}
	now := time.Now()
	w.recent.observe(wm, now)
	if wm.At == w.written.At && wm.Reverts == w.written.Reverts && now.Sub(w.writtenAt) < w.cfg.Beat {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.cfg.WriteTimeout)
	defer cancel()
	answer, err := w.source.Pool(ctx)
	switch {
	case errors.Is(err, query.ErrUnavailable), err == nil && answer.At != wm.At:
		return nil // the watermark moved: retry at the next poll
	case err != nil:
		return fmt.Errorf("read the pool at block %d: %w", wm.At.Number, err)
	}
	return w.put(ctx, wm, &answer.Value)
}

// turn reports whether this node is the writer.
func (w *PoolWriter) turn() bool {
	for _, m := range w.holder.Watermarks() {
		if m.Partition == poolTurn && m.Role == topics.RoleOwner {
			return true
		}
	}
	return false
}

func (w *PoolWriter) put(ctx context.Context, wm query.Watermark, v *query.PoolOverview) error {
	value, err := encodeOverview(wm, w.recent.before(wm.At), v)
	if err != nil {
		return fmt.Errorf("encode the pool at block %d: %w", wm.At.Number, err)
	}
	done, err := poolScript.Run(ctx, w.client, []string{w.key}, value, w.cfg.Takeover.Milliseconds()).Int()
	if err != nil {
		w.metrics.writes.WithLabelValues("error").Inc()
		return err
	}
	w.written, w.writtenAt = wm, time.Now() // a refused write is retried after a heartbeat
	if done == 0 {
		w.metrics.writes.WithLabelValues("refused").Inc()
		return nil
	}
	w.metrics.writes.WithLabelValues("applied").Inc()
	w.metrics.block.Set(float64(wm.At.Number))
	return nil
}
