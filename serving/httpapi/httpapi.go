// Package httpapi is the common part of all HTTP services: routing with gorilla/mux, uniform errors, strict
// parameters, authenticated cursors, limits, ETag, gzip, CORS, logs and metrics. It must not know any service's
// resources.
package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Handler fills in res for a request, or returns an *Error. It must keep neither req nor res: both are reused.
type Handler func(ctx context.Context, req *Request, res *Response) error

// Route is an operation: a method on a path. GET includes HEAD, and OPTIONS needs no route.
type Route struct {
	Method string
	Path   string   // a template of gorilla/mux: "/items/{id}"
	Query  []string // the allowed query parameters
	Handle Handler

	AnyQuery bool // for pages: ignore other parameters, such as utm_source

	MaxBodyBytes int64 // 0: as configured
}

// Options are the service-specific settings.
type Options struct {
	Service    string // a short plain name, in metrics, logs and cursors
	Deployment string // key of the cursors if no secret is configured

	// Expose names the response headers that browsers may read.
	Expose []string
	// Allow names the request headers that browsers may send.
	Allow []string
	// MinBlock names the query parameter with the least block that an answer may be as of; empty: there is none.
	MinBlock string
	// Block is the block that answers are as of now; required with MinBlock.
	Block func(context.Context) uint64

	// Admit may refuse a request after routing, before its size and parameters are checked; it may set response
	// headers in any case. Nil: all are admitted.
	Admit func(ctx context.Context, route *Route, h http.Header) error
	// Answered, if not nil, is called for each answer, cached or not, with its route's path; err is nil for a success.
	Answered func(path string, err error)
	// Retryable says, in a field of each error, whether a retry may help. Nil: there is no such field.
	Retryable func(Code) bool
	// NoStore sets Cache-Control: no-store unless a handler sets it.
	NoStore bool
	// Private keeps the content of requests, except the route and an ID like ours, out of the logs: clients may send
	// secrets by mistake.
	Private bool

	// Stamp adds headers to every response, including errors, after the handler. Nil: none.
	Stamp func(ctx context.Context, h http.Header)

	Routes     []Route
	Logger     *zap.Logger
	Registerer prometheus.Registerer
}

// API is an http.Handler that serves the routes of one service.
//
// Invariants:
//  1. A response is written once, completely, after the handler returned: so a panic or an error can still
//     become a 500, every body has its ETag and length, and compression depends on the actual size. Streams
//     are the exception: their headers are sent first, and a later failure ends the stream.
//  2. The details of errors other than *Error never leave the process; they are logged with the request ID
//     that the client has.
//  3. At most MaxInFlight requests are in ServeHTTP, plus MaxStreams streams, each client with its share of
//     both; more are refused without any work. Those that wait for their client's other reads do not count.
//  4. Metric labels come from routes and codes, never from a request.
//
// The processing is one function and not nested middleware: each layer would cost a closure, a wrapped writer
// and often a copy of the request, and the order of the checks is part of the contract and should be in one
// place.
type API struct {
	cfg       Config
	opt       Options
	log       *zap.Logger
	access    *zap.Logger
	metrics   *metrics
	cursors   *cursors
	cache     *responseCache
	clients   *clients
	unsent    unsent
	routers   map[string]*mux.Router // of paths with variables, by firstSegment: one takes each of its paths in turn
	endpoints map[string]*endpoint   // by path template
	literal   map[string]*endpoint   // paths without variables, which need no matching
	fixed     []header               // for every response
	inFlight  atomic.Int64
	streams   atomic.Int64
	exchanges sync.Pool
}

// endpoint is a path and its operations.
type endpoint struct {
	path   string
	routes map[string]*Route // by method
	allow  []string          // the value of Allow
}

type header struct {
	name  string // canonical
	value []string
}

// exchange is a pooled pair of request and response.
type exchange struct {
	req    Request
	res    Response
	client *client         // the client; nil: without limits
	cached *cachedResponse // written instead of res
	own    []string        // names of headers that only this request's response has
}

