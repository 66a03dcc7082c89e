// Package httpapi is what every HTTP service of Lienstream has in common: routing on gorilla/mux, one
// table of errors, strict parameters, authenticated cursors, limits, ETag, gzip, CORS, logs and metrics.
// It must not know a resource of any service, nor where their answers come from.
package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Handler answers a request by filling in res, or returns an error of the table. It must keep neither
// req nor res: both are used again for the next request.
type Handler func(ctx context.Context, req *Request, res *Response) error

// Route is an operation: a method on a path. GET answers HEAD too, and OPTIONS needs no route.
type Route struct {
	Method string
	Path   string   // a template of gorilla/mux: "/deals/{id}"
	Query  []string // the query parameters that there are; any other is refused
	Handle Handler
}

// Options are what one service tells the framework about itself.
type Options struct {
	Service    string // names it in metrics, logs and cursors: "indexer"
	Deployment string // keys the cursors where no secret is configured, so that all nodes agree

	// Expose names the response headers of the service that browsers may read.
	Expose []string
	// Stamp completes the headers of an answer, after the handler and for errors too. Nil: nothing.
	Stamp func(ctx context.Context, h http.Header)

	Routes     []Route
	Logger     *zap.Logger
	Registerer prometheus.Registerer
}

// API is an http.Handler that serves the routes of one service.
//
// Invariants:
//  1. A response is written once, whole, after the handler returned: so a panic or an error can still
//     become a 500, every body has its ETag and length, and compression is decided by the real size. A
//     stream is the exception: its headers go out first, and what fails later ends it.
//  2. No detail of an error that is not in the table leaves the process; it is logged beside the
//     request ID that the caller has.
//  3. At most MaxInFlight requests are between start and end of ServeHTTP, and at most MaxStreams
//     streams beside them; further ones are refused without any work.
//  4. The labels of all metrics come from the routes and the table, never from a request.
//
// The chain is one function and not nested middleware: each layer would cost a closure, a wrapped
// writer and often a copy of the request, and the order of the checks is a part of the contract that
// should be read in one place.
type API struct {
	cfg       Config
	opt       Options
	log       *zap.Logger
	access    *zap.Logger
	metrics   *metrics
	cursors   *cursors
	kept      *kept
	router    *mux.Router
	endpoints map[string]*endpoint // by template
	literal   map[string]*endpoint // those without a variable, by path: no need to match
	fixed     []header             // on every response
	inFlight  atomic.Int64
	streams   atomic.Int64
	exchanges sync.Pool
}

// endpoint is a path with the operations on it.
type endpoint struct {
	path   string
	routes map[string]*Route // by method
	allow  []string          // the value of Allow
}

type header struct {
	name  string // canonical
	value []string
}

// exchange is a request and its response, pooled together.
type exchange struct {
	req  Request
	res  Response
	kept *keptAnswer // to be written instead of res
}

// New builds the API of a service. Routes that contradict each other are a bug: it panics.
func New(cfg Config, opt Options) *API {
	a := &API{
		cfg:       cfg,
		opt:       opt,
		log:       opt.Logger,
		metrics:   newMetrics(opt.Registerer, opt.Service),
		cursors:   newCursors(cfg.CursorSecret, opt.Service+"/"+opt.Deployment),
		router:    mux.NewRouter(),
		endpoints: make(map[string]*endpoint),
		literal:   make(map[string]*endpoint),
		fixed:     fixedHeaders(opt.Expose),
		exchanges: sync.Pool{New: func() any { return new(exchange) }},
	}
	a.kept = newKept(cfg.MaxKeptBytes, a.metrics.kept)
	// A line for each request would cost more than many of the answers.
	a.access = opt.Logger.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Second, accessLogFirst, accessLogThereafter)
	}))
	for i := range opt.Routes {
		a.add(&opt.Routes[i])
	}
	if cfg.CursorSecret == "" {
		a.log.Warn("no cursor secret is configured: cursors are keyed by the deployment's name, so anyone can make one that is valid")
	}
	return a
}

const (
	accessLogFirst      = 10  // lines a second
	accessLogThereafter = 500 // then every so many requests one
)

