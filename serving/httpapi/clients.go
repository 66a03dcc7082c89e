package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/lienstream/lienstream/topics/pause"
)

// ClientLimits bound what one client may use, so that it cannot exhaust the service's limits. A client is an
// IPv4 address or an IPv6 /64; those of one Network use as much as four. Loopback is not limited: it is this machine,
// or a local proxy, which should be configured.
type ClientLimits struct {
	MaxConnections int     // more are closed without a response, unless they come from a trusted proxy
	MaxInFlight    int     // concurrent requests
	MaxStreams     int     // concurrent streams
	MaxUnsentBytes int64   // of responses that it has not taken yet
	MaxReads       int     // GETs whose handlers run at once; others wait in turn
	Share          float64 // of a core that its answers may take in the long run; more of them wait; 0: no limit
	Rate           float64 // requests per second; 0: no limit
	Burst          int     // additional requests at once

	// TrustedProxies are the networks of proxies: the client is then the last address in X-Forwarded-For that
	// is not in one of them.
	TrustedProxies []netip.Prefix
}

func (l *ClientLimits) validate() (faults []error) {
	for _, n := range []struct {
		name string
		n    int64
	}{{"connections", int64(l.MaxConnections)}, {"requests in flight", int64(l.MaxInFlight)}, {"streams", int64(l.MaxStreams)}, {"reads at once", int64(l.MaxReads)}, {"unsent bytes", l.MaxUnsentBytes}} {
		if n.n <= 0 {
			faults = append(faults, fmt.Errorf("limit of %s per client: %d is not positive", n.name, n.n))
		}
	}
	if l.Rate < 0 || l.Rate > 0 && l.Burst < 1 {
		faults = append(faults, fmt.Errorf("rate per client: %v with a burst of %d; both must be positive", l.Rate, l.Burst))
	}
	if l.Share < 0 {
		faults = append(faults, fmt.Errorf("share of a core per client: %v is negative", l.Share))
	}
	return faults
}

const (
	// workBurst is how much work a client may cause before its share is counted. It is what others wait for when a
	// client begins to ask without a pause.
	workBurst = 20 * time.Millisecond
	// maxWork is the most that one handler counts: it may have waited for others.
	maxWork = 100 * time.Millisecond
	// What a response counts besides its handler: the time that it takes to write is also the client's.
	answerWork  = 20 * time.Microsecond
	answerBytes = 4 << 10 // that count as much again

	// A refusal because of a client's limits is delayed, longer the more of them there are: a client that retries at
	// once, over many connections, would otherwise keep a core busy with refusals.
	refusalPause    = 100 * time.Millisecond
	refusalInterval = 10 * time.Millisecond
	maxRefusalPause = time.Second // less than a drain takes
)

// perNetwork is the number of clients whose limits a Network shares.
const perNetwork = 4

// network are the limits of a Network.
func (l ClientLimits) network() ClientLimits {
	l.MaxConnections *= perNetwork
	l.MaxInFlight *= perNetwork
	l.MaxStreams *= perNetwork
	l.MaxUnsentBytes *= perNetwork
	l.MaxReads *= perNetwork
	l.Share *= perNetwork
	l.Rate *= perNetwork
	l.Burst *= perNetwork
	return l
}

// clients counts each client's requests in flight.
type clients struct {
	limits  ClientLimits
	maxHeld int // refusals, of all clients

	mu sync.Mutex
	perKey[netip.Addr, *client]
	networks perKey[netip.Prefix, *client]
	held     int // refusals, of all
}

// client is guarded by the mutex of clients.
type client struct {
	inFlight, streams int
	bucket            *rate.Limiter // nil: no limit
	refused           time.Time     // when the last refusal goes out
	held              int           // refusals

	// Not guarded:
	unsent  atomic.Int64 // bytes
	limits  *ClientLimits
	network atomic.Pointer[client] // nil: it has none; the same as long as anything of it is in flight
	reads   *semaphore.Weighted
	work    *rate.Limiter // microseconds of handlers; nil: no limit
}

func newClients(limits ClientLimits, maxHeld int) *clients {
	network := limits.network()
	return &clients{
		limits: limits, maxHeld: maxHeld,
		perKey: newPerKey[netip.Addr](limits.newClient, (*client).idle), networks: newPerKey[netip.Prefix](network.newClient, (*client).idle),
	}
}

func (l *ClientLimits) newClient() *client {
	cl := &client{limits: l, reads: semaphore.NewWeighted(int64(l.MaxReads))}
	if l.Rate > 0 {
		cl.bucket = rate.NewLimiter(rate.Limit(l.Rate), l.Burst)
	}
	if l.Share > 0 {
		cl.work = rate.NewLimiter(rate.Limit(l.Share*float64(time.Second/time.Microsecond)), int(workBurst/time.Microsecond))
	}
	return cl
}

func (cl *client) idle() bool {
	return cl.inFlight == 0 && cl.streams == 0 && cl.held == 0 && (cl.bucket == nil || full(cl.bucket)) && (cl.work == nil || full(cl.work))
}

