package kafka

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// cluster is a circuit breaker for each broker, shared by all clients of a process. The kernel of a frozen broker still accepts
// connections, so each client would find out by itself, and again with each connection, that nobody answers. So once
// another broker has answered since, connections to a silent one fail at once, and the clients ask the others who leads and coordinates.
//
// Invariants:
//  1. a broker is silent after an answer was waited for over one connection, while none came over any other;
//  2. it is silent no more with the first byte that it sends. It is asked again when somebody wants to connect to it, by
//     one goroutine at a time.
type cluster struct {
	mu      sync.Mutex
	brokers map[string]*peer // by address
}

// peer is what is known of a broker, guarded by the cluster's mu.
type peer struct {
	answered time.Time // zero: never
	failed   time.Time // when no connection was made, other than for want of time
	silent   bool
	asked    bool // somebody is waiting for its answer
}

// maxPeers bounds the addresses that are remembered.
const maxPeers = 1024

// errSilent: a broker is not connected to because it does not answer. It is temporary: who asks for a coordinator may hit on
// that broker twice in a row, and should ask the next one.
var errSilent error = silence{}

type silence struct{}

func (silence) Error() string   { return "the broker does not answer" }
func (silence) Temporary() bool { return true }

func newCluster() *cluster { return &cluster{brokers: map[string]*peer{}} }

// at is the broker of an address. The caller holds mu.
func (c *cluster) at(addr string) *peer {
	p := c.brokers[addr]
	if p == nil {
		if len(c.brokers) >= maxPeers {
			clear(c.brokers)
		}
		p = new(peer)
		c.brokers[addr] = p
	}
	return p
}

// answers notes that a broker has sent something, and reports whether that ended its silence.
func (c *cluster) answers(addr string) (again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.at(addr)
	p.answered = time.Now()
	again, p.silent = p.silent, false
	return again
}

// waited notes that an answer of a broker did not come, and reports whether it is silent from now on.
func (c *cluster) waited(addr string, since time.Time) (silent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.at(addr)
	if p.silent || p.answered.After(since) {
		return false
	}
	p.silent = true
	return true
}

// avoided reports whether a broker is silent and another one has answered since, and whether it is time to ask it again.
func (c *cluster) avoided(addr string) (avoid, ask bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.at(addr)
	if !p.silent {
		return false, false
	}
	for _, other := range c.brokers {
		if !other.silent && other.answered.After(p.answered) { // nor is it another name of this one
			ask, p.asked = !p.asked, true
			return true, ask
		}
	}
	return false, false
}

// failed notes that a broker could not be connected to.
func (c *cluster) failed(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at(addr).failed = time.Now()
}

// maxSilent bounds the addresses that Silent returns.
const maxSilent = 16

// Silent returns the addresses of the brokers that do not answer this process, ascending.
func (c Config) Silent() (addrs []string) {
	c.cluster.mu.Lock()
	defer c.cluster.mu.Unlock()
	for addr, p := range c.cluster.brokers {
		if p.silent || p.failed.After(p.answered) {
			addrs = append(addrs, addr)
		}
	}
	slices.Sort(addrs)
	return addrs[:min(len(addrs), maxSilent)]
}

func (c *cluster) wasAsked(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at(addr).asked = false
}

// avoid returns an error if a broker is silent while another one answers.
func (d *dialer) avoid(ctx context.Context, network, addr string) error {
	avoid, ask := d.cluster.avoided(addr)
	if !avoid {
		return nil
	}
	if ask {
		go d.ask(context.WithoutCancel(ctx), network, addr)
	}
	return &net.OpError{Op: "dial", Net: network, Err: errSilent}
}

// ask waits for an answer of a silent broker, for as long as a client would that connects to it.
func (d *dialer) ask(ctx context.Context, network, addr string) {
	defer d.cluster.wasAsked(addr)
	c, err := d.open(ctx, network, addr)
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	if c.SetDeadline(time.Now().Add(d.timeout)) != nil {
		return
	}
	// Any broker answers the first version of this to anybody.
	if _, err := c.Write(kmsg.NewRequestFormatter().AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), 0)); err == nil {
		_, _ = c.Read(make([]byte, 1)) // which tells
	}
}

// heard notes that a broker has sent something.
func (d *dialer) heard(addr string) {
	if d.cluster.answers(addr) {
		d.logger.Info("broker answers again", zap.String("addr", addr))
	}
}

// missed notes that a broker has sent nothing since an answer was waited for.
func (d *dialer) missed(addr string, since time.Time) {
	if time.Since(since) >= d.timeout*9/10 && d.cluster.waited(addr, since) {
		d.logger.Warn("broker does not answer, connections to it fail until it does", zap.String("addr", addr))
	}
}
