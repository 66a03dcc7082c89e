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
