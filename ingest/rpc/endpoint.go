package rpc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

// endpoint is one node and what is known of it.
//
// Invariants:
//
//  1. No request goes out before the endpoint has proved its chain ID, nor during its rest.
//  2. What a request may have at most is in limits, which shrink with every refusal and grow back.
type endpoint struct {
	name    string
	client  *Client
	url     string
	http    *http.Client
	ws      *socket // nil: no subscription
	viaWS   bool    // requests go over ws too
	limiter *rate.Limiter
	slots   *semaphore.Weighted
	limits  limits
	ids     atomic.Uint64

	noReceipts atomic.Bool // it said that it does not know eth_getBlockReceipts

	mu       sync.Mutex
	proved   bool
	latency  time.Duration // moving average
	inflight int
	failures int       // consecutive
	rest     time.Time // until then it is not asked

	head    uint64           // the newest block that it is known to have
	behind  bool             // its last head was lower than another's
	claims  [tags]claim      // what it called final, and safe
	vouched uint64           // the highest that it ever called final
	turns   [turns]time.Time // when it was last asked in turn
}

func newEndpoint(c *Client, cfg Endpoint, i int) *endpoint {
	u, _ := url.Parse(cfg.URL) // Validate has parsed it
	e := &endpoint{name: cfg.Name, client: c, url: cfg.URL, limiter: rate.NewLimiter(rate.Inf, 0), slots: semaphore.NewWeighted(int64(c.cfg.Parallel)), limits: newLimits(c.cfg)}
	if e.name == "" {
		e.name = u.Host
		for _, other := range c.endpoints {
			if other.name == e.name {
				e.name = fmt.Sprintf("%s#%d", u.Host, i)
			}
		}
	}
	if cfg.Rate > 0 {
		e.limiter = rate.NewLimiter(rate.Limit(cfg.Rate), max(c.cfg.HeaderBatch, int(math.Ceil(cfg.Rate))))
	}
	e.http = newHTTPClient(u.Hostname(), c.cfg)
	if strings.HasPrefix(u.Scheme, "ws") {
		e.ws, e.viaWS = newSocket(e, cfg.URL), true
	} else if cfg.WS != "" {
		e.ws = newSocket(e, cfg.WS)
	}
	return e
}

// call is one request of a batch. params is the JSON array; result is given the scanner at the answer.
type call struct {
	method string
	params []byte
	bytes  int // of the answer, at the most; 0: as many as Config.MaxBody
	result func(*scanner) error
	failed func(*Error) bool // takes an error of this one call; nil or false: it fails the batch
}

// do sends calls, as many in one request as the endpoint takes, and decodes the answers. One request of one call is
// no batch, since some nodes take none. A batch that fails is not sent again as it was.
func (e *endpoint) do(ctx context.Context, calls []call) error {
	if err := e.prove(ctx); err != nil {
		return err
	}
	for len(calls) > 0 {
		n := min(len(calls), e.limits.batch.now())
		err := e.send(ctx, calls[:n])
		switch {
		case err == nil:
			e.limits.batch.granted(n)
			calls = calls[n:]
		case ctx.Err() != nil:
			return err
		case !e.tooMany(err, calls[:n]):
			return err
		default:
			e.client.metrics.errors.WithLabelValues(e.name, classBatch.String()).Inc()
			e.limits.batch.refused(n)
			if c := classify(err); c != classBatch && c != classRange {
				return err // it may be in trouble: another endpoint, and this one later, with less
			}
		}
	}
	return nil
}

// tooMany says whether fewer calls at once may do better. What may be wrong with a range of logs, less of a range mends.
func (e *endpoint) tooMany(err error, calls []call) bool {
	if len(calls) == 1 {
		return false
	}
	ranged := calls[0].method == "eth_getLogs" && e.limits.span.now() > 1
	switch classify(err) {
	case classBatch:
		return true
	case classRange, classOther:
		return !ranged
	case classLie:
		l, _ := errors.AsType[*lie](err)
		return l.kind == "batch" || l.kind == "malformed"
	default:
		return false
	}
}

