package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// lastWriter is the joint ID that a partition's last commit names.
func lastWriter(ctx context.Context, n *Node, partition int32) (string, error) {
	last, err := n.lastLife(ctx, partition)
	return last.progress.Writer, err
}

// together waits until every partition's last commit is of the node's transactions, all of one producer.
func (e *env) together(c *chain, n *runningNode) {
	e.t.Helper()
	polltest.Until(e.t, "all partitions are committed together", func() bool {
		c.add(1)
		e.caughtUp(c, n)
		producers := map[int64]bool{}
		for p := range e.cat.Partitions {
			last, err := lastWriter(e.t.Context(), n.Node, p)
			check(e.t, err)
			if last == "" {
				return false
			}
			check(e.t, n.history.ReadBack(e.t.Context(), n.changelog, p, 1, func(r *kafka.Record) bool {
				producers[r.ProducerID] = true
				return false
			}))
		}
		return len(producers) == 1
	})
}

// At the tip the partitions of a node are committed by one producer. One that dies with such a transaction open, and one
// that freezes in it and goes on when others own its partitions, change nothing of it.
func testJoint(t *testing.T, e *env) {
	c := newChain(t, e.kafka, e.cat, 21)
	c.logs = 40 // all partitions are touched
	var armed atomic.Bool
	arrived, leave := make(chan struct{}, 8), make(chan struct{})
	cfg := e.config("a", vfs.NewMem())
	cfg.CommitTimeout = time.Minute
	cfg.crash = func(p int32, point string) bool {
		if p == 0 && point == "handedOver" && armed.Load() {
			arrived <- struct{}{}
			<-leave
		}
		return false
	}
	a := e.holdAll(cfg, topics.RoleOwner)
	e.together(c, a)
	armed.Store(true)
	c.add(1)
	select {
	case <-arrived: // and the others have produced, or are about to
	case <-time.After(time.Minute):
		t.Fatal("the first partition is not committed")
	}
	b := e.holdAll(e.config("b", vfs.NewMem()), topics.RoleOwner)
	e.caughtUp(c, b)
	armed.Store(false)
	close(leave)
	polltest.Until(t, "the former owner learns that it was fenced", func() bool {
		return total(t, cfg.Registerer, "lienstream_processors_restarts_total", "fenced") > 0
	})
	a.stop(t)
	e.scenario(c, 10)
	e.caughtUp(c, b)
	e.invariantState(c, b)
	e.invariantTopics(c)
	e.together(c, b)
	e.finish(c, b)
}

// A task that fails or stalls before it has handed over what it commits takes no other along: they go on together.
func testJointTaskFails(t *testing.T, e *env) {
	c := newChain(t, e.kafka, e.cat, 22)
	c.logs = 40
	var armed, stalls atomic.Bool
	arrived, leave := make(chan struct{}, 1), make(chan struct{})
	cfg := e.config("a", vfs.NewMem())
	cfg.CommitTimeout = 5 * time.Minute
	cfg.crash = func(p int32, point string) bool {
		if p != 1 || point != "beforeEnd" || !armed.CompareAndSwap(true, false) {
			return false
		}
		if stalls.Load() {
			arrived <- struct{}{}
			<-leave
			return false
		}
		return true
	}
	n := e.holdAll(cfg, topics.RoleOwner)
	t.Cleanup(func() { close(leave) })
	failed := func() float64 { return total(t, cfg.Registerer, "lienstream_processors_restarts_total", "") }
	for i := range 3 {
		e.together(c, n)
		armed.Store(true)
		polltest.Until(t, "the task fails", func() bool {
			c.add(1)
			e.caughtUp(c, n)
			return !armed.Load()
		})
		polltest.Until(t, "it starts again", func() bool { return failed() >= float64(i+1) })
		if got := failed(); got != float64(i+1) {
			t.Fatalf("%v tasks have started again after %d failures of one", got, i+1)
		}
	}
	e.together(c, n)
	stalls.Store(true)
	armed.Store(true)
	c.add(1)
	select {
	case <-arrived:
	case <-time.After(time.Minute):
		t.Fatal("the task commits nothing")
	}
	c.add(1)
	polltest.Until(t, "the others commit", func() bool {
		for _, p := range []int32{0, 2, 3} {
			if last, err := n.lastLife(t.Context(), p); err != nil || !last.progress.At.Same(c.head()) {
				return false
			}
		}
		return true
	})
	leave <- struct{}{}
	e.together(c, n)
	if got := failed(); got != 3 {
		t.Fatalf("%v tasks have started again after 3 failures of one", got)
	}
	e.invariantState(c, n)
	e.invariantTopics(c)
	e.finish(c, n)
}

