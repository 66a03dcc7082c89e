package simulation

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// network connects hosts. Data arrives in order, after a latency; data sent during a network partition
// arrives when that heals, as with TCP.
//
// Every wait is on a channel or a timer, so that testing/synctest can tell when all goroutines are idle. Each
// connection has its own generator of latencies, since a shared one would depend on the scheduler's order.
type network struct {
	seed    uint64
	latency time.Duration // maximum, one way

	mu        sync.Mutex
	trace     uint64        // checksum of everything ever sent: time, connection, direction, bytes
	wire      *bytes.Buffer // has a line for each of these; nil: nobody reads it
	listeners map[string]*listener
	opened    map[string]int           // connections, ever
	conns     map[int]*conn            // by the order in which they were made
	made      int                      // conns, ever
	down      map[string]bool          // hosts that are cut off for good
	blocked   map[[2]string]int        // pairs of hosts, one way: how many faults hold it
	healed    chan struct{}            // closed when something was healed
	delays    map[string]time.Duration // maximum additional delay of everything from or to a host
}

func newNetwork(seed uint64, latency time.Duration) *network {
	return &network{
		seed: seed, latency: latency, listeners: map[string]*listener{}, opened: map[string]int{}, conns: map[int]*conn{},
		down: map[string]bool{}, blocked: map[[2]string]int{}, healed: make(chan struct{}),
		delays: map[string]time.Duration{},
	}
}

func refused(op string) error { return &net.OpError{Op: op, Net: "tcp", Err: syscall.ECONNREFUSED} }

// dialer returns the dial function of a host.
func (n *network) dialer(host string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		to, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		for {
			n.mu.Lock()
			l, wait := n.listeners[addr], n.healed
			if n.down[host] || l == nil {
				n.mu.Unlock()
				return nil, refused("dial")
			}
			if n.blocked[[2]string{host, to}] == 0 && n.blocked[[2]string{to, host}] == 0 {
				a, b := n.connect(host, to, addr)
				n.mu.Unlock()
				select {
				case l.backlog <- b:
					return a, nil
				case <-l.done:
					return nil, refused("dial")
				}
			}
			n.mu.Unlock()
			select {
			case <-wait:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}

// connect makes the ends of a connection.
func (n *network) connect(host, to, addr string) (a, b *conn) {
	from := host + ":1"
	n.opened[from+addr]++
	name := fmt.Sprint(from, addr, n.opened[from+addr])
	seed := n.seed ^ hash(name)
	stream := func(from, to string, seed uint64) *stream {
		return &stream{net: n, from: from, to: to, name: name, id: seed, rng: rand.New(rand.NewPCG(seed, 0)), wake: make(chan struct{}, 1)}
	}
	there, back := stream(host, to, seed), stream(to, host, seed+1)
	a = &conn{net: n, in: back, out: there, local: address(from), remote: address(addr)}
	b = &conn{net: n, in: there, out: back, local: address(addr), remote: address(from)}
	for _, c := range []*conn{a, b} {
		n.made++
		c.number, n.conns[n.made] = n.made, c
	}
	return a, b
}

func hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // it cannot fail
	return h.Sum64()
}

// mixed is the finalizer of SplitMix64: every bit of what goes in changes about half of what comes out.
func mixed(z uint64) uint64 {
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// sum is the trace so far.
func (n *network) sum() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.trace
}

// scraper is who asks for metrics. They tell of the process, what it has in memory and how long it ran, too, which no seed decides.
const scraper = "scraper"

// sent notes what is sent for the trace. The lock is held.
func (n *network) sent(s *stream, at time.Time, b []byte) {
	if s.from == scraper || s.to == scraper {
		return
	}
	sum := crc32.ChecksumIEEE(b)
	n.trace += mixed(s.id ^ mixed(uint64(at.UnixNano())^mixed(uint64(len(b))<<32|uint64(sum))))
	if n.wire != nil {
		_, _ = fmt.Fprintf(n.wire, "%s %s %s>%s %d %08x\n", now().Format("15:04:05.000000000"), s.name, s.from, s.to, len(b), sum)
	}
}

// listen is net.Listen on a host of this network.
func (n *network) listen(addr string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[addr] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: syscall.EADDRINUSE}
	}
	l := &listener{net: n, addr: address(addr), backlog: make(chan net.Conn, 128), done: make(chan struct{})}
	n.listeners[addr] = l
	return l, nil
}

// cut resets all connections of a host and closes its listeners; it is unreachable until up.
func (n *network) cut(host string) {
	n.reset(host)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down[host] = true
	for a, l := range n.listeners {
		if h, _, _ := net.SplitHostPort(a); h == host {
			delete(n.listeners, a)
			l.once.Do(func() { close(l.done) })
		}
	}
}

func (n *network) up(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.down, host)
}

// reset resets the connections of a host.
func (n *network) reset(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, number := range slices.Sorted(maps.Keys(n.conns)) { // else in an order that addresses decide
		c := n.conns[number]
		if c.in.from == host || c.in.to == host {
			c.in.fail(syscall.ECONNRESET)
			c.out.fail(syscall.ECONNRESET)
		}
	}
}

// drain waits until all that was sent has arrived. Time stands once a test has returned: who waits for data then waits
// for ever, as the chain's end of a WebSocket does, which no server closes.
func (n *network) drain() {
	n.mu.Lock()
	last := now()
	for _, c := range n.conns {
		if sent := c.in.chunks; len(sent) > 0 && sent[len(sent)-1].at.After(last) {
			last = sent[len(sent)-1].at
		}
	}
	n.mu.Unlock()
	time.Sleep(last.Sub(now()))
}

// block stops or resumes the delivery of what one host sends to another.
func (n *network) block(from, to string, held bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if held {
		n.blocked[[2]string{from, to}]++
		return
	}
	n.blocked[[2]string{from, to}]--
	close(n.healed)
	n.healed = make(chan struct{})
}

// slow delays everything from or to a host by up to this much; 0: not at all.
func (n *network) slow(host string, by time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delays[host] = by
}

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

type listener struct {
	net     *network
	addr    address
	backlog chan net.Conn
	done    chan struct{}
	once    sync.Once
}

func (l *listener) Addr() net.Addr { return l.addr }

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	l.once.Do(func() { close(l.done) })
	if l.net.listeners[string(l.addr)] == l {
		delete(l.net.listeners, string(l.addr))
	}
	return nil
}
