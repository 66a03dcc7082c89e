package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/ingest/follow"
)

// socket is an endpoint's WebSocket, for the subscription to heads and, if the endpoint has no HTTP or while that is
// down, for requests.
type socket struct {
	e   *endpoint
	url string

	mu      sync.Mutex
	conn    *connection   // nil while disconnected
	changed chan struct{} // closed when conn changes
}

// connection is one connection of the socket.
type connection struct {
	ws      *websocket.Conn
	write   sync.Mutex
	mu      sync.Mutex
	pending map[uint64]waiter // by the first ID of the request
	done    chan struct{}

	subscribed atomic.Bool // and on the right chain
}

type waiter struct {
	n      uint64
	answer chan *buffer // nil: it is more than Config.MaxBody
}

var errClosed = errors.New("connection is closed")

// Liveness of a connection: regular pings, and a pong or any other message before the timeout.
const (
	pingEvery = 10 * time.Second
	readWait  = 30 * time.Second
)

func newSocket(e *endpoint, url string) *socket {
	return &socket{e: e, url: url, changed: make(chan struct{})}
}

// subscribe keeps a subscription alive until ctx is done.
func (e *endpoint) subscribe(ctx context.Context) error {
	wait := minRest
	for {
		began := time.Now()
		err := e.ws.live(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was told to stop
		}
		if time.Since(began) > time.Minute {
			wait = minRest
		}
		e.client.log.Warn("subscription ended", zap.String("endpoint", e.name), zap.Duration("retry", wait), zap.Error(e.redact(err)))
		e.client.metrics.errors.WithLabelValues(e.name, "subscription").Inc()
		t := time.NewTimer(wait + rand.N(wait/4))
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
		wait = min(2*wait, maxRest)
	}
}

// live handles one connection, from dialling to its end.
func (s *socket) live(ctx context.Context) error {
	cfg := s.e.client.cfg
	dialer := websocket.Dialer{NetDialContext: acknowledgeAtOnce(cfg.dial()), HandshakeTimeout: cfg.Timeout, ReadBufferSize: 64 << 10, WriteBufferSize: 16 << 10}
	ws, resp, err := dialer.DialContext(ctx, s.url, nil)
	if err != nil {
		if resp != nil {
			_ = resp.Body.Close()
		}
		return fmt.Errorf("dial: %w", err)
	}
	c := &connection{ws: ws, pending: map[uint64]waiter{}, done: make(chan struct{})}
	s.set(c)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(c.done)
		return c.read(ctx, s.e)
	})
	g.Go(func() error {
		err := s.open(ctx, c)
		if err == nil {
			c.subscribed.Store(true)
			s.e.client.live.Add(1)
			defer s.e.client.live.Add(-1)
		}
		for err == nil {
			t := time.NewTimer(pingEvery)
			select {
			case <-t.C:
				err = ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(cfg.Timeout))
				s.e.retryHTTP(ctx)
			case <-ctx.Done():
				t.Stop()
				err = ctx.Err()
			}
		}
		_ = ws.Close() // ends the reader too
		return err
	})
	err = g.Wait()
	s.set(nil)
	s.e.useHTTP()
	return err
}

func (s *socket) set(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = c
	close(s.changed)
	s.changed = make(chan struct{})
}

// current is the connection, or nil, until changed is closed.
func (s *socket) current() (c *connection, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn, s.changed
}

// connected is the connection, once it is subscribed; nil: there is none.
func (s *socket) connected() *connection {
	if c, _ := s.current(); c != nil && c.subscribed.Load() {
		return c
	}
	return nil
}

// open checks the chain ID and subscribes.
func (s *socket) open(ctx context.Context, c *connection) error {
	ctx, cancel := context.WithTimeout(ctx, s.e.client.cfg.Timeout)
	defer cancel()
	ask := func(method, params string, result func(*scanner) error) error {
		id := s.e.ids.Add(1)
		calls := []call{{method: method, params: []byte(params), result: result}}
		body, release, err := c.roundTrip(ctx, id, 1, encode(id, calls))
		if err != nil {
			return fmt.Errorf("%s: %w", method, err)
		}
		defer release()
		return decode(body, id, calls)
	}
	var chain uint64
	err := ask("eth_chainId", "[]", func(r *scanner) (err error) {
		chain, err = r.quantity(64)
		return err
	})
	if err != nil {
		return err
	}
	if chain != s.e.client.cfg.ChainID {
		return lied("chain_id", "endpoint is on chain %d, expected %d", chain, s.e.client.cfg.ChainID)
	}
	return ask("eth_subscribe", `["newHeads"]`, (*scanner).skip)
}

// roundTrip sends a request over the current connection, or over the next one.
func (s *socket) roundTrip(ctx context.Context, base, n uint64, body []byte) ([]byte, func(), error) {
	for {
		c, changed := s.current()
		if c != nil {
			return c.roundTrip(ctx, base, n, body)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("wait for the connection: %w", ctx.Err())
		}
	}
}

