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

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

// endpoint is a node and its state.
//
// Invariants:
//
//  1. No request is sent before the endpoint's chain ID was checked, nor while it is paused.
//  2. limits bound the size of requests: they shrink with every refusal and grow back.
type endpoint struct {
	name    string
	client  *Client
	url     string // of its HTTP; empty: it has none
	http    *http.Client
	ws      *socket   // nil: no subscription
	over    transport // of HTTP and WebSocket, where it has both (transport.go)
	limiter *rate.Limiter
	slots   *semaphore.Weighted
	bigTurn chan struct{} // held while receipts are fetched one by one (each.go)
	large   chan struct{} // room for one large response (buffer.go)
	limits  limits
	ids     atomic.Uint64

	noReceipts    atomic.Bool // it does not support eth_getBlockReceipts
	indexRefusals streak      // to show where it has logs (indexed.go)

	mu            sync.Mutex
	proved        bool
	latency       time.Duration // moving average
	inflight      int
	failures      int           // consecutive
	rest          time.Time     // no requests until then
	throttle      time.Time     // it throttles requests until then
	silentSince   time.Time     // since when it gave no new block in a vote; zero: it did in the last (fork.go)
	silence       time.Duration // the part of that time in which it was asked and others answered
	missedAt      time.Time     // when silence was last increased
	highest       uint64        // the highest block that it served
	recent        recentHeaders // the headers that it served last (recent.go)
	losses        int           // votes on blocks that are not final, lost in a row
	lostAt        time.Time     // when it lost the last one
	forks         strikes       // for serving another chain
	patience      time.Duration // how long its result of a call is waited for (opinions.go)
	separateUntil time.Time     // until then transactions are not fetched together with receipts
	lie           string        // the kind of the last one that was logged
	liedAt        time.Time     // when it was

	eachAfter       time.Time               // until then receipts are not fetched one by one
	each            *eachPart               // what came of a block so far; nil: none
	receiptFailures map[common.Hash]*streak // failed requests for receipts, by block, without a clear "too large"
	parts           time.Time               // until then others are preferred for receipts: a block's were too large
	unencoded       time.Time               // until then it is not asked for raw receipts
	noLogs          time.Time               // until then it is not asked for logs: it does not support eth_getLogs
	logsAgain       time.Duration           // how long that was the last time; 0: it has returned logs since
	indexed         indexed                 // where it has logs
	noCalls         time.Time               // until then it is not asked for calls: it does not serve eth_call (call.go)
	refused         int                     // how often in a row it said so
	raw             rawState

	announced announced // its newest head (announce.go)
	asking    *asking   // the running request for it; nil: none

	head          uint64           // the newest block that it is known to have
	behind        bool             // its last head was lower than another endpoint's
	doubt         time.Time        // until then each of its heads needs confirmation
	confirmedHead common.Hash      // its last head that was confirmed
	claims        [tags]claim      // its finalized and its safe block
	vouched       uint64           // the highest block that it ever called finalized
	turns         [turns]time.Time // when each kind of request was last sent to it
	// slowUntil is how long other endpoints are preferred for each kind of request.
	slowUntil [turns]time.Time
}

func newEndpoint(c *Client, cfg Endpoint, i int) *endpoint {
	u, _ := url.Parse(cfg.URL) // Validate has parsed it
	e := &endpoint{name: cfg.Name, client: c, url: cfg.URL, limiter: rate.NewLimiter(rate.Inf, 0), slots: semaphore.NewWeighted(int64(c.cfg.Parallel)), limits: newLimits(c.cfg), patience: opinionPatience, bigTurn: make(chan struct{}, 1), receiptFailures: map[common.Hash]*streak{}, large: make(chan struct{}, 1)}
	if e.name == "" {
		e.name = u.Host
		for _, other := range c.endpoints {
			if other.name == e.name {
				e.name = fmt.Sprintf("%s#%d", u.Host, i)
			}
		}
	}
	if cfg.Rate > 0 {
		e.limiter = rate.NewLimiter(rate.Limit(cfg.Rate), max(c.cfg.MaxBatch, int(math.Ceil(cfg.Rate))))
	}
	e.http = newHTTPClient(u.Hostname(), c.cfg)
	if strings.HasPrefix(u.Scheme, "ws") {
		e.url, e.ws = "", newSocket(e, cfg.URL)
	} else if cfg.WS != "" {
		e.ws = newSocket(e, cfg.WS)
	}
	return e
}

// call is one request of a batch. params is the JSON array; result is called with the scanner at the result.
type call struct {
	method string
	params []byte
	bytes  int // maximum size of the result; 0: Config.MaxBody
	result func(*scanner) error
	failed func(*Error) bool // handles an error of this call; nil or false: the error fails the batch
}

// atOnce sends calls in one request that does not adapt the batch limit: the results of these calls are large. If it
// fails, the calls are to be sent separately, and are for a while.
func (e *endpoint) atOnce(ctx context.Context, calls []call) error {
	err := e.prove(ctx)
	if err == nil && len(calls) > e.limits.batch.now() {
		err = &statusError{status: http.StatusRequestEntityTooLarge}
	} else if err == nil {
		err = e.send(ctx, calls)
	}
	if err != nil && ctx.Err() == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.separateUntil = time.Now().Add(apartFor)
	}
	return err
}

// do sends calls, as many in one request as the endpoint accepts, and decodes the replies. A single call is not
// sent as a batch, since some nodes accept none. A failed batch is not repeated unchanged.
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
				return err // the endpoint may be down: use another one, and this one later with fewer calls
			}
		}
	}
	return nil
}

