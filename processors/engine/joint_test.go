package engine

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// together waits until every partition's last commit is of the node's transactions, all of one producer.
func (e *env) together(c *chain, n *runningNode) {
	e.t.Helper()
	polltest.Until(e.t, "all partitions are committed together", func() bool {
		c.add(1)
		e.caughtUp(c, n)
		producers := map[int64]bool{}
		for p := range e.cat.Partitions {
			last, err := n.lastWriter(e.t.Context(), p)
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
		if p == 0 && point == "beforeEnd" && armed.Load() {
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

// A task that fails in a transaction of all takes none of them along for good: each goes on, once, from what was committed.
func testJointTaskFails(t *testing.T, e *env) {
	c := newChain(t, e.kafka, e.cat, 22)
	c.logs = 40
	var armed atomic.Bool
	cfg := e.config("a", vfs.NewMem())
	cfg.crash = func(p int32, point string) bool {
		return p == 1 && point == "beforeEnd" && armed.CompareAndSwap(true, false)
	}
	n := e.holdAll(cfg, topics.RoleOwner)
	for range 3 {
		e.together(c, n)
		armed.Store(true)
		polltest.Until(t, "the task fails", func() bool {
			c.add(1)
			e.caughtUp(c, n)
			return !armed.Load()
		})
	}
	e.together(c, n)
	e.invariantState(c, n)
	e.invariantTopics(c)
	e.finish(c, n)
}