// New builds the API of a service. It panics if routes contradict each other, or an option lacks another, which is a
// bug.
func New(cfg Config, opt Options) *API {
	if opt.MinBlock != "" && opt.Block == nil {
		panic(fmt.Sprintf("Options.Block: required with Options.MinBlock, which is %q", opt.MinBlock))
	}
	a := &API{
		cfg:       cfg,
		opt:       opt,
		log:       opt.Logger,
		unsent:    unsent{limit: cfg.MaxUnsentBytes},
		cursors:   newCursors(cfg.CursorSecret, opt.Service+"/"+opt.Deployment),
		routers:   make(map[string]*mux.Router),
		endpoints: make(map[string]*endpoint),
		literal:   make(map[string]*endpoint),
		fixed:     fixedHeaders(opt.Expose),
		clients:   newClients(cfg.Client, cfg.MaxConnections/4),
		exchanges: sync.Pool{New: func() any { return new(exchange) }},
	}
	a.metrics = newMetrics(opt.Registerer, opt.Service, &a.unsent.all)
	a.unsent.refused = a.metrics.unread
	a.cache = newResponseCache(cfg.MaxCacheBytes, a.metrics.cacheBytes)
	// Logging every request would cost more than many of the responses.
	a.access = opt.Logger.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Second, accessLogFirst, accessLogThereafter)
	}))
	for i := range opt.Routes {
		a.add(&opt.Routes[i])
	}
	if cfg.CursorSecret == "" {
		a.log.Warn("no cursor secret is configured: cursors are signed with the deployment's name, so anyone can forge them")
	}
	return a
}

const (
	accessLogFirst      = 10  // lines per second
	accessLogThereafter = 500 // then one in this many requests
)

func (a *API) add(route *Route) {
	e := a.endpoints[route.Path]
	if e == nil {
		e = &endpoint{path: route.Path, routes: make(map[string]*Route)}
		a.endpoints[route.Path] = e
		if !strings.Contains(route.Path, "{") {
			a.literal[route.Path] = e
		} else {
			first := firstSegment(route.Path)
			if a.routers[first] == nil {
				a.routers[first] = mux.NewRouter()
			}
			a.routers[first].Path(route.Path).Name(route.Path)
		}
	}
	if e.routes[route.Method] != nil || len(route.Query) > maxQuery {
		panic(fmt.Sprintf("route %s %s: a duplicate, or more than %d query parameters", route.Method, route.Path, maxQuery))
	}
	e.routes[route.Method] = route
	if route.Method == http.MethodGet {
		e.routes[http.MethodHead] = route
	}
	var allow []string
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if e.routes[m] != nil {
			allow = append(allow, m)
		}
	}
	e.allow = []string{strings.Join(append(allow, http.MethodOptions), ", ")}
}

// ServeHTTP handles a request: from the cache, or with a handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	started := time.Now()
	refusal := a.enter()
	from, hold, err := a.clients.enter(r)
	if err != nil {
		a.inFlight.Add(-1) // a waiting request takes no slot from the others
		hold(r.Context())
		a.inFlight.Add(1)
	}
	if refusal == nil {
		refusal = err
	}
	if cacheable(r) && refusal == nil && a.opt.Admit == nil && from.hasBudget() { // a canonical query needs no parsing
		if res, _ := a.cache.get(cacheKey{r.URL.Path, r.URL.RawQuery}); res != nil {
			if refusal = a.unsent.takeCached(from, res); refusal == nil {
				a.metrics.cacheHits.Inc()
				a.writeCached(w, r, res, from, a.requestID(r), started)
				a.unsent.giveCached(from, res)
				a.leave(from)
				return
			}
		}
	}
	x := a.exchanges.Get().(*exchange)
	x.req.reset(a, r)
	x.res.reset(w.Header())
	x.client, x.cached, x.own = from, nil, x.own[:0]
	a.serve(w, r, x, refusal, started)
	if cap(x.res.Body) <= maxPooledBody {
		a.exchanges.Put(x)
	}
}

// enter counts a request, over all clients.
func (a *API) enter() error {
	if a.inFlight.Add(1) > int64(a.cfg.MaxInFlight) {
		return &Error{Code: UpstreamUnavailable, Message: "too many requests at once, ask again shortly"}
	}
	return nil
}

func (a *API) leave(from *client) {
	a.inFlight.Add(-1)
	a.clients.leave(from)
}

func (a *API) serve(w http.ResponseWriter, r *http.Request, x *exchange, refusal error, started time.Time) {
	path, err := unmatched, refusal
	if refusal != nil {
		a.metrics.refused.Inc()
	} else {
		path, err = a.answer(w, r, x)
	}
	size, err := a.unsent.takeAnswer(x, err)
	if x.cached != nil {
		if cap(x.res.Body) > maxPooledBody {
			x.res.Body = nil // a client may take its copy slowly
		}
		a.writeCached(w, r, x.cached, x.client, x.req.ID, started)
		a.unsent.giveCached(x.client, x.cached)
		a.leave(x.client)
		a.answered(path, nil)
		return
	}
	streams := err == nil && x.res.Stream != nil && r.Method != http.MethodHead
	if streams {
		err = a.enterStream(x.client)
	}
	a.write(w, r, x, err)
	a.unsent.give(x.client, size)
	a.leave(x.client)
	took := time.Since(started)
	if streams && err == nil {
		a.stream(w, r, x)
	}
	a.answered(path, err)
	status := x.res.Status
	if err != nil && r.Context().Err() != nil {
		status = statusClientGone
	}
	a.metrics.observe(path, r.Method, status, took)
	a.record(r, x.req.ID, path, status, x.res.written, took)
}