func (e *endpoint) send(ctx context.Context, calls []call) error {
	if err := e.limiter.WaitN(ctx, min(len(calls), max(e.limiter.Burst(), 1))); err != nil {
		return fmt.Errorf("wait for the rate limit: %w", err)
	}
	if err := e.slots.Acquire(ctx, 1); err != nil {
		return err
	}
	defer e.slots.Release(1)
	ctx, cancel := context.WithTimeout(ctx, e.client.cfg.Timeout)
	defer cancel()
	n := uint64(len(calls))
	base := e.ids.Add(n) - n + 1
	started := time.Now()
	e.load(1)
	defer e.load(-1)
	body, release, err := e.roundTrip(ctx, base, n, encode(base, calls), e.bound(calls))
	if err == nil {
		err = decode(body, base, calls)
		release()
	}
	e.client.metrics.requests.WithLabelValues(e.name, calls[0].method).Inc()
	e.client.metrics.seconds.WithLabelValues(e.name).Observe(time.Since(started).Seconds())
	if err == nil {
		e.measured(time.Since(started))
	}
	return err
}

// roundTrip sends a request; over HTTP an answer of more than most bytes is not read to its end.
func (e *endpoint) roundTrip(ctx context.Context, base, n uint64, body []byte, most int) ([]byte, func(), error) {
	if e.viaWS {
		return e.ws.roundTrip(ctx, base, n, body)
	}
	return e.post(ctx, body, most)
}

// bound is how many bytes the answer to calls may have: hex, and what is around it.
func (e *endpoint) bound(calls []call) int {
	const around = 4 << 10
	sum := 0
	for _, c := range calls {
		if c.bytes == 0 {
			return e.client.cfg.MaxBody
		}
		sum += 2*c.bytes + around
	}
	return min(sum, e.client.cfg.MaxBody)
}

// prove asks for the chain ID, once and after every failure.
func (e *endpoint) prove(ctx context.Context) error {
	e.mu.Lock()
	proved := e.proved
	e.mu.Unlock()
	if proved {
		return nil
	}
	var id uint64
	err := e.send(ctx, []call{{method: "eth_chainId", params: []byte("[]"), result: func(s *scanner) (err error) {
		id, err = s.quantity(64)
		return err
	}}})
	if err != nil {
		return err
	}
	if id != e.client.cfg.ChainID {
		return lied("chain_id", "endpoint is on chain %d, expected %d", id, e.client.cfg.ChainID)
	}
	e.mu.Lock()
	e.proved = true
	e.mu.Unlock()
	return nil
}

// load counts requests under way.
func (e *endpoint) load(n int) {
	e.mu.Lock()
	e.inflight += n
	e.mu.Unlock()
}

// measured notes a request that was answered.
func (e *endpoint) measured(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.latency == 0 {
		e.latency = d
	}
	e.latency += (d - e.latency) / 8
}

// well notes that an answer held. One takes back one failure: an endpoint that fails every other time keeps resting.
func (e *endpoint) well() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failures = max(0, e.failures-1)
}

// Bounds of an endpoint's rest.
const (
	minRest = 50 * time.Millisecond
	maxRest = 5 * time.Second // an endpoint that came back is noticed by then
)

// failed notes an error and rests the endpoint for as long as the error deserves. It logs the first of a
// row: the caller goes on elsewhere and has nothing to say.
func (e *endpoint) failed(err error) {
	c := classify(err)
	e.client.metrics.errors.WithLabelValues(e.name, c.String()).Inc()
	if l, ok := errors.AsType[*lie](err); ok {
		e.client.metrics.lies.WithLabelValues(e.name, l.kind).Inc()
	}
	if c == classState || c == classMethod && e.noReceipts.Load() {
		return // no trouble: everything else it can answer
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failures++
	d := min(minRest<<min(e.failures-1, 16), maxRest)
	d += rand.N(d / 4)
	switch c {
	case classGone:
		d = minRest // behind by a moment, most likely
	case classOther:
		e.proved = false // what comes back may be another node
	case classRate:
		var status *statusError
		if errors.As(err, &status) && status.retry > 0 {
			d = min(status.retry, time.Minute)
		} else {
			d = max(d, time.Second)
		}
	default:
	}
	e.rest = time.Now().Add(d)
	if e.failures == 1 || c == classLie {
		e.client.log.Warn("endpoint failed", zap.String("endpoint", e.name), zap.Stringer("class", c), zap.Duration("rest", d), zap.Error(e.redact(err)))
	}
}

// redact keeps the URL, which may hold a key, out of an error's text.
func (e *endpoint) redact(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// score orders endpoints that are awake: what an answer takes here, with what waits before it.
func (e *endpoint) score(now time.Time) (resting time.Duration, score float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return max(0, e.rest.Sub(now)), float64(e.latency+time.Millisecond) * float64(1+e.inflight) * float64(1+e.failures)
}
