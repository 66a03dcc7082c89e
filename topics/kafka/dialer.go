package kafka

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// dialer opens a client's connections and can cut them all at once, as if the process had died.
//
// Invariants:
//  1. every open connection is in conns, so kill closes all;
//  2. after kill no connection is opened.
type dialer struct {
	net Dial
	tls *tls.Config // nil: plain text

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	dead  bool
}

const dialTimeout = 2 * time.Second

// Dial opens a connection, as net.Dialer.DialContext does.
type Dial = func(ctx context.Context, network, addr string) (net.Conn, error)

func newDialer(c *tls.Config, dial Dial) *dialer {
	if dial == nil {
		dial = new(net.Dialer).DialContext //nolint:forbidigo // the default
	}
	return &dialer{net: dial, tls: c, conns: map[net.Conn]struct{}{}}
}

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if d.killed() {
		return nil, ErrKilled
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := d.net(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if d.tls != nil {
		conf := d.tls.Clone()
		if conf.ServerName == "" {
			conf.ServerName, _, _ = net.SplitHostPort(addr) // Validate has checked the format
		}
		secure := tls.Client(c, conf)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = c.Close()
			return nil, err
		}
		c = secure
	}
	t := &conn{Conn: c, d: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		_ = c.Close()
		return nil, ErrKilled
	}
	d.conns[t] = struct{}{}
	return t, nil
}

func (d *dialer) killed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dead
}

func (d *dialer) kill() {
	d.mu.Lock()
	d.dead = true
	conns := d.conns
	d.conns = nil
	d.mu.Unlock()
	for c := range conns {
		_ = c.(*conn).Conn.Close()
	}
}

// untilKilled is a client's logger until the dialer is killed: that the client then cannot connect is expected.
type untilKilled struct {
	kgo.Logger
	d *dialer
}

// Level implements kgo.Logger.
func (l *untilKilled) Level() kgo.LogLevel {
	if l.d.killed() {
		return kgo.LogLevelNone
	}
	return l.Logger.Level()
}

// conn removes itself from the dialer when it is closed.
type conn struct {
	net.Conn
	d *dialer
}

func (c *conn) Close() error {
	c.d.mu.Lock()
	delete(c.d.conns, c)
	c.d.mu.Unlock()
	return c.Conn.Close()
}
