package hotcache

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// Miss is the reason why Redis could not answer: ask the processors.
type Miss string

// The reasons.
const (
	MissDown    Miss = "down"    // the breaker is open
	MissTimeout Miss = "timeout" // no answer in time
	MissError   Miss = "error"   // refused, broken, or an answer that is not ours
	MissCold    Miss = "cold"    // a partition is not built
	MissTorn    Miss = "torn"    // the partitions are not at one block
	MissCorrupt Miss = "corrupt" // keys were lost; what was left is gone now
	MissStale   Miss = "stale"   // its block was overtaken too long ago, or is another than that of other reads
	MissForeign Miss = "foreign" // its block is not one that the processors know
	MissScan    Miss = "scan"    // the filter skips too many listings
	MissTime    Miss = "time"    // a listing has many bids, and one of them expired after they were summed up
	MissUnknown Miss = "unknown" // what the processors know is not known
)

var misses = []Miss{
	MissDown, MissTimeout, MissError, MissCold, MissTorn, MissCorrupt, MissStale, MissForeign, MissScan, MissTime,
	MissUnknown,
}

func (m Miss) Error() string { return "hot cache: " + string(m) }

// Cache answers /listings and /pool from Redis.
type Cache struct {
	cfg     Config
	keys    keys
	client  redis.UniversalClient
	breaker *breaker
	recent  recentBlocks
	metrics *readerMetrics
	log     *zap.Logger
}

// NewCache makes a cache. It connects on the first read.
func NewCache(cfg Config, log *zap.Logger, registerer prometheus.Registerer) (*Cache, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	client, err := cfg.client(cfg.Timeout, cfg.PoolSize)
	if err != nil {
		return nil, err
	}
	return &Cache{
		cfg: cfg, keys: cfg.keys(), client: client, breaker: newBreaker(cfg.MaxFailures),
		metrics: newReaderMetrics(registerer), log: log.Named("hotcache"),
	}, nil
}

// Run probes a failed Redis until it responds. When ctx is done it closes the connections.
func (r *Cache) Run(ctx context.Context) error {
	defer func() {
		if err := r.client.Close(); err != nil {
			r.log.Debug("close redis client", zap.Error(err))
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.breaker.opened:
			if !r.recover(ctx) {
				return nil
			}
		}
	}
}

// recover closes the breaker once Redis responds; false: ctx is done.
func (r *Cache) recover(ctx context.Context) bool {
	tick := time.NewTicker(r.cfg.ProbeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
		probe, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
		err := r.client.Ping(probe).Err()
		cancel()
		if err != nil {
			r.metrics.probes.WithLabelValues("failed").Inc()
			continue
		}
		r.metrics.probes.WithLabelValues("succeeded").Inc()
		r.breaker.close()
		r.metrics.open.Set(0)
		r.log.Info("redis is reachable again")
		return true
	}
}

// Listings returns a page as of wm's block, a descendant of it, or a block that was overtaken at most MaxLag
// ago. wm is the processors' lowest watermark as the caller knows it. The error is a Miss, or that of ctx.
func (r *Cache) Listings(
	ctx context.Context, q query.ListingsQuery, wm query.Watermark,
) (query.Answer[query.Page[query.DealWithBids]], error) {
	start := time.Now()
	r.recent.observe(wm, start)
	answer, err := r.listings(ctx, q, wm)
	if miss := Miss(""); errors.As(err, &miss) {
		r.metrics.misses.WithLabelValues(string(miss)).Inc()
	} else if err == nil {
		r.metrics.hits.Inc()
	}
	if err != MissDown { //nolint:errorlint // it is never wrapped, and this path must be fast
		r.metrics.seconds.Observe(time.Since(start).Seconds())
	}
	return answer, err
}

func (r *Cache) listings(
	ctx context.Context, q query.ListingsQuery, wm query.Watermark,
) (none query.Answer[query.Page[query.DealWithBids]], err error) {
	if r.breaker.open() {
		return none, MissDown
	}
	if q.Sort >= deals.Sorts || q.Limit < 1 || q.After != nil && len(q.After) != positionBytes[q.Sort] {
		return none, MissError // not a valid reply
	}
	reply, err := r.ask(ctx, q, wm)
	if err != nil {
		return none, r.failed(ctx, err)
	}
	r.breaker.succeeded()
	page, err := parseReply(reply)
	if err != nil {
		return none, err
	}
	if err := r.judge(page, wm, time.Now()); err != nil {
		return none, err
	}
	none.At = page.at
	if none.Value, err = page.decode(q.Sort); errors.Is(err, errAnotherTime) {
		return query.Answer[query.Page[query.DealWithBids]]{}, MissTime
	} else if err != nil {
		r.log.Error("cannot decode the listings in Redis", zap.Uint64("block", page.at.Number), zap.Error(err))
		return query.Answer[query.Page[query.DealWithBids]]{}, MissError
	}
	return none, nil
}