func (a *API) add(route *Route) {
	e := a.endpoints[route.Path]
	if e == nil {
		e = &endpoint{path: route.Path, routes: make(map[string]*Route)}
		a.endpoints[route.Path] = e
		if !strings.Contains(route.Path, "{") {
			a.literal[route.Path] = e
		}
		a.router.Path(route.Path).Name(route.Path)
	}
	if e.routes[route.Method] != nil || len(route.Query) > maxQuery {
		panic(fmt.Sprintf("route %s %s: a second one, or more than %d query parameters", route.Method, route.Path, maxQuery))
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

// ServeHTTP answers one request: repeat what is kept, or decide, write, observe.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	started := time.Now()
	busy := a.inFlight.Add(1) > int64(a.cfg.MaxInFlight)
	if q, ok := questionOf(r); ok && !busy {
		if answer, _ := a.kept.current(q); answer != nil {
			a.metrics.repeated.Inc()
			a.repeat(w, r, answer, requestID(r), started)
			a.inFlight.Add(-1)
			return
		}
	}
	x := a.exchanges.Get().(*exchange)
	x.req.reset(a, r)
	x.res.reset(w.Header())
	x.kept = nil
	a.serve(w, r, x, busy, started)
	if cap(x.res.Body) <= maxPooledBody {
		a.exchanges.Put(x)
	}
}

func (a *API) serve(w http.ResponseWriter, r *http.Request, x *exchange, busy bool, started time.Time) {
	var (
		route = unmatched
		err   error
	)
	if busy {
		a.metrics.refused.Inc()
		err = &Error{Code: UpstreamUnavailable, Message: "too many requests at once, ask again shortly"}
	} else {
		route, err = a.answer(w, r, x)
	}
	if x.kept != nil {
		a.repeat(w, r, x.kept, x.req.ID, started)
		a.inFlight.Add(-1)
		return
	}
	streams := err == nil && x.res.Stream != nil && r.Method != http.MethodHead
	if streams {
		err = a.enterStream()
	}
	a.write(w, r, x, err)
	a.inFlight.Add(-1)
	took := time.Since(started)
	if streams && err == nil {
		a.stream(w, r, x)
	}
	status := x.res.Status
	if err != nil && r.Context().Err() != nil {
		status = statusClientGone
	}
	a.metrics.observe(route, r.Method, status, took)
	a.record(r, x.req.ID, route, status, x.res.written, took)
}

// unmatched is the route label of a request that met no route.
const unmatched = "unmatched"

// answer decides the response: x.kept, where it is kept, or x.res. It returns the template of the route that it
// met.
func (a *API) answer(w http.ResponseWriter, r *http.Request, x *exchange) (route string, err error) {
	route = unmatched
	done := func(*keptAnswer) {}
	defer func() {
		if v := recover(); v != nil {
			a.metrics.panics.Inc()
			a.log.Error("handler panicked", zap.String("request_id", x.req.ID), zap.String("route", route),
				zap.Any("panic", v), zap.Stack("stack"))
			err = &Error{Code: Internal}
		}
		done(x.kept)
	}()
	ctx, cancel := context.WithTimeout(r.Context(), a.cfg.RequestTimeout)
	defer cancel()

	e, vars := a.match(r)
	if e == nil {
		err = &Error{Code: NotFound, Message: "there is no such path"}
	} else {
		route = e.path
		q, ok := questionOf(r)
		if ok {
			if x.kept, done = a.kept.renew(ctx, q); x.kept != nil {
				a.metrics.repeated.Inc()
				return route, nil
			}
		}
		err = a.dispatch(ctx, w, r, x, e, vars)
	}
	if a.opt.Stamp != nil {
		a.opt.Stamp(ctx, x.res.Header)
	}
	a.keep(r, x, route, err)
	return route, err
}

func (a *API) match(r *http.Request) (*endpoint, map[string]string) {
	if e := a.literal[r.URL.Path]; e != nil {
		return e, nil
	}
	var match mux.RouteMatch
	if !a.router.Match(r, &match) {
		return nil, nil
	}
	return a.endpoints[match.Route.GetName()], match.Vars
}

// keep keeps an answer whose handler allows it.
func (a *API) keep(r *http.Request, x *exchange, route string, err error) {
	q, ok := questionOf(r)
	if !ok || err != nil || x.res.KeepWhile == nil || x.res.Status != http.StatusOK || x.res.Stream != nil {
		return
	}
	a.complete(&x.res)
	x.kept = a.newKeptAnswer(q, route, &x.res)
	a.kept.keep(q, x.kept)
}

// dispatch holds the order of the checks: method, size, query, then what the handler looks at.
func (a *API) dispatch(ctx context.Context, w http.ResponseWriter, r *http.Request, x *exchange, e *endpoint, vars map[string]string) error {
	if r.Method == http.MethodOptions {
		x.res.preflight(e, r)
		return nil
	}
	route := e.routes[r.Method]
	if route == nil {
		x.res.Header["Allow"] = e.allow
		return &Error{Code: MethodNotAllowed, Message: "the methods of this path are " + e.allow[0]}
	}
	if r.ContentLength > a.cfg.MaxBodyBytes {
		return bodyTooLarge(a.cfg.MaxBodyBytes)
	}
	if r.ContentLength != 0 {
		r.Body = http.MaxBytesReader(w, r.Body, a.cfg.MaxBodyBytes)
	}
	if err := x.req.bind(route, vars); err != nil {
		return err
	}
	return route.Handle(ctx, &x.req, &x.res)
}

// complete adds the headers that do not depend on the request.
func (a *API) complete(res *Response) {
	for _, f := range a.fixed {
		if res.Header[f.name] == nil {
			res.Header[f.name] = f.value
		}
	}
	res.complete()
}

// write turns the outcome into bytes on the connection.
func (a *API) write(w http.ResponseWriter, r *http.Request, x *exchange, err error) {
	res := &x.res
	if err != nil {
		res.fail(a.shown(r, x, err))
	}
	a.complete(res)
	res.Header["X-Request-Id"] = []string{x.req.ID}
	var body []byte
	if res.Status != http.StatusNoContent && res.Stream == nil {
		res.Status, body = newPayload(res.Body).form(res.Status, r, res.Header)
	}
	res.written = send(w, r, res.Status, body)
}

// repeat writes an answer that is kept. It is what writes it the first time, too.
func (a *API) repeat(w http.ResponseWriter, r *http.Request, answer *keptAnswer, id string, started time.Time) {
	h := w.Header()
	for _, f := range answer.header {
		h[f.name] = f.value
	}
	h["X-Request-Id"] = []string{id}
	status, body := answer.form(http.StatusOK, r, h)
	written := send(w, r, status, body)
	took := time.Since(started)
	if status == http.StatusOK && r.Method == http.MethodGet {
		answer.requests.Inc()
		answer.seconds.Observe(took.Seconds())
	} else {
		a.metrics.observe(answer.route, r.Method, status, took)
	}
	a.record(r, id, answer.route, status, written, took)
}

func send(w http.ResponseWriter, r *http.Request, status int, body []byte) (written int) {
	w.WriteHeader(status)
	if len(body) > 0 && r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client is gone: there is nobody to tell
	}
	return len(body)
}

