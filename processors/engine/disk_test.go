package engine

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// A disk that is full when a node starts: nothing is answered, nothing stops for good, the reason is told;
// when space returns, so does everything. One that fills up while the node runs takes no read away: what
// is committed is in memory, and in the changelog.
func TestFullDisk(t *testing.T) {
	var full atomic.Bool
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return syscall.ENOSPC
		}
		return nil
	}))
	e := newEnv(t, 2)
	c := newChain(t, e.kafka, e.cat, 8)
	c.add(5)
	cfg := e.config("a", disk)

	full.Store(true)
	n := e.start(cfg)
	polltest.Until(t, "tasks try again", func() bool { return total(t, cfg.Registerer, "lienstream_processors_restarts_total", "disk") >= 4 })
	if held := n.Watermarks(); len(held) > 0 || n.Stopped() != nil {
		t.Fatalf("on a full disk it answers as of %v; stopped: %v", held, n.Stopped())
	}
	full.Store(false)
	e.caughtUp(c, n)
	e.invariantState(c, n)

	full.Store(true)
	for range 5 {
		c.add(2)
		e.caughtUp(c, n)
		e.invariantState(c, n)
	}
	n.cancel()
	if err := <-n.done; err == nil {
		t.Error("state that was not written to disk is not told of")
	}
	close(n.done)
	full.Store(false)
	cfg.Registerer = nil
	n = e.start(cfg)
	e.caughtUp(c, n)
	e.invariantState(c, n)
	e.invariantTopics(c)
}

// A disk that stays full under an owner takes its partition away: where nobody else is, the owner waits, and
// `lag` says so; a standby owns it within ten seconds, and the first one comes back when there is space. The time is virtual: it is
// what is waited for, however busy the machine is.
func TestStuckDiskIsLeft(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a broker")
	}
	emptyPools()
	defer emptyPools()
	synctest.Test(t, stuckDiskIsLeft)
}

// emptyPools empties all sync.Pools. Pebble keeps buffers with channels there, and those that a bubble made are of no use outside.
func emptyPools() {
	runtime.GC() // into the pools' victim caches
	runtime.GC()
}

func stuckDiskIsLeft(t *testing.T) {
	const within = 10 * time.Second
	var full atomic.Bool
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return syscall.ENOSPC
		}
		return nil
	}))
	e := newPipedEnv(t, 1, 1)
	c := newChain(t, e.kafka, e.cat, 8)
	c.keys, c.logs = 100_000, 400
	acfg := e.config("a", disk)
	acfg.Standbys, acfg.Memory.MemTable = 1, 64<<10
	a := e.start(acfg)
	c.add(1)
	e.caughtUp(c, a)
	fill := func() (since time.Time) {
		full.Store(true)
		for range 40 {
			c.add(1)
		}
		polltest.Until(t, "a write waits for the disk", func() bool { since = a.replicas[0].waiting(); return !since.IsZero() })
		return since
	}
	fill()
	polltest.Until(t, "it is not ready, and says why", func() bool {
		err := a.Ready(time.Hour)
		return err != nil && strings.Contains(err.Error(), "partition 0: the state cannot be written: ")
	})
	polltest.Until(t, "the owner stands still", func() bool { return a.stuck() != nil })
	before := gauge(t, acfg.Registerer, "lienstream_processors_lag_blocks")
	for range 5 {
		c.add(1)
	}
	polltest.Until(t, "lag grows", func() bool { return gauge(t, acfg.Registerer, "lienstream_processors_lag_blocks") >= max(before, 1)+5 })
	full.Store(false)
	e.caughtUp(c, a)
	polltest.Until(t, "it is ready again", func() bool { return a.Ready(time.Hour) == nil })

	bcfg := e.config("b", vfs.NewMem())
	bcfg.Standbys = 1
	b := e.start(bcfg)
	polltest.Until(t, "a standby at the head", e.at(c, b, topics.RoleStandby))
	since := fill()
	e.caughtUp(c, b)
	if took := time.Since(since); took > within {
		t.Errorf("the standby owns %v after the disk was stuck", took)
	}
	e.invariantState(c, b)
	full.Store(false)
	polltest.Until(t, "the first one follows again", func() bool { return a.stuck() == nil })
	b.stop(t)
	e.caughtUp(c, a)
	e.invariantState(c, a)
	e.invariantTopics(c)
}

// A node whose state cannot even be opened is not ready, owner or standby, and is once the disk has space.
func TestFullDiskIsNotReady(t *testing.T) {
	e := newEnv(t, 1)
	c := newChain(t, e.kafka, e.cat, 8)
	c.add(1)
	for _, role := range []topics.HolderRole{topics.RoleOwner, topics.RoleStandby} {
		var full atomic.Bool
		full.Store(true)
		cfg := e.config(string(role), errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if full.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
				return syscall.ENOSPC
			}
			return nil
		})))
		cfg.Standbys = 1
		n := e.start(cfg)
		polltest.Until(t, "the "+string(role)+" is not ready, and says why", func() bool {
			err := n.Ready(time.Hour)
			return err != nil && strings.Contains(err.Error(), "partition 0: the disk has refused every start for ")
		})
		full.Store(false)
		polltest.Until(t, "a "+string(role)+" at the head", e.at(c, n, role))
		polltest.Until(t, "it is ready again", func() bool { return n.Ready(time.Hour) == nil })
	}
}

// newPipedEnv is newEnv with a network in memory, and with several brokers.
func newPipedEnv(t *testing.T, partitions int32, brokers int) *env {
	listeners := map[string]*pipeListener{}
	b, err := broker.Open(broker.Config{Nodes: brokers, Listen: func(string, string) (net.Listener, error) {
		l := &pipeListener{port: uint16(9092 + len(listeners)), conns: make(chan net.Conn), closed: make(chan struct{})}
		listeners[l.Addr().String()] = l
		return l, nil
	}})
	check(t, err)
	t.Cleanup(func() { check(t, b.Close()) })
	cfg := brokertest.Config(b.Addrs(), "t")
	cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return listeners[addr].dial(ctx, network, addr)
	}
	e := provision(t, cfg, partitions)
	e.broker = b
	return e
}

// pipeListener accepts connections from dial.
type pipeListener struct {
	port   uint16
	conns  chan net.Conn
	closed chan struct{}
	close  sync.Once
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *pipeListener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *pipeListener) Addr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), l.port))
}

// A disk whose every write takes its time delays what is served, and falsifies nothing.
func TestSlowDisk(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	var calls atomic.Int64
	wait := func() time.Duration { return time.Duration(random.IntN(20)) * time.Millisecond }
	delays := make([]time.Duration, 64)
	for i := range delays {
		delays[i] = wait()
	}
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			<-time.After(delays[calls.Add(1)%int64(len(delays))])
		}
		return nil
	}))
	e := newEnv(t, 2)
	c := newChain(t, e.kafka, e.cat, 9)
	cfg := e.config("a", disk)
	for range 3 { // stores are flushed when a node stops, and read again when it starts
		cfg.Registerer = nil
		n := e.start(cfg)
		e.scenario(c, 10)
		e.caughtUp(c, n)
		e.invariantState(c, n)
		e.committed(c, n) // what is shown and not committed is for the next owner, and there is none
		n.stop(t)
	}
	e.invariantTopics(c)
	if calls.Load() == 0 {
		t.Error("the disk was never written")
	}
}