// failed counts a failure of Redis, and returns the error for the caller.
func (r *Cache) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err() // the caller gave up, which says nothing about Redis
	}
	if r.breaker.failed() {
		r.metrics.open.Set(1)
		r.log.Warn("redis failed: skipping it until a probe succeeds", zap.Error(err))
	}
	if isTimeout(err) {
		return MissTimeout
	}
	return MissError
}

// ask runs the script: one round trip, or two if Redis has not cached the script.
func (r *Cache) ask(ctx context.Context, q query.ListingsQuery, wm query.Watermark) ([]any, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	set, lane, term := setName(&q), "", ""
	if q.Lane != nil {
		lane = string([]byte{byte(*q.Lane)})
	}
	if q.Term != nil {
		t := *q.Term
		term = string([]byte{byte(t >> 24), byte(t >> 16), byte(t >> 8), byte(t)})
	}
	sort := strconv.Itoa(int(q.Sort))
	reply := pageScript.Run(ctx, r.client, []string{r.keys.meta, r.keys.orders + sort + ":" + set},
		r.cfg.Partitions, set, sort, positionBytes[q.Sort], q.After, q.Limit, lane, term, r.cfg.MaxScan,
		r.keys.rows, r.keys.orders, wm.At.Number, barrier(wm.At))
	parts, err := reply.Slice()
	if err == nil && len(parts) == 0 {
		err = errors.New("empty reply")
	}
	return parts, err
}

// judge checks that the page's block may be used. The block exists, but Redis may hold outdated data, or data
// of another chain with the same ID.
func (r *Cache) judge(p *page, wm query.Watermark, now time.Time) error {
	switch {
	case p.reverts < wm.Reverts:
		return MissStale
	case p.at.Number > wm.At.Number || p.reverts > wm.Reverts:
		if !p.linked {
			return MissForeign
		}
		return nil
	}
	lag, known := r.recent.overtaken(p.at.Number, p.at.Hash, now)
	switch {
	case !known:
		return MissForeign
	case lag > r.cfg.MaxLag:
		return MissStale
	}
	return nil
}

// page is the script's reply with encoded rows.
type page struct {
	at      topics.BlockRef
	reverts uint64
	linked  bool
	more    bool
	rows    []any
}

func parseReply(reply []any) (*page, error) {
	status, _ := reply[0].(string)
	switch miss := Miss(status); {
	case status == "ok" && len(reply) >= 7:
	case miss == MissCold, miss == MissTorn, miss == MissCorrupt, miss == MissScan:
		return nil, miss
	default:
		return nil, MissError
	}
	var errs [4]error
	p := &page{rows: reply[7:]}
	p.at.Number, errs[0] = number(reply[1])
	hash, err := hex.DecodeString(fmt.Sprint(reply[2]))
	if err != nil || len(hash) != common.HashLength {
		return nil, MissError
	}
	p.at.Hash = common.Hash(hash)
	p.at.Timestamp, errs[1] = number(reply[3])
	p.reverts, errs[2] = number(reply[4])
	p.linked = reply[5] == int64(1)
	p.more = reply[6] == int64(1)
	if errors.Join(errs[:]...) != nil {
		return nil, MissError
	}
	return p, nil
}

func number(v any) (uint64, error) {
	s, _ := v.(string)
	return strconv.ParseUint(s, 10, 64)
}

func (p *page) decode(sort query.Sort) (query.Page[query.DealWithBids], error) {
	out := query.Page[query.DealWithBids]{Items: make([]query.DealWithBids, len(p.rows))}
	for i, raw := range p.rows {
		row, _ := raw.(string)
		var err error
		if out.Items[i], err = decodeRow(row, p.at.Timestamp); err != nil {
			return out, err
		}
	}
	if n := len(p.rows); p.more && n > 0 {
		out.Next = deals.ListingKey(sort, &out.Items[n-1].Deal)
	}
	return out, nil
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redis.ErrPoolTimeout) || errors.As(err, &t) && t.Timeout()
}
