package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"go.uber.org/zap"
)

// complete adds the headers that do not depend on the request.
func (a *API) complete(res *Response) {
	for _, f := range a.fixed {
		if res.Header[f.name] == nil {
			res.Header[f.name] = f.value
		}
	}
	if a.opt.NoStore && res.Header["Cache-Control"] == nil {
		res.Header["Cache-Control"] = noStore
	}
	res.complete()
}

// write turns the outcome into bytes on the connection.
func (a *API) write(w http.ResponseWriter, r *http.Request, x *exchange, err error) {
	res := &x.res
	if err != nil {
		res.fail(a.shown(r, x, err), a.opt.Retryable)
	}
	a.complete(res)
	res.Header["X-Request-Id"] = []string{x.req.ID}
	var body []byte
	if res.Status != http.StatusNoContent && res.Stream == nil {
		res.Status, body = newPayload(res.Body).form(res.Status, r, res.Header)
	}
	res.written = send(w, r, res.Status, body, x.client)
}

// writeCached writes a cached response, the first time too.
func (a *API) writeCached(w http.ResponseWriter, r *http.Request, answer *cachedResponse, from *client, id string, started time.Time) {
	h := w.Header()
	for _, f := range answer.header {
		h[f.name] = f.value
	}
	h["X-Request-Id"] = []string{id}
	status, body := answer.form(http.StatusOK, r, h)
	written := send(w, r, status, body, from)
	took := time.Since(started)
	if status == http.StatusOK && r.Method == http.MethodGet {
		answer.metrics.requests.Inc()
		answer.metrics.seconds.Observe(took.Seconds())
	} else {
		a.metrics.observe(answer.route, r.Method, status, took)
	}
	a.record(r, id, answer.route, status, written, took)
}

// send writes a response.
func send(w http.ResponseWriter, r *http.Request, status int, body []byte, from *client) (written int) {
	from.sends(len(body))
	w.WriteHeader(status)
	if len(body) > 0 && r.Method != http.MethodHead {
		_, _ = w.Write(body) // an error means that the client is gone
	}
	return len(body)
}

func (a *API) answered(path string, err error) {
	if a.opt.Answered != nil {
		a.opt.Answered(path, err)
	}
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
	path := zap.String("path", r.URL.Path)
	if a.opt.Private {
		path = zap.Skip()
	}
	a.log.Error("request failed", zap.String("request_id", x.req.ID), path, zap.Error(err))
	return &Error{Code: Internal}
}

// record writes the line of the access log.
func (a *API) record(r *http.Request, id, route string, status, bytes int, took time.Duration) {
	level := zap.InfoLevel
	if status >= http.StatusInternalServerError {
		level = zap.WarnLevel
	}
	if entry := a.access.Check(level, "request"); entry != nil {
		query := zap.String("query", r.URL.RawQuery)
		if a.opt.Private {
			query = zap.Skip()
		}
		entry.Write(zap.String("request_id", id), zap.String("method", methodName(r.Method)), zap.String("route", route),
			query, zap.Int("status", status), zap.Int("bytes", bytes),
			zap.Duration("took", took), zap.String("remote", r.RemoteAddr))
	}
}

// statusClientGone is how logs and metrics show that the caller left before the answer (as nginx does).
const statusClientGone = 499
