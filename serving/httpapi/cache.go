package httpapi

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// responseCache has the responses whose handlers said for how long they are fresh (Response.FreshWhile). They
// answer everybody who asks for the same path with the same parameters, however they are spelt.
//
// Invariants:
//  1. The responses in now, and those in old, are at most half of the bound each.
//  2. A response is asked whether it is still fresh each time that it is served.
//  3. Of those who ask for one that no longer is, one at a time asks the handler: a flight. The others wait for it,
//     but not long. They take what it brings if that is still fresh, or if the flight began after they came: then
//     it is as true as if they had asked. Without the second, nobody would ever be served where a response changes
//     as fast as it is made, and all asking at once would only be slower.
type responseCache struct {
	half     int64         // of the bound, in bytes
	patience time.Duration // of a request that waits for the flight of another
	bytes    prometheus.Gauge

	mu               sync.Mutex
	now, old         map[cacheKey]*cachedResponse // what nobody asks for while now fills up is forgotten
	nowSize, oldSize int64
	flights          map[cacheKey]*flight
}

// cacheKey is a path and the canonical text of its parameters (Request.canonicalQuery).
type cacheKey struct{ path, query string }

// cachedResponse is a response with status 200, but for what differs from one to the next: the request's ID, and
// the form of the body.
type cachedResponse struct {
	*payload

	fresh  func() bool
	header []header
	route  string
	size   int64

	requests prometheus.Counter // of GET with 200, the usual
	seconds  prometheus.Observer
}

func newResponseCache(bound int64, bytes prometheus.Gauge) *responseCache {
	return &responseCache{
		half: bound / 2, patience: time.Second, bytes: bytes,
		now: map[cacheKey]*cachedResponse{}, flights: map[cacheKey]*flight{},
	}
}

// cacheable is false for a request that no cached response is for.
func cacheable(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.ContentLength == 0
}

// get returns the response if it is there and fresh, else nil; found says that it is there.
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

// insert is called with the lock held.
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

// flight is one request to the handler, for all who wait for the same response.
type flight struct {
	landed chan struct{}
	res    *cachedResponse // once it landed; nil: the handler failed, or its response is not for the cache
}

// join is for who found no fresh response. It returns one that another request brought meanwhile, or nil: then the
// caller asks the handler, and tells land what it got.
func (c *responseCache) join(ctx context.Context, key cacheKey) (res *cachedResponse, land func(*cachedResponse)) {
	nobodyWaits := func(*cachedResponse) {}
	if res, found := c.get(key); res != nil || !found {
		return res, nobodyWaits
	}
	patience := time.NewTimer(c.patience)
	defer patience.Stop()
	for since := false; ; since = true { // since: the flight began after we came
		c.mu.Lock()
		f := c.flights[key]
		if f == nil {
			f = &flight{landed: make(chan struct{})}
			c.flights[key] = f
			c.mu.Unlock()
			res, _ = c.get(key) // it may have come between the first look and now
			return res, func(res *cachedResponse) {
				f.res = res
				c.mu.Lock()
				delete(c.flights, key)
				c.mu.Unlock()
				close(f.landed)
			}
		}
		c.mu.Unlock()
		select {
		case <-f.landed:
			if res = f.res; res != nil && (since || res.fresh()) {
				return res, nobodyWaits
			}
		case <-patience.C:
			return nil, nobodyWaits
		case <-ctx.Done():
			return nil, nobodyWaits
		}
	}
}

// cacheOverhead is about what a response costs beside its body.
const cacheOverhead = 2 << 10

// newCachedResponse copies the body, which is pooled. Its compressed form is counted before it is made, at its worst.
func (a *API) newCachedResponse(key cacheKey, route string, res *Response) *cachedResponse {
	cached := &cachedResponse{
		payload: newPayload(bytes.Clone(res.Body)), fresh: res.FreshWhile, route: route,
		size:     int64(cacheOverhead + 2*len(res.Body) + len(key.path) + len(key.query)),
		requests: a.metrics.requests.WithLabelValues(route, http.MethodGet, "200"), seconds: a.metrics.seconds.WithLabelValues(route),
	}
	for name, value := range res.Header {
		cached.header = append(cached.header, header{name, value})
	}
	return cached
}
