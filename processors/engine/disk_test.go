package engine

import (
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

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
// `lag` says so; another node owns it within seconds, and the first one comes back when there is space.
func TestStuckDiskIsLeft(t *testing.T) {
	var full atomic.Bool
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return syscall.ENOSPC
		}
		return nil
	}))
	e := newEnv(t, 1)
	c := newChain(t, e.kafka, e.cat, 8)
	c.keys, c.logs = 100_000, 4000
	acfg := e.config("a", disk)
	a := e.start(acfg)
	c.add(1)
	e.caughtUp(c, a)
	full.Store(true)
	for range 40 {
		c.add(1)
	}
	polltest.Until(t, "the owner stands still", func() bool { return a.stuck() != nil })
	before := gauge(t, acfg.Registerer, "lienstream_processors_lag_blocks")
	for range 5 {
		c.add(1)
	}
	polltest.Until(t, "lag grows", func() bool { return gauge(t, acfg.Registerer, "lienstream_processors_lag_blocks") >= max(before, 1)+5 })

	bcfg := e.config("b", vfs.NewMem())
	bcfg.Standbys = 1
	b := e.start(bcfg)
	e.caughtUp(c, b)
	e.invariantState(c, b)
	full.Store(false)
	polltest.Until(t, "the first one follows again", func() bool { return a.stuck() == nil })
	b.stop(t)
	e.caughtUp(c, a)
	e.invariantState(c, a)
	e.invariantTopics(c)
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