// gate holds back what is written under transactional IDs that contain a text.
type gate struct {
	of      []byte
	closed  atomic.Bool
	arrived chan struct{}
	open    chan struct{}
}

func newGate(of string) *gate {
	return &gate{of: []byte(of), arrived: make(chan struct{}, 1), open: make(chan struct{})}
}

func (g *gate) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	return gated{c, g}, err
}

type gated struct {
	net.Conn
	g *gate
}

func (gated) SetWriteDeadline(time.Time) error { return nil } // a broker that is slow is none that is away

func (c gated) Write(b []byte) (int, error) {
	const produce = 0
	if c.g.closed.Load() && len(b) > 6 && binary.BigEndian.Uint16(b[4:]) == produce && bytes.Contains(b, c.g.of) {
		select {
		case c.g.arrived <- struct{}{}:
		default:
		}
		<-c.g.open
	}
	return c.Conn.Write(b)
}

// A task that ends while it commits with others, and whose node owns the partition again, writes nothing before that commit is
// decided: its open record would come before what it left.
func testLeftRound(t *testing.T, e *env) {
	c := newChain(t, e.kafka, e.cat, 23)
	c.logs = 40
	g := newGate(".-1.a.")
	opened := sync.OnceFunc(func() { close(g.open) })
	cfg := e.config("a", vfs.NewMem())
	cfg.Kafka.Dial = g.dial
	restored := make(chan struct{}, e.cat.Partitions)
	cfg.crash = func(_ int32, point string) bool {
		if point == "restored" && g.closed.Load() {
			restored <- struct{}{}
		}
		return false
	}
	n := e.holdAll(cfg, topics.RoleOwner, topics.RoleOwner)
	t.Cleanup(opened)
	e.together(c, n)
	g.closed.Store(true)
	c.add(1)
	select {
	case <-g.arrived:
	case <-time.After(time.Minute):
		t.Fatal("nothing is committed together")
	}
	n.nextRole()
	for range e.cat.Partitions {
		select {
		case <-restored:
		case <-time.After(200 * time.Millisecond): // they wait, as they should
		}
	}
	g.closed.Store(false)
	opened()
	e.caughtUp(c, n)
	e.scenario(c, 5)
	e.caughtUp(c, n)
	e.invariantState(c, n)
	e.invariantTopics(c)
	e.finish(c, n)
}

// Two nodes that contend for one partition disturb each other's other partitions once, not again and again.
func testContended(t *testing.T, e *env) {
	c := newChain(t, e.kafka, e.cat, 24)
	c.logs = 40
	cfg := e.config("a", vfs.NewMem())
	a := e.holdAll(cfg, topics.RoleOwner)
	e.together(c, a)
	other := e.config("b", vfs.NewMem())
	b := e.holdSome(other, []int32{0}, topics.RoleOwner)
	polltest.Until(t, "they fence each other", func() bool {
		c.add(1)
		return total(t, other.Registerer, "lienstream_processors_restarts_total", "fenced") >= 2
	})
	b.stop(t)
	e.caughtUp(c, a)
	for _, p := range []string{"1", "2", "3"} {
		if got := count(t, cfg.Registerer, "lienstream_processors_restarts_total", "partition", p); got > 1 {
			t.Errorf("partition %s, which nobody else owns, started again %v times", p, got)
		}
	}
	e.invariantState(c, a)
	e.invariantTopics(c)
	e.finish(c, a)
	a.stop(t)
	for _, r := range a.replicas[1:] {
		if !r.fenced.IsZero() {
			t.Errorf("partition %d, which nobody else owns, counts as taken over", r.partition)
		}
	}
}

