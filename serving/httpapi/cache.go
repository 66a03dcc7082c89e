package httpapi

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// responseCache caches the responses whose handlers say how long they are fresh (Response.FreshWhile). They
// answer all requests for the same path with the same parameters, in whatever order and encoding.
//
// Invariants:
//  1. The responses in now, and those in old, each use at most half of the bound.
//  2. Each time before a response is served it is checked whether it is still fresh.
//  3. If it is not, one of the waiting requests at a time calls the handler: a flight. The others wait for it,
//     for a bounded time. They use its response if that is still fresh, or if the flight began after they
//     arrived: then it is as recent as a response of their own would be. Without the second rule, nobody would
//     be served when a response is outdated as soon as it is computed, and calling the handler for each
//     request would be even slower.
//  4. A flight waits for no block. A request that is ahead, as its least block is one that answers are not as of yet,
//     calls the handler for itself alone: the others would wait with it, and get a response as of a block that their next
//     one may be before.
type responseCache struct {
	half     int64         // half of the bound, in bytes
	patience time.Duration // how long a request waits for another one's flight
	bytes    prometheus.Gauge

	mu               sync.Mutex
	now, old         map[cacheKey]*cachedResponse // responses in old that are not requested before now is full are dropped
	nowSize, oldSize int64
	flights          map[cacheKey]*flight
}

// cacheKey is a path and the canonical form of its parameters (Request.canonicalQuery).
type cacheKey struct{ path, query string }

// cachedResponse is a response with status 200, without what differs between requests: the request ID and the
// encoding.
type cachedResponse struct {
	*payload

	fresh  func() bool
	header []header
	route  string
	block  uint64 // Response.Block
	size   int64

	metrics *routeMetrics

	sending sync.Mutex
	readers int // to whom it is being sent
}

func newResponseCache(bound int64, bytes prometheus.Gauge) *responseCache {
	return &responseCache{
		half: bound / 2, patience: time.Second, bytes: bytes,
		now: map[cacheKey]*cachedResponse{}, flights: map[cacheKey]*flight{},
	}
}

// cacheable is false for requests that cannot be answered from the cache.
func cacheable(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.ContentLength == 0
}

// get returns a fresh response or nil; found reports whether there is one, fresh or not.
func (c *responseCache) get(key cacheKey) (res *cachedResponse, found bool) {
	c.mu.Lock()
	if res = c.now[key]; res == nil {
		if res = c.old[key]; res != nil {
			c.insert(key, res)
		}
	}
	c.mu.Unlock()
	if res == nil || res.fresh() {
		return res, res != nil
	}
	return nil, true
}

func (c *responseCache) put(key cacheKey, res *cachedResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.insert(key, res)
}

// insert must be called with the lock held.
func (c *responseCache) insert(key cacheKey, res *cachedResponse) {
	if last := c.now[key]; last != nil {
		delete(c.now, key)
		c.nowSize -= last.size
	}
	if last := c.old[key]; last != nil {
		delete(c.old, key)
		c.oldSize -= last.size
	}
	if res.size <= c.half {
		if c.nowSize+res.size > c.half {
			c.old, c.oldSize = c.now, c.nowSize
			c.now, c.nowSize = map[cacheKey]*cachedResponse{}, 0
		}
		c.now[key] = res
		c.nowSize += res.size
	}
	c.bytes.Set(float64(c.nowSize + c.oldSize))
}

// flight is a call of the handler on behalf of all requests that wait for the response.
type flight struct {
	landed chan struct{}
	res    *cachedResponse // set when the flight ends; nil: the handler failed, or the response cannot be cached
}

// join is called after a miss. It returns a response that another request has brought meanwhile, or nil: then the
// caller must call the handler and pass the result to land. known reports whether there is a response, fresh or not.
func (c *responseCache) join(ctx context.Context, key cacheKey, ahead bool) (res *cachedResponse, land func(*cachedResponse), known bool) {
	nobodyWaits := func(*cachedResponse) {}
	if res, known = c.get(key); res != nil || !known || ahead {
		return res, nobodyWaits, known
	}
	patience := time.NewTimer(c.patience)
	defer patience.Stop()
	for since := false; ; since = true { // since: the flight began after this request arrived
		c.mu.Lock()
		f := c.flights[key]
		if f == nil {
			f = &flight{landed: make(chan struct{})}
			c.flights[key] = f
			c.mu.Unlock()
			res, _ = c.get(key) // it may have arrived since the first lookup
			return res, func(res *cachedResponse) {
				f.res = res
				c.mu.Lock()
				delete(c.flights, key)
				c.mu.Unlock()
				close(f.landed)
			}, true
		}
		c.mu.Unlock()
		select {
		case <-f.landed:
			if res = f.res; res != nil && (since || res.fresh()) {
				return res, nobodyWaits, true
			}
		case <-patience.C:
			return nil, nobodyWaits, true
		case <-ctx.Done():
			return nil, nobodyWaits, true
		}
	}
}

// fill caches a response if its handler allows that.
func (a *API) fill(x *exchange, key cacheKey, path string) {
	if x.res.FreshWhile == nil || x.res.Status != http.StatusOK || x.res.Stream != nil {
		return
	}
	a.complete(&x.res)
	x.cached = a.newCachedResponse(key, path, x)
	a.cache.put(key, x.cached)
}

// cacheOverhead estimates the size of a response besides its body.
const cacheOverhead = 2 << 10

// newCachedResponse copies the body, which is pooled. The size of its compressed form is counted in advance, at
// the maximum.
func (a *API) newCachedResponse(key cacheKey, route string, x *exchange) *cachedResponse {
	res := &x.res
	cached := &cachedResponse{
		payload: newPayload(bytes.Clone(res.Body)), fresh: res.FreshWhile, route: route, block: res.Block,
		size:    int64(cacheOverhead + 2*len(res.Body) + len(key.path) + len(key.query)),
		metrics: a.metrics.of(route),
		header:  make([]header, 0, len(res.Header)),
	}
	for name, value := range res.Header {
		if !slices.Contains(x.own, name) {
			cached.header = append(cached.header, header{name, value})
		}
	}
	return cached
}
