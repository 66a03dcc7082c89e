package simulation

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"time"
)

// conn is one end of a connection.
type conn struct {
	net           *network
	number        int // among the network's
	in, out       *stream
	local, remote address
	timer         *time.Timer // of Read; nil: it has not waited for a moment yet
}

func (c *conn) LocalAddr() net.Addr              { return c.local }
func (c *conn) RemoteAddr() net.Addr             { return c.remote }
func (c *conn) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }
func (c *conn) SetWriteDeadline(time.Time) error { return nil } // a write never blocks

func (c *conn) SetReadDeadline(t time.Time) error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.in.until = t; !t.IsZero() {
		c.in.until = now().Add(time.Until(t))
	}
	c.in.tell()
	return nil
}

func (c *conn) Close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	delete(c.net.conns, c.number)
	c.in.fail(net.ErrClosed)
	c.out.ended = true
	c.out.tell()
	return nil
}

// stream is one direction of a connection, guarded by the network's mutex.
type stream struct {
	net      *network
	from, to string
	name     string     // of the connection
	id       uint64     // of the connection and the direction, for the trace
	rng      *rand.Rand // of latencies
	chunks   []chunk
	until    time.Time // of reads, by the network's clock as chunk.at
	err      error     // of reads and writes from now on
	ended    bool      // by the writer: data in flight still arrives
	wake     chan struct{}
}

type chunk struct {
	at   time.Time
	data []byte
}

func (s *stream) tell() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *stream) fail(err error) {
	if s.err == nil {
		s.err, s.chunks = err, nil
	}
	s.tell()
}

func (c *conn) Write(b []byte) (int, error) {
	s := c.out
	s.net.mu.Lock()
	defer s.net.mu.Unlock()
	switch {
	case s.err != nil:
		return 0, s.err
	case s.ended:
		return 0, net.ErrClosed
	}
	at := now().Add(time.Duration(s.rng.Int64N(int64(s.net.latency + s.net.delays[s.from] + s.net.delays[s.to]))))
	if n := len(s.chunks); n > 0 && at.Before(s.chunks[n-1].at) {
		at = s.chunks[n-1].at
	}
	s.net.sent(s, at, b)
	if s.chunks = append(s.chunks, chunk{at, append([]byte(nil), b...)}); len(s.chunks) == 1 { // else the reader waits for what is before it
		s.tell()
	}
	return len(b), nil
}

// Read is called by one goroutine at a time, as net/http, kgo and kfake do.
func (c *conn) Read(b []byte) (int, error) {
	for {
		n, wait, held, err := c.in.take(b)
		if n > 0 || err != nil || len(b) == 0 {
			return n, err
		}
		var timer <-chan time.Time
		if wait > 0 {
			if c.timer == nil {
				c.timer = time.NewTimer(wait)
			} else {
				c.timer.Reset(wait)
			}
			timer = c.timer.C
		}
		select {
		case <-c.in.wake:
		case <-timer:
		case <-held:
		}
		if timer != nil {
			c.timer.Stop()
		}
	}
}

// take reads data that has arrived; if there is none, it returns what to wait for.
func (s *stream) take(b []byte) (n int, wait time.Duration, held <-chan struct{}, err error) {
	s.net.mu.Lock()
	defer s.net.mu.Unlock()
	now := now()
	if s.err != nil {
		return 0, 0, nil, s.err
	}
	if !s.until.IsZero() {
		if wait = s.until.Sub(now); wait <= 0 {
			return 0, 0, nil, os.ErrDeadlineExceeded
		}
	}
	switch {
	case s.net.blocked[[2]string{s.from, s.to}] > 0:
		return 0, wait, s.net.healed, nil
	case len(s.chunks) == 0 && s.ended:
		return 0, 0, nil, io.EOF
	case len(s.chunks) == 0:
		return 0, wait, nil, nil
	}
	if d := s.chunks[0].at.Sub(now); d > 0 {
		if wait == 0 || d < wait {
			wait = d
		}
		return 0, wait, nil, nil
	}
	n = copy(b, s.chunks[0].data)
	if s.chunks[0].data = s.chunks[0].data[n:]; len(s.chunks[0].data) == 0 {
		s.chunks = s.chunks[1:]
	}
	return n, 0, nil, nil
}
