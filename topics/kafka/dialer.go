package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
)

// dialer opens a client's connections and can cut them all at once, as if the process had died.
//
// Invariants:
//  1. every open connection is in conns, so kill closes all;
//  2. after kill no connection is opened, and nobody waits for one.
type dialer struct {
	net     Dial
	tls     *tls.Config // nil: plain text
	cluster *cluster
	timeout time.Duration // of an answer that a broker need not wait for
	logger  *zap.Logger

	life context.Context //nolint:containedctx // of all connections; done: it was killed
	end  context.CancelFunc

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

const dialTimeout = 2 * time.Second

// Dial opens a connection, as net.Dialer.DialContext does.
type Dial = func(ctx context.Context, network, addr string) (net.Conn, error)

func newDialer(cfg Config, encrypt *tls.Config) *dialer {
	d := &dialer{
		net: cfg.Dial, tls: encrypt, cluster: cfg.cluster, timeout: cfg.silentTimeout(), logger: cfg.Logger,
		conns: map[net.Conn]struct{}{},
	}
	d.life, d.end = context.WithCancel(context.Background())
	if d.net == nil {
		d.net = new(net.Dialer).DialContext //nolint:forbidigo // the default
	}
	if d.cluster == nil {
		d.cluster = newCluster()
	}
	return d
}

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if d.killed() {
		return nil, ErrKilled
	}
	if err := d.avoid(ctx, network, addr); err != nil {
		return nil, err
	}
	return d.open(ctx, network, addr)
}

// open opens a connection, to whatever broker, for a request that lasts as long as asks. Until the broker has answered once the
// connection ends with it: a client waits for that answer before it sends the request, whatever becomes of that meanwhile.
func (d *dialer) open(asks context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(asks, dialTimeout)
	defer cancel()
	defer context.AfterFunc(d.life, cancel)() //nolint:contextcheck // what ends the client ends this
	began := time.Now()
	c, err := d.connect(ctx, network, addr)
	if err != nil {
		switch {
		case d.killed():
			return nil, ErrKilled
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			d.missed(addr, began)
		case ctx.Err() == nil:
			d.cluster.failed(addr)
		}
		return nil, err
	}
	t := &conn{Conn: c, d: d, addr: addr}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.killed() {
		_ = c.Close()
		return nil, ErrKilled
	}
	d.conns[t] = struct{}{}
	t.stays = context.AfterFunc(asks, func() { _ = t.Close() })
	return t, nil
}

// connect opens a connection that nobody cuts yet.
func (d *dialer) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := d.net(ctx, network, addr)
	if err != nil || d.tls == nil {
		return c, err
	}
	conf := d.tls.Clone()
	if conf.ServerName == "" {
		conf.ServerName, _, _ = net.SplitHostPort(addr) // Validate has checked the format
	}
	secure := tls.Client(c, conf)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return secure, nil
}

func (d *dialer) killed() bool { return d.life.Err() != nil }

func (d *dialer) kill() {
	d.mu.Lock()
	d.end()
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

// Log implements kgo.Logger, but for connections to a broker of which it was said that it is silent.
func (l *untilKilled) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	for _, v := range keyvals {
		if err, ok := v.(error); ok && errors.Is(err, errSilent) {
			return
		}
	}
	l.Logger.Log(level, msg, keyvals...)
}

// Level implements kgo.Logger.
func (l *untilKilled) Level() kgo.LogLevel {
	if l.d.killed() {
		return kgo.LogLevelNone
	}
	return l.Logger.Level()
}

// conn removes itself from the dialer when it is closed, and tells whether the broker answers.
type conn struct {
	net.Conn
	d      *dialer
	addr   string
	gaveUp atomic.Bool // the client waits no longer, whatever the broker does

	stays    func() bool // whatever becomes of the request that it was opened for
	answered atomic.Bool // it does
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	began := time.Now()
	n, err := c.Conn.Read(b)
	switch {
	case n > 0:
		c.d.heard(c.addr)
		if !c.answered.Swap(true) {
			c.stays()
		}
	case errors.Is(err, os.ErrDeadlineExceeded) && !c.gaveUp.Load():
		c.d.missed(c.addr, began)
	}
	return n, err
}

// SetReadDeadline implements net.Conn. A client ends a wait with a deadline that is over.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.gaveUp.Store(!t.IsZero() && time.Until(t) <= 0)
	return c.Conn.SetReadDeadline(t)
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) Close() error {
	c.d.mu.Lock()
	delete(c.d.conns, c)
	c.d.mu.Unlock()
	c.stays()
	return c.Conn.Close()
}
