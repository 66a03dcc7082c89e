package chain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/gorilla/websocket"
	"go.uber.org/zap"
)

// series is a number of consecutive failures, and the pause that follows from it. Polls of the head have their own,
// because a node may answer polls and stall on calls, and it keeps its vote while no calls are sent to it.
type series struct {
	failures int
	rest     time.Time
}

// endpoint is a node and its state.
type endpoint struct {
	client *Client
	name   string // the host, and a number where it has several: the rest of the URL may be secret
	host   string // with the port
	dial   func(context.Context) (*rpc.Client, error)
	http   *http.Client

	mu       sync.Mutex
	conn     *rpc.Client // nil: not connected
	proved   bool
	polls    series
	calls    series
	lacks    map[string]time.Time // methods that it refused as unsupported, and until when they count as missing
	closed   bool
	latest   uint64    // its latest block
	since    time.Time // when that was first seen
	lastVote time.Time // when it last voted about the head, or was first asked
	voted    voteState
	slow     time.Time // until when it is asked after faster ones
	doubted  bool      // two others contradicted it, and it has agreed with none since
}

func newEndpoint(c *Client, name, rawURL string, socket bool, dial DialFunc) *endpoint {
	e := &endpoint{client: c, name: name, lacks: map[string]time.Time{}}
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dial,
		TLSHandshakeTimeout:   c.cfg.Timeout,
		ResponseHeaderTimeout: c.cfg.Timeout,
		MaxIdleConnsPerHost:   c.cfg.Parallel,
		IdleConnTimeout:       time.Minute,
		ForceAttemptHTTP2:     true,
	}
	e.http = &http.Client{
		Transport: bounded{transport, c.cfg.MaxBody},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the node redirects: its URL is wrong")
		},
	}
	options := []rpc.ClientOption{rpc.WithHTTPClient(e.http), rpc.WithBatchItemLimit(c.cfg.MaxBatch)}
	if socket {
		options = []rpc.ClientOption{
			rpc.WithWebsocketDialer(websocket.Dialer{Proxy: http.ProxyFromEnvironment, NetDialContext: dial, HandshakeTimeout: c.cfg.Timeout}),
			rpc.WithWebsocketMessageSizeLimit(c.cfg.MaxBody),
		}
	}
	e.dial = func(ctx context.Context) (*rpc.Client, error) { return rpc.DialOptions(ctx, rawURL, options...) }
	return e
}

// bounded limits the size of a transport's response bodies.
type bounded struct {
	transport http.RoundTripper
	limit     int64
}

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.transport.RoundTrip(r)
	if err == nil {
		resp.Body = &boundedBody{ReadCloser: resp.Body, left: b.limit}
	}
	return resp, err
}

type boundedBody struct {
	io.ReadCloser
	left int64
}

var errTooLarge = errors.New("the response is too large")

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, errTooLarge
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n, errTooLarge
	}
	return n, err
}

// connection returns the connection, connecting if necessary. The node's chain ID is checked.
func (e *endpoint) connection(ctx context.Context) (*rpc.Client, error) {
	e.mu.Lock()
	conn, proved := e.conn, e.proved
	e.mu.Unlock()
	if conn == nil {
		var err error
		if conn, err = e.connect(ctx); err != nil {
			return nil, err
		}
	}
	if proved {
		return conn, nil
	}
	var id hexutil.Uint64
	if err := conn.CallContext(ctx, &id, "eth_chainId"); err != nil {
		return nil, fmt.Errorf("check the chain ID: %w", err)
	}
	if want := e.client.cfg.ChainID; uint64(id) != want {
		return nil, &ChainError{Got: uint64(id), Want: want}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.proved = true
	clear(e.lacks) // the node may have been replaced
	return conn, nil
}

func (e *endpoint) connect(ctx context.Context) (*rpc.Client, error) {
	conn, err := e.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		conn.Close()
		return nil, errors.New("the client is closed")
	case e.conn != nil: // another goroutine was faster
		conn.Close()
	default:
		e.conn = conn
	}
	return e.conn, nil
}

func (e *endpoint) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	if e.conn != nil {
		e.conn.Close()
		e.conn = nil
	}
	e.http.CloseIdleConnections()
}