// enter counts a request. It returns nil without an error for a client without limits; with one, hold is to be called
// before the refusal is sent.
func (c *clients) enter(r *http.Request) (_ *client, hold func(context.Context), _ error) {
	addr := c.addrOf(r)
	if !addr.IsValid() || addr.IsLoopback() {
		return nil, nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.of(addr)
	if cl.inFlight == 0 && cl.streams == 0 && addr.Is6() && cl != c.others {
		cl.network.Store(c.networks.of(Network(addr)))
	}
	for of := cl; of != nil; of = of.network.Load() {
		if of.inFlight >= of.limits.MaxInFlight {
			return nil, c.holdBack(cl), &Error{Code: RateLimited, Message: fmt.Sprintf("at most %d requests at once", of.limits.MaxInFlight)}
		}
		if of.bucket != nil && !of.bucket.Allow() {
			return nil, c.holdBack(cl), &Error{Code: RateLimited, Message: fmt.Sprintf("at most %v requests a second", of.limits.Rate), RetryAfter: time.Second}
		}
	}
	for of := cl; of != nil; of = of.network.Load() {
		of.inFlight++
	}
	return cl, nil, nil
}

// holdBack returns what waits before a refusal of the client is sent. The lock is held.
func (c *clients) holdBack(cl *client) (wait func(context.Context)) {
	if cl.held >= c.limits.MaxConnections || c.held >= c.maxHeld { // each keeps a connection, which may be a proxy's for many clients
		return func(context.Context) {}
	}
	cl.held++
	c.held++
	pauses := cl.refuse()
	return func(ctx context.Context) {
		_ = pause.For(ctx, pauses)
		c.mu.Lock()
		defer c.mu.Unlock()
		cl.held--
		c.held--
	}
}

// refuse is for how long to hold a refusal back.
func (cl *client) refuse() time.Duration {
	now := time.Now()
	at := cl.refused.Add(refusalInterval)
	if least := now.Add(refusalPause); at.Before(least) {
		at = least
	}
	if most := now.Add(maxRefusalPause); at.After(most) {
		at = most
	}
	cl.refused = at
	return at.Sub(now)
}

// read waits until the client may compute an answer: its requests may be expensive, and must leave the other cores, and
// most of the time, to other clients. After a nil error cl.done must be called.
func (cl *client) read(ctx context.Context) error {
	if cl == nil {
		return nil
	}
	err := cl.reads.Acquire(ctx, 1)
	if err == nil && cl.work != nil {
		if err = cl.work.WaitN(ctx, 0); err != nil { // until what the last ones took is made up for
			cl.reads.Release(1)
		}
	}
	if err != nil {
		return &Error{Code: RateLimited, Message: "the reads before this one took too long", RetryAfter: time.Second}
	}
	if err := cl.network.Load().read(ctx); err != nil {
		cl.reads.Release(1)
		return err
	}
	return nil
}

// hasBudget reports whether the client has work left that it may cause at once.
func (cl *client) hasBudget() bool {
	return cl == nil || (cl.work == nil || cl.work.Tokens() >= 0) && cl.network.Load().hasBudget()
}

// hasHalfBudget reports whether the client has left at least half of the work that it may cause at once.
func (cl *client) hasHalfBudget() bool {
	return cl == nil || (cl.work == nil || cl.work.Tokens() >= float64(cl.work.Burst())/2) && cl.network.Load().hasHalfBudget()
}

// worked counts for how long a handler ran, or what a response counts.
func (cl *client) worked(took time.Duration) {
	if cl == nil || cl.work == nil {
		return
	}
	for left := min(took, maxWork); left > 0; left -= workBurst { // which is as much as can be counted at a time
		cl.work.ReserveN(time.Now(), int(min(left, workBurst)/time.Microsecond))
	}
	cl.network.Load().worked(took)
}

// sends counts a response, which is work for the client whatever it took to make.
func (cl *client) sends(bytes int) { cl.worked(answerWork * time.Duration(1+bytes/answerBytes)) }

func (cl *client) done() {
	for of := cl; of != nil; of = of.network.Load() {
		of.reads.Release(1)
	}
}

func (c *clients) leave(cl *client) {
	if cl == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for of := cl; of != nil; of = of.network.Load() {
		of.inFlight--
	}
}

func (c *clients) enterStream(cl *client) error {
	if cl == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for of := cl; of != nil; of = of.network.Load() {
		if of.streams >= of.limits.MaxStreams {
			return &Error{Code: RateLimited, Message: fmt.Sprintf("at most %d streams at once", of.limits.MaxStreams)}
		}
	}
	for of := cl; of != nil; of = of.network.Load() {
		of.streams++
	}
	return nil
}

func (c *clients) leaveStream(cl *client) {
	if cl == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for of := cl; of != nil; of = of.network.Load() {
		of.streams--
	}
}

// addrOf is the client's address.
func (c *clients) addrOf(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{} // in a test
	}
	addr := peer.Addr()
	if len(c.limits.TrustedProxies) == 0 || !trusted(c.limits.TrustedProxies, addr) {
		return clientAddr(addr)
	}
	hops := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
	for _, text := range slices.Backward(hops) {
		hop, ok := parseHop(strings.TrimSpace(text))
		known := trusted(c.limits.TrustedProxies, hop)
		if !ok || hop.IsLoopback() && !known { // behind a proxy that hides the client, the client is not this machine
			break // the rest of the header is controlled by the client
		}
		if addr = hop; !known {
			break
		}
	}
	return clientAddr(addr)
}

// parseHop parses an address of X-Forwarded-For. Some proxies add the port.
func parseHop(text string) (netip.Addr, bool) {
	if with, err := netip.ParseAddrPort(text); err == nil {
		return with.Addr(), true
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	return addr, err == nil
}

func trusted(networks []netip.Prefix, addr netip.Addr) bool {
	for _, n := range networks {
		if n.Contains(addr.Unmap()) {
			return true
		}
	}
	return false
}

// clientAddr is the address or network that identifies a client: an IPv6 user has 2^64 addresses.
func clientAddr(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if addr.Is4() || addr.IsLoopback() {
		return addr
	}
	network, err := addr.Prefix(64)
	if err != nil {
		return addr
	}
	return network.Addr()
}

// Network is the /48 of an IPv6 address, as providers give it to a household or a company: 65,536 clients.
func Network(addr netip.Addr) netip.Prefix {
	network, _ := addr.Prefix(48) // no address of 128 bits is too short
	return network
}