// An owner that has not committed since it started leaves the node's transactions too, if its last life took part.
func testReleaseAfterRestart(t *testing.T, e *env) {
	c := newChain(t, e.kafka, e.cat, 25)
	c.logs = 40
	var armed atomic.Bool
	cfg := e.config("a", vfs.NewMem())
	cfg.crash = func(p int32, point string) bool {
		return p == 0 && point == "afterPebble" && armed.CompareAndSwap(true, false)
	}
	n := e.holdAll(cfg, topics.RoleOwner)
	e.together(c, n)
	armed.Store(true)
	c.add(1)
	polltest.Until(t, "the task has started again", func() bool {
		return total(t, cfg.Registerer, "lienstream_processors_restores_total", "") > float64(e.cat.Partitions)
	})
	e.caughtUp(c, n)
	n.replicas[0].leaving.Store(true)
	polltest.Within(t, 10*time.Second, func() error {
		writer, err := lastWriter(t.Context(), n.Node, 0)
		if err == nil && writer != "" {
			err = errors.New("the partition's next owner would fence " + writer)
		}
		return err
	})
}

// A partition's own transactional ID is in use even while its node commits all together: brokers forget one that is not.
func testRenewal(t *testing.T, e *env) {
	c := newChain(t, e.kafka, e.cat, 26)
	c.logs = 40
	cfg := e.config("a", vfs.NewMem())
	cfg.renewal = time.Nanosecond
	n := e.holdAll(cfg, topics.RoleOwner)
	own := func(p int32) bool { // that takes part, and used its own ID last
		var last, open *kafka.Record
		check(t, n.history.ReadBack(t.Context(), n.changelog, p, 0, func(r *kafka.Record) bool {
			if bytes.Equal(r.Key, keyOpen) {
				open = r
			} else if last == nil {
				last = r
			}
			return open == nil
		}))
		writer, err := lastWriter(t.Context(), n.Node, p)
		check(t, err)
		return writer != "" && last != nil && last.ProducerID == open.ProducerID
	}
	polltest.Until(t, "all partitions name a joint ID", func() bool {
		c.add(1)
		e.caughtUp(c, n)
		for p := range e.cat.Partitions {
			if writer, err := lastWriter(t.Context(), n.Node, p); err != nil || writer == "" {
				return false
			}
		}
		return true
	})
	for range 5 {
		c.add(1)
		e.caughtUp(c, n)
		for p := range e.cat.Partitions {
			if !own(p) {
				t.Errorf("partition %d does not use its own ID", p)
			}
		}
	}
	e.finish(c, n)
	e.invariantTopics(c)
	if restarts := total(t, cfg.Registerer, "lienstream_processors_restarts_total", ""); restarts > 0 {
		t.Errorf("tasks started again %v times", restarts)
	}
}

// One node of two rebuilds what it gets, while the other goes on with what it has.
func testRebuildBeside(t *testing.T, e *env) {
	c := newChain(t, e.kafka, e.cat, 27)
	c.logs = 40
	a := e.start(e.config("a", vfs.NewMem()))
	e.scenario(c, 20)
	e.together(c, a)
	cfg := e.config("b", vfs.NewMem())
	cfg.Rebuild = true
	b := e.start(cfg)
	polltest.Until(t, "the second node owns something", func() bool {
		e.scenario(c, 1)
		e.caughtUp(c, a, b)
		for _, w := range b.Watermarks() {
			if w.Role == topics.RoleOwner {
				return true
			}
		}
		return false
	})
	e.scenario(c, 10)
	e.caughtUp(c, a, b)
	e.invariantState(c, a, b)
	e.invariantTopics(c)
	b.stop(t)
	e.scenario(c, 5)
	e.finish(c, a)
	e.invariantTopics(c)
}