// send sends one request. Its error is the endpoint's; the calls have their own errors.
func (e *endpoint) send(ctx context.Context, calls []rpc.BatchElem, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := e.connection(ctx)
	if err != nil {
		return err
	}
	e.client.metrics.requests.WithLabelValues(e.name).Inc()
	started := time.Now()
	if len(calls) == 1 { // some nodes accept no batches
		c := &calls[0]
		c.Error = conn.CallContext(ctx, c.Result, c.Method, c.Args...)
		if c.Error != nil && !saidByNode(c.Error) {
			return c.Error
		}
	} else if err := conn.BatchCallContext(ctx, calls); err != nil {
		return err
	}
	e.client.metrics.answered(e.name, time.Since(started))
	for i := range calls {
		if err := calls[i].Error; err != nil && !saidByNode(err) {
			return fmt.Errorf("%s: %w", calls[i].Method, err) // malformed or missing
		}
	}
	return nil
}

// saidByNode reports whether err is a JSON-RPC error from the node.
func saidByNode(err error) bool {
	_, ok := errors.AsType[rpc.Error](err)
	return ok
}

// Bounds of an endpoint's pause.
const (
	minRest = 100 * time.Millisecond
	maxRest = 10 * time.Second

	throttleRest = time.Second // providers count requests by the second
)

// failed pauses the endpoint after a failed request. The pause grows with the time that the request took and with each
// further failure. It logs the first failure of a series.
func (e *endpoint) failed(of *series, err error, took time.Duration) {
	if errors.Is(err, context.Canceled) {
		return // the caller cancelled
	}
	e.client.metrics.failures.WithLabelValues(e.name).Inc()
	e.mu.Lock()
	defer e.mu.Unlock()
	of.failures++
	e.proved = false // the node may have been replaced
	d := min(max(minRest, took)<<min(of.failures-1, 16), maxRest)
	d += rand.N(d / 4)
	e.pause(of, d)
	if of.failures == 1 {
		e.client.log.Warn("endpoint failed", zap.String("endpoint", e.name), zap.Duration("rest", d), zap.Error(redacted(err)))
	}
}

// pause stops requests for a while. If polls are paused, so are calls.
func (e *endpoint) pause(of *series, d time.Duration) {
	until := time.Now().Add(d)
	for _, s := range []*series{of, &e.calls} {
		if until.After(s.rest) {
			s.rest = until
		}
	}
}

// redacted removes the URL, which may contain a key, from an error's text.
func redacted(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	if h, ok := errors.AsType[rpc.HTTPError](err); ok {
		return errors.New("status " + clip(h.Status))
	}
	return err
}

// stoodStill notes the endpoint's latest block, and returns for how long it has been the same.
func (e *endpoint) stoodStill(latest uint64, now time.Time) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if latest != e.latest || e.since.IsZero() {
		e.latest, e.since = latest, now
	}
	return now.Sub(e.since)
}

// succeeded ends a series of failures.
func (e *endpoint) succeeded(of *series) {
	e.mu.Lock()
	defer e.mu.Unlock()
	of.failures = 0
}

// throttled pauses the endpoint, which responds but has been asked too often.
func (e *endpoint) throttled(of *series) {
	e.client.metrics.failures.WithLabelValues(e.name).Inc()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pause(of, throttleRest+rand.N(throttleRest/4))
}

func (e *endpoint) vote() voteState {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.voted
}

// contradicted reports whether two others contradicted it, and none has agreed with it since.
func (e *endpoint) contradicted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.doubted
}

// doubt is higher, the later an endpoint is to be asked. In descending order of weight: others contradicted it, it did
// not agree on the head, it is slow.
func (e *endpoint) doubt() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, last := range []bool{e.doubted, e.voted != agrees, time.Now().Before(e.slow)} {
		n *= 2
		if last {
			n++
		}
	}
	return n
}

const (
	slowShare = 4           // a call that takes more than Timeout/slowShare makes an endpoint slow: many such calls would block all others
	slowFor   = time.Minute // for how long it then counts as slow
)

func (e *endpoint) noteSlow(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.slow = now.Add(slowFor)
}

func (e *endpoint) resting(from *series, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return now.Before(from.rest)
}

// lackFor is how long a method counts as missing. It may be unavailable for a moment only.
const lackFor = time.Minute

// noteLack records that the node does not support a method.
func (e *endpoint) noteLack(method string, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lacks[method] = now.Add(lackFor)
}

func (e *endpoint) has(method string, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !now.Before(e.lacks[method])
}
