package engine

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/topics"
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
	eventually(t, "both own their share", func() bool {
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

// Where a node leaves, each of its partitions goes to the node that has followed it, and nothing is restored.
func TestTakeoversAreWarm(t *testing.T) {
	e := newEnv(t, 12)
	c := newChain(t, e.kafka, e.cat, 5)
	nodes := map[string]*runningNode{}
	for _, name := range []string{"a", "b", "c", "d"} {
		cfg := e.config(name, vfs.NewMem())
		cfg.Standbys = 1
		nodes[name] = e.start(cfg)
	}
	for range 30 {
		c.add(1)
	}
	holders := func(role topics.Role) map[int32]string {
		held := map[int32]string{}
		for name, n := range nodes {
			for _, w := range n.Watermarks() {
				if w.Role == role && same(w.At, c.head()) {
					held[w.Partition] = name
				}
			}
		}
		return held
	}
	var owners, standbys map[int32]string
	eventually(t, "every node owns its share, and all is followed", func() bool {
		owners, standbys = holders(topics.RoleOwner), holders(topics.RoleStandby)
		share := map[string]int{}
		for _, name := range owners {
			share[name]++
		}
		return len(owners) == 12 && len(standbys) == 12 && share["a"] >= 2 && len(share) == 4
	})
	nodes["a"].stop(t)
	delete(nodes, "a")
	c.add(1)
	eventually(t, "all is owned again", func() bool { return len(holders(topics.RoleOwner)) == 12 })
	for p, name := range holders(topics.RoleOwner) {
		if owners[p] == "a" && standbys[p] != name {
			t.Errorf("partition %d went to %s; %s had followed it", p, name, standbys[p])
		}
	}
	var all []*runningNode
	for _, n := range nodes {
		all = append(all, n)
	}
	e.caughtUp(c, all...)
	e.invariantState(c, all...)
}
