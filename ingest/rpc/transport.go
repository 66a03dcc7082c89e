package rpc

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// transport is how requests reach an endpoint that has HTTP and a WebSocket: by HTTP, where a large response holds up no
// other, or by the WebSocket while HTTP is down and the WebSocket is connected. So the endpoint fails only if both do.
type transport struct {
	down atomic.Bool  // HTTP is down: the WebSocket is used
	mute atomic.Int32 // requests by HTTP in a row that were not answered within the timeout
}

// muteAfter is how many requests in a row HTTP does not answer until it counts as down.
const muteAfter = 3

// roundTrip sends a request; over HTTP a response of more than most bytes is cut off.
func (e *endpoint) roundTrip(ctx context.Context, base, n uint64, body []byte, most int) ([]byte, func(), error) {
	switch {
	case e.url == "":
		return e.ws.roundTrip(ctx, base, n, body)
	case e.ws == nil:
		return e.post(ctx, body, most)
	}
	if e.over.down.Load() {
		if c := e.ws.connected(); c != nil {
			return c.roundTrip(ctx, base, n, body)
		}
		e.useHTTP()
		return nil, nil, errClosed // by HTTP the chain ID is checked first
	}
	began := time.Now()
	answer, release, err := e.post(ctx, body, most)
	if !e.lostHTTP(ctx, err, time.Since(began)) {
		return answer, release, err
	}
	c := e.ws.connected()
	if c == nil {
		return nil, nil, err
	}
	if !e.over.down.Swap(true) {
		e.client.log.Warn("requests go over the WebSocket: HTTP is down", zap.String("endpoint", e.name), zap.Error(e.redact(err)))
	}
	if ctx.Err() != nil {
		return nil, nil, err
	}
	return c.roundTrip(ctx, base, n, body)
}

// lostHTTP reports whether a request by HTTP, which took so long, failed because HTTP is down, and not because of what
// was asked.
func (e *endpoint) lostHTTP(ctx context.Context, err error, took time.Duration) bool {
	if errors.Is(ctx.Err(), context.Canceled) {
		return false
	}
	if status, ok := errors.AsType[*statusError](err); ok {
		e.over.mute.Store(0)
		switch status.status {
		case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusBadGateway, http.StatusServiceUnavailable:
			return classify(err) == classOther
		}
		return false
	}
	if _, unsent := errors.AsType[*url.Error](err); !unsent {
		e.over.mute.Store(0)
		return false
	}
	if ctx.Err() != nil { // the time was up
		return took >= e.client.cfg.Timeout/2 && e.over.mute.Add(1) >= muteAfter
	}
	return true
}

// retryHTTP uses HTTP again if it answers. Its chain ID is checked before any other request.
func (e *endpoint) retryHTTP(ctx context.Context) {
	if e.url == "" || !e.over.down.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, min(e.client.cfg.Timeout, pingEvery)) // the next ping is due
	defer cancel()
	id := e.ids.Add(1)
	began := time.Now()
	_, release, err := e.post(ctx, encode(id, []call{{method: "eth_chainId", params: []byte("[]")}}), maxSmall)
	if err == nil {
		release()
	}
	if ctx.Err() != nil || e.lostHTTP(ctx, err, time.Since(began)) {
		return
	}
	e.useHTTP()
}

// useHTTP ends the use of the WebSocket for requests, if it was used.
func (e *endpoint) useHTTP() {
	if !e.over.down.Load() {
		return
	}
	e.mu.Lock()
	e.proved = false
	e.mu.Unlock()
	e.over.mute.Store(0)
	e.over.down.Store(false)
}
