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
	c.in.arm()
	return nil
}

func (c *conn) Close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	delete(c.net.conns, c.number)
	c.in.fail(net.ErrClosed)
	c.out.ended = true
	c.out.arm()
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
	until    time.Time   // of reads, by the network's clock as chunk.at
	err      error       // of reads and writes from now on
	ended    bool        // by the writer: data in flight still arrives
	timer    *time.Timer // ends what the reader waits for
}

type chunk struct {
	at   time.Time
	data []byte
}

// arm sets the timer to when there is something for the reader. The network's mutex is held.
func (s *stream) arm() {
	at := s.until
	switch {
	case s.err != nil:
		at = now()
	case s.held(): // until something heals
	case len(s.chunks) == 0 && s.ended:
		at = now()
	case len(s.chunks) > 0 && (at.IsZero() || s.chunks[0].at.Before(at)):
		at = s.chunks[0].at
	}
	if at.IsZero() {
		s.timer.Stop()
		return
	}
	s.timer.Reset(at.Sub(now()))
}

// held reports whether what is sent does not arrive now.
func (s *stream) held() bool { return s.net.blocked[[2]string{s.from, s.to}] > 0 }

func (s *stream) fail(err error) {
	if s.err == nil {
		s.err, s.chunks = err, nil
	}
	s.arm()
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
	if s.chunks = append(s.chunks, chunk{at, append([]byte(nil), b...)}); len(s.chunks) == 1 {
		s.arm()
	}
	return len(b), nil
}

// Read is called by one goroutine at a time, as net/http, kgo and kfake do.
func (c *conn) Read(b []byte) (int, error) {
	for {
		n, held, err := c.in.take(b)
		if n > 0 || err != nil || len(b) == 0 {
			return n, err
		}
		if held == nil {
			<-c.in.timer.C
			continue
		}
		select {
		case <-c.in.timer.C:
		case <-held:
		}
	}
}

// take reads data that has arrived. If there is none, there may be when the timer ends, or where the network is partitioned when
// something heals.
func (s *stream) take(b []byte) (n int, held <-chan struct{}, err error) {
	s.net.mu.Lock()
	defer s.net.mu.Unlock()
	now := now()
	switch {
	case s.err != nil:
		return 0, nil, s.err
	case !s.until.IsZero() && !s.until.After(now):
		return 0, nil, os.ErrDeadlineExceeded
	case s.held():
		s.arm()
		return 0, s.net.healed, nil
	case len(s.chunks) == 0 && s.ended:
		return 0, nil, io.EOF
	case len(s.chunks) == 0 || s.chunks[0].at.After(now):
		s.arm()
		return 0, nil, nil
	}
	n = copy(b, s.chunks[0].data)
	if s.chunks[0].data = s.chunks[0].data[n:]; len(s.chunks[0].data) == 0 {
		s.chunks = s.chunks[1:]
	}
	return n, nil, nil
}