// A node that dies at any step of a joint commit, whichever of its tasks has come there, leaves nothing lost, doubled or torn to the
// next one, which has its disk as of some moment.
func testNodeDies(t *testing.T, e *env) {
	seed := testSeed(t)
	c := newChain(t, e.kafka, e.cat, seed)
	c.logs = 40
	rng := rand.New(rand.NewPCG(seed, 3))
	fs := vfs.NewCrashableMem()
	for _, at := range []string{"beforeEnd", "handedOver", "duringEnd", "afterEnd", "afterPebble"} {
		var armed, dead atomic.Bool
		var arrived atomic.Int32
		var n *runningNode
		arrivals := 1 + rng.Int32N(e.cat.Partitions)
		died := make(chan struct{})
		cfg := e.config("a", fs)
		cfg.crash = func(_ int32, point string) bool {
			if point == at && armed.Load() && arrived.Add(1) == arrivals {
				dead.Store(true)
				if x := n.joint.current(); x != nil {
					x.tx.Kill()
				}
				close(died)
			}
			return dead.Load()
		}
		n = e.holdAll(cfg, topics.RoleOwner)
		e.together(c, n)
		e.scenario(c, 3)
		e.caughtUp(c, n)
		armed.Store(true)
		polltest.Until(t, "the node dies "+at, func() bool {
			c.add(1)
			select {
			case <-died:
				return true
			default:
				return false
			}
		})
		next := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
		n.stop(t)
		fs = next
		e.scenario(c, rng.IntN(4))
	}
	n := e.holdAll(e.config("a", fs), topics.RoleOwner)
	e.caughtUp(c, n)
	e.invariantState(c, n)
	e.invariantTopics(c)
	e.together(c, n)
	e.finish(c, n)
}

// Who takes over waits until the owner has left its node's transactions, whether it has a state or rebuilds one.
func testAwaitsRelease(t *testing.T, e *env) {
	c := newChain(t, e.kafka, e.cat, 28)
	c.logs = 40
	a := e.holdAll(e.config("a", vfs.NewMem()), topics.RoleOwner)
	e.together(c, a)
	next, err := New(e.config("b", vfs.NewMem()), toy{})
	check(t, err)
	check(t, next.connect())
	defer next.disconnect()
	short, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := next.replicas[1]
	defer func() { check(t, r.close()) }()
	pos, err := next.open(t.Context(), r, nil)
	check(t, err)
	s, err := next.newRestorer(r, pos, rankStandby)
	check(t, err)
	defer s.close()
	check(t, s.catchUp(t.Context(), next))
	for p, await := range []func() error{
		func() error { return next.readRelease(t.Context(), short, 0) },
		func() error { return s.awaitRelease(t.Context(), short) },
	} {
		done := make(chan error, 1)
		go func() { done <- await() }()
		a.replicas[p].leaving.Store(true)
		check(t, <-done)
		if writer, err := lastWriter(t.Context(), next, int32(p)); err != nil || writer != "" || short.Err() != nil {
			t.Errorf("partition %d is taken over while its owner names %q: %v", p, writer, errors.Join(err, short.Err()))
		}
	}
}

// Who is fenced waits the longer the more often, but not for what was long ago.
func TestPauseOfAFencedTask(t *testing.T) {
	r := &replica{}
	now := time.Now()
	fails := func(err error, worked bool, after time.Duration, want time.Duration, next time.Duration) time.Duration {
		t.Helper()
		now = now.Add(after)
		r.worked = worked
		if next = r.pause(err, next, now); next != want {
			t.Fatalf("waits %s, want %s", next, want)
		}
		return 2 * next
	}
	next := fails(kafka.ErrFenced, true, 0, fencedPause, minPause)
	next = fails(kafka.ErrFenced, true, time.Second, 2*fencedPause, next)
	next = fails(kafka.ErrUnknown, false, time.Second, 4*fencedPause, next)
	next = fails(kafka.ErrUnknown, true, time.Second, minPause, next)
	next = fails(kafka.ErrFenced, true, time.Second, fencedPause, next)
	next = fails(kafka.ErrFenced, true, time.Second, 2*fencedPause, next)
	fails(kafka.ErrFenced, true, 2*contested, fencedPause, next)
}