func (c *connection) roundTrip(ctx context.Context, base, n uint64, body []byte) (answer []byte, release func(), err error) {
	w := waiter{n: n, answer: make(chan *buffer, 1)}
	c.mu.Lock()
	c.pending[base] = w
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.pending, base)
		c.mu.Unlock()
		select {
		case late := <-w.answer: // it came after the wait ended
			if late != nil {
				late.release()
			}
		default:
		}
	}()
	if err := c.send(ctx, body); err != nil {
		return nil, nil, err
	}
	select {
	case buf := <-w.answer:
		if buf == nil {
			return nil, nil, errTooBig
		}
		return buf.Bytes(), buf.release, nil
	case <-c.done:
		return nil, nil, errClosed
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

func (c *connection) send(ctx context.Context, body []byte) error {
	c.write.Lock()
	defer c.write.Unlock()
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.ws.SetWriteDeadline(deadline); err != nil {
			return err
		}
	}
	return c.ws.WriteMessage(websocket.TextMessage, body)
}

// read handles messages until the connection ends.
func (c *connection) read(ctx context.Context, e *endpoint) error {
	alive := func(string) error { return c.ws.SetReadDeadline(time.Now().Add(readWait)) }
	c.ws.SetPongHandler(alive)
	for {
		if err := alive(""); err != nil {
			return err
		}
		_, r, err := c.ws.NextReader()
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		msg, most := newBuffer(), e.client.cfg.MaxBody
		err = msg.read(ctx, e, r, 0, most)
		if errors.Is(err, errTooBig) {
			if err = c.tooBig(msg, r, int64(most)); err != nil {
				return fmt.Errorf("read: %w", err)
			}
			continue
		}
		if err != nil {
			msg.release()
			return fmt.Errorf("read: %w", err)
		}
		if h, ok := notification(msg.Bytes(), e.client.cfg.Proof != ProofOff); ok {
			e.client.announce(e, h)
			msg.release()
			continue
		}
		c.deliver(msg.Bytes(), msg)
	}
}

// skipped is how many times MaxBody of a message are skipped at most: others wait for responses on the connection.
const skipped = 8

// tooBig reports to the waiter of a message, whose beginning is in msg, that it is too large, and skips the rest.
func (c *connection) tooBig(msg *buffer, rest io.Reader, most int64) error {
	c.deliver(msg.Bytes(), nil)
	msg.release()
	n, err := io.Copy(io.Discard, io.LimitReader(rest, skipped*most))
	if err == nil && n == skipped*most {
		err = errTooBig
	}
	return err
}

// deliver passes a response to its waiter, if it is still waiting. begins is the beginning of the response.
func (c *connection) deliver(begins []byte, msg *buffer) {
	if !c.passed(begins, msg) && msg != nil {
		msg.release()
	}
}

func (c *connection) passed(begins []byte, msg *buffer) bool {
	s := scanner{b: begins}
	if s.peek() == '[' {
		s.take('[')
	}
	id := idAt(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	for base, w := range c.pending {
		if id >= base && id < base+w.n {
			select {
			case w.answer <- msg:
				return true
			default:
				return false
			}
		}
	}
	if id == 0 && refusesAll(s) {
		c.refused(begins)
	}
	return false
}

// refused passes an error without an ID to all batches that are waited for, since it does not say to which it belongs:
// each is sent again with fewer calls. The caller holds mu.
func (c *connection) refused(msg []byte) {
	for _, w := range c.pending {
		if w.n == 1 {
			continue
		}
		answer := newBuffer()
		answer.Write(msg)
		select {
		case w.answer <- answer:
		default:
			answer.release()
		}
	}
}

// notification reads the head from an eth_subscription message. If the head does not match its hash, the result
// is a zero header: a hint to poll.
func notification(msg []byte, proved bool) (h follow.Header, ok bool) {
	s := &scanner{b: msg}
	if !s.take('{') {
		return h, false
	}
	for first := true; ; first = false {
		more, err := s.more(first, '}')
		if err != nil || !more {
			return h, ok
		}
		key, err := s.key()
		if err != nil {
			return h, false
		}
		switch {
		case string(key) == "id":
			return h, false // a response
		case string(key) == "params" && s.peek() == '{':
			if h, ok = headOf(s, proved); !ok {
				return follow.Header{}, false
			}
		default:
			if s.skip() != nil {
				return h, false
			}
		}
	}
}

func headOf(s *scanner, proved bool) (h follow.Header, ok bool) {
	s.take('{')
	for first := true; ; first = false {
		more, err := s.more(first, '}')
		if err != nil || !more {
			return h, ok && err == nil
		}
		key, err := s.key()
		if err != nil {
			return h, false
		}
		if string(key) == "result" {
			ok = true
			raw, _ := s.raw()
			if decodeHeader(&scanner{b: raw}, &h, proved) != nil {
				h = follow.Header{}
			}
		} else {
			err = s.skip()
		}
		if err != nil {
			return h, false
		}
	}
}