// shown maps an error to the one that the caller sees, and logs what it must not see.
func (a *API) shown(r *http.Request, x *exchange, err error) *Error {
	var (
		known *Error
		large *http.MaxBytesError
	)
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &large):
		return bodyTooLarge(large.Limit)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &Error{Code: UpstreamUnavailable, Message: "the answer took too long, ask again shortly"}
	}
	a.log.Error("request failed", zap.String("request_id", x.req.ID), zap.String("path", r.URL.Path), zap.Error(err))
	return &Error{Code: Internal}
}

// record writes the line of the access log.
func (a *API) record(r *http.Request, id, route string, status, bytes int, took time.Duration) {
	level := zap.InfoLevel
	if status >= http.StatusInternalServerError {
		level = zap.WarnLevel
	}
	if entry := a.access.Check(level, "request"); entry != nil {
		entry.Write(zap.String("request_id", id), zap.String("method", r.Method), zap.String("route", route),
			zap.String("query", r.URL.RawQuery), zap.Int("status", status), zap.Int("bytes", bytes),
			zap.Duration("took", took), zap.String("remote", r.RemoteAddr))
	}
}

// statusClientGone is how logs and metrics show that the caller left before the answer (as nginx does).
const statusClientGone = 499

func bodyTooLarge(limit int64) *Error {
	return &Error{Code: BodyTooLarge, Message: "the body may have at most " + strconv.FormatInt(limit, 10) + " bytes"}
}