// tooMany reports whether fewer calls may succeed. An error about a range of logs needs a smaller range
// instead.
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
	if n := min(len(calls), max(e.limiter.Burst(), 1)); isVote(ctx) {
		e.limiter.ReserveN(time.Now(), n)
	} else {
		if err := e.waitForRate(ctx, n); err != nil {
			return err
		}
		if err := e.slots.Acquire(ctx, 1); err != nil {
			return err
		}
		defer e.slots.Release(1)
	}
	ctx, cancel := context.WithTimeout(ctx, e.client.cfg.Timeout)
	defer cancel()
	n := uint64(len(calls))
	base := e.ids.Add(n) - n + 1
	started := time.Now()
	body, release, err := e.roundTrip(ctx, base, n, encode(base, calls), e.bound(calls))
	if err == nil {
		err = decode(body, base, calls)
		release()
	}
	e.client.metrics.requests.WithLabelValues(e.name, calls[0].method).Inc()
	took := time.Since(started)
	e.client.metrics.seconds.WithLabelValues(e.name).Observe(took.Seconds())
	e.measured(took, err == nil)
	return err
}

// RecheckChain makes each endpoint's chain ID be checked again before any other request: its URL may serve another
// chain by now, whose blocks link to nothing.
func (c *Client) RecheckChain() {
	for _, e := range c.endpoints {
		e.mu.Lock()
		e.proved = false
		e.mu.Unlock()
	}
}

// prove checks the chain ID, once and after every failure.
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

// load counts what the endpoint was chosen for, running or waiting.
func (e *endpoint) load(n int) {
	e.mu.Lock()
	e.inflight += n
	e.mu.Unlock()
}

// measured records the duration of a request. One that failed, or was called off, counts if it took longer than usual.
func (e *endpoint) measured(d time.Duration, answered bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !answered && d < e.latency {
		return
	}
	if e.latency == 0 {
		e.latency = d
	}
	e.latency += (d - e.latency) / 8
}

// slowFor is how long others are preferred to an endpoint that was slower.
const slowFor = 10 * time.Second

// slow records that another endpoint, asked later, answered a kind of request first. It counts as an error in the
// metrics: otherwise an endpoint that never answers would not show while another one is always faster.
func (e *endpoint) slow(kind turn) {
	e.client.metrics.errors.WithLabelValues(e.name, "slow").Inc()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.slowUntil[kind] = time.Now().Add(slowFor)
}

// well records a valid response. Each cancels one failure, so an endpoint that fails every other time stays
// paused.
func (e *endpoint) well() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failures = max(0, e.failures-1)
}

// Bounds of an endpoint's pause.
const (
	minRest   = 50 * time.Millisecond
	maxRest   = 5 * time.Second        // an endpoint that recovers is used again within this time
	aloneRest = 250 * time.Millisecond // at most, after a lie of the only endpoint: there is no other to ask
	longRest  = time.Second            // after a lie about transactions, which takes up to three calls to detect

	apartFor = time.Minute // transactions and receipts are fetched separately after a joint request failed
)

// failed records an error and pauses the endpoint accordingly. It logs the first error of a series; callers just use
// another endpoint.
func (e *endpoint) failed(err error) {
	c := classify(err)
	e.client.metrics.errors.WithLabelValues(e.name, c.String()).Inc()
	if l, ok := errors.AsType[*lie](err); ok {
		e.client.metrics.lies.WithLabelValues(e.name, l.kind).Inc()
	}
	if c == classState || c == classUnsigned || errors.Is(err, errNoReceipts) || errors.Is(err, errNoLogs) || errors.Is(err, errNotServed) {
		return // it can still answer everything else
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failures++
	d := min(minRest<<min(e.failures-1, 16), maxRest)
	d += rand.N(d / 4)
	switch c {
	case classGone:
		d = minRest // it probably just lags
	case classLie:
		l, _ := errors.AsType[*lie](err)
		switch {
		case e.client.only():
			d = min(d, aloneRest) // its next response may be right
			if l.kind == lieRoot || l.kind == lieHash {
				d = longRest
			}
		case l.kind == lieFork:
			d = e.forked()
		case l.relative():
			d = minRest // the other endpoint may be the liar
		}
		d = max(d, time.Duration(l.calls)*time.Second/eachRate)
	case classOther:
		e.proved = false // the node may have been replaced
	case classRate:
		var status *statusError
		if errors.As(err, &status) && status.retry > 0 {
			d = min(status.retry, time.Minute)
		} else {
			d = max(d, time.Second)
		}
		e.throttle = time.Now().Add(d)
	default:
	}
	e.restFor(d)
	if e.failures == 1 || c == classLie && e.newLie(err) {
		e.client.log.Warn("endpoint failed", zap.String("endpoint", e.name), zap.Stringer("class", c), zap.Duration("rest", d), zap.Error(e.redact(err)))
	}
}

// lieAgain is how often the same lie of an endpoint is logged: a stuck endpoint repeats it with every poll.
const lieAgain = time.Minute

// newLie reports whether a lie is to be logged. The caller holds mu.
func (e *endpoint) newLie(err error) bool {
	l, _ := errors.AsType[*lie](err)
	if l.kind == e.lie && time.Since(e.liedAt) < lieAgain {
		return false
	}
	e.lie, e.liedAt = l.kind, time.Now()
	return true
}

// restFor pauses the endpoint. The caller holds mu.
func (e *endpoint) restFor(d time.Duration) {
	if until := time.Now().Add(d); until.After(e.rest) {
		e.rest = until
	}
}

// redact removes the URL, which may contain a key, from an error's text.
func (e *endpoint) redact(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// score orders the available endpoints by their expected response time, including queued requests.
func (e *endpoint) score(now time.Time) (resting time.Duration, score float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return max(0, e.rest.Sub(now)), float64(e.latency+time.Millisecond) * float64(1+e.inflight) * float64(1+e.failures)
}