// unmatched is the route label of requests without a route.
const unmatched = "unmatched"

// answer decides the response: x.cached or x.res. It returns the path template of the route.
func (a *API) answer(w http.ResponseWriter, r *http.Request, x *exchange) (path string, err error) {
	path = unmatched
	land := func(*cachedResponse) {}
	defer func() {
		if v := recover(); v != nil {
			a.metrics.panics.Inc()
			a.log.Error("handler panicked", zap.String("request_id", x.req.ID), zap.String("route", path),
				zap.Any("panic", v), zap.Stack("stack"))
			err = &Error{Code: Internal}
		}
		land(x.cached)
	}()
	ctx, cancel := context.WithTimeout(r.Context(), a.cfg.RequestTimeout)
	defer cancel()

	var (
		route *Route // nil: the response is decided without a handler
		key   cacheKey
		keep  bool // the response, if its handler allows that
	)
	if e, vars := a.match(r); e == nil {
		err = &Error{Code: NotFound, Message: "there is no such path"}
	} else {
		path = e.path
		route, err = a.admit(ctx, w, r, x, e, vars)
	}
	if route != nil && cacheable(r) {
		hasHalf := x.client.hasHalfBudget()
		a.inFlight.Add(-1) // nor does one that waits here
		err := x.client.read(ctx)
		a.inFlight.Add(1)
		if err != nil {
			return path, err
		}
		defer x.client.done()
		if least, err := x.req.leastBlock(); err == nil { // otherwise the handler says what is wrong
			key = cacheKey{r.URL.Path, x.req.canonicalQuery()}
			ahead := least > 0 && least > a.opt.Block(ctx)
			cached, end, known := a.cache.join(ctx, key, ahead)
			if cached == nil {
				land = end
			} else if end(cached); cached.block >= least {
				a.metrics.cacheHits.Inc()
				x.cached = cached
				return path, nil
			}
			keep = !ahead && (hasHalf || known) // a client that uses most of its budget must not evict others' entries from the cache
		}
	}
	if route != nil {
		began := time.Now()
		err = route.Handle(ctx, &x.req, &x.res)
		x.client.worked(time.Since(began))
	}
	if a.opt.Stamp != nil {
		a.opt.Stamp(ctx, x.res.Header)
	}
	if keep && err == nil {
		a.fill(x, key, path)
	}
	return path, err
}

func (a *API) match(r *http.Request) (*endpoint, map[string]string) {
	if e := a.literal[r.URL.Path]; e != nil {
		return e, nil
	}
	for _, first := range [...]string{firstSegment(r.URL.Path), ""} {
		var match mux.RouteMatch
		if router := a.routers[first]; router != nil && router.Match(r, &match) {
			return a.endpoints[match.Route.GetName()], match.Vars
		}
	}
	return nil, nil
}

// firstSegment is the first part of a path, or of a template; empty: it is a variable.
func firstSegment(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if strings.Contains(first, "{") {
		return ""
	}
	return first
}

// admit makes the checks before the handler in this order: method, the service's admission, size, query. It
// returns no route if the response is already decided.
func (a *API) admit(ctx context.Context, w http.ResponseWriter, r *http.Request, x *exchange, e *endpoint, vars map[string]string) (*Route, error) {
	if r.Method == http.MethodOptions {
		x.res.preflight(e, r, a.opt.Allow)
		return nil, nil
	}
	route := e.routes[r.Method]
	if route == nil {
		x.res.Header["Allow"] = e.allow
		return nil, &Error{Code: MethodNotAllowed, Message: "the methods of this path are " + e.allow[0]}
	}
	if a.opt.Admit != nil {
		err := a.opt.Admit(ctx, route, x.res.Header)
		for name := range x.res.Header {
			x.own = append(x.own, name)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := limitBody(w, r, cmp.Or(route.MaxBodyBytes, a.cfg.MaxBodyBytes)); err != nil {
		return nil, err
	}
	if err := x.req.bind(route, vars); err != nil {
		return nil, err
	}
	return route, nil
}
