package engine

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// A partition that moves to a node which has to restore it first can be read all the while.
func TestHandOver(t *testing.T) {
	e := newEnv(t, 4)
	c := newChain(t, e.kafka, e.cat, 5)
	cfg := e.config("a", vfs.NewMem())
	a := e.start(cfg)
	c.add(200)
	e.caughtUp(c, a)
	b := e.start(e.config("b", vfs.NewMem()))
	polltest.Until(t, "both own their share", func() bool {
		for p := range e.cat.Partitions {
			// In this order: what a has let go of, b had before.
			if _, ok := a.replicas[p].watermark(); ok {
				continue
			}
			if _, ok := b.replicas[p].watermark(); !ok {
				t.Fatalf("partition %d: nobody can be asked", p)
			}
		}
		owned := 0
		for _, w := range b.Watermarks() {
			if w.Role == topics.RoleOwner {
				owned++
			}
		}
		return owned == int(e.cat.Partitions)/2
	})
	e.caughtUp(c, a, b)
	e.invariantState(c, a, b)
}

// An owner whose partitions go to another node writes on until that one has caught up and fences it. What it writes
// after the other has caught up is not lost, nor anything doubled.
func TestOwnerGoesOnUntilItIsFenced(t *testing.T) {
	e := newEnv(t, 2)
	c := newChain(t, e.kafka, e.cat, 5)
	a := e.start(e.config("a", vfs.NewMem()))
	c.add(50)
	e.caughtUp(c, a)
	cfg := e.config("b", vfs.NewMem())
	caughtUp, fence := make(chan int32, 2), make(chan struct{})
	cfg.crash = func(p int32, point string) bool {
		if point == "caughtUp" {
			select {
			case caughtUp <- p:
			default: // it starts again
			}
			<-fence
		}
		return false
	}
	b := e.start(cfg)
	t.Cleanup(sync.OnceFunc(func() { close(fence) }))
	var moved int32
	select {
	case moved = <-caughtUp:
	case <-time.After(40 * time.Second):
		t.Fatal("no partition goes to the other node")
	}
	polltest.Until(t, "the group has taken it from its owner", a.replicas[moved].leaving.Load)
	for range 10 {
		e.scenario(c, 3)
		e.caughtUp(c, a) // as the owner of both
	}
	e.invariantState(c, a)
	e.committed(c, a)
	restarts := total(t, a.cfg.Registerer, "lienstream_processors_restarts_total", "")
	fence <- struct{}{}
	polltest.Until(t, "the other node owns it", func() bool {
		c.add(1)
		for _, w := range b.Watermarks() {
			if w.Partition == moved && w.Role == topics.RoleOwner {
				return true
			}
		}
		return false
	})
	e.caughtUp(c, a, b)
	e.invariantState(c, a, b)
	e.invariantTopics(c)
	e.finish(c, a, b)
	if again := total(t, a.cfg.Registerer, "lienstream_processors_restarts_total", ""); again > restarts {
		t.Errorf("the node that left it started %v tasks again", again-restarts)
	}
}

// Whichever of four nodes leaves, each of its partitions goes to the node that has followed it, and nothing is
// restored. Only one that the group has just given to another node, which is restoring it, stays with that.
func TestTakeoversAreWarm(t *testing.T) {
	e := newEnv(t, 12)
	c := newChain(t, e.kafka, e.cat, 5)
	nodes := map[string]*runningNode{}
	begin := func(name string) {
		cfg := e.config(name, vfs.NewMem())
		cfg.Standbys = 1
		nodes[name] = e.start(cfg)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		begin(name)
	}
	for range 30 {
		c.add(1)
	}
	holders := func(role topics.HolderRole) map[int32][]string {
		held := map[int32][]string{}
		for name, n := range nodes {
			for _, w := range n.Watermarks() {
				if w.Role == role && w.At.Same(c.head()) {
					held[w.Partition] = append(held[w.Partition], name)
				}
			}
		}
		return held
	}
	taken, warm := 0, 0
	for _, leaving := range []string{"a", "b", "c"} {
		var owners, standbys map[int32][]string
		polltest.Until(t, leaving+" owns something, and all is followed", func() bool {
			owners, standbys = holders(topics.RoleOwner), holders(topics.RoleStandby)
			share := map[string]int{}
			for p, names := range owners {
				if share[names[0]]++; len(names) > 1 || nodes[names[0]].replicas[p].leaving.Load() {
					return false
				}
			}
			if len(owners) < 12 || len(standbys) < 12 || share[leaving] < 2 {
				return false
			}
			assigned := brokertest.Assigned(t, e.kafka.Brokers, fmt.Sprintf("%s.%d.%s", e.cat.Prefix, e.cat.ChainID, topics.AppMarket))
			for p, names := range owners {
				if assigned[p] != names[0] {
					return false
				}
			}
			return true
		})
		nodes[leaving].stop(t)
		delete(nodes, leaving)
		c.add(1)
		polltest.Until(t, "all is owned again", func() bool { return len(holders(topics.RoleOwner)) == 12 })
		for p, names := range holders(topics.RoleOwner) {
			if owners[p][0] != leaving {
				continue
			}
			if taken++; slices.Contains(standbys[p], names[0]) {
				warm++
			} else {
				t.Errorf("partition %d of %s went to %s; %s had followed it", p, leaving, names, standbys[p])
			}
		}
		begin(leaving)
	}
	t.Logf("%d of %d partitions with a standby went to it", warm, taken)
	var all []*runningNode
	for _, n := range nodes {
		all = append(all, n)
	}
	e.caughtUp(c, all...)
	e.invariantState(c, all...)
}
