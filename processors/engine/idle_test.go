package engine

import (
	"maps"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/topics/polltest"
)

// Owners that have no changes write nothing, although they find out whether they were fenced: while a commit would say
// nothing to others.
func testIdleOwnersWriteNothing(t *testing.T, e *env) {
	c := newChain(t, e.kafka, e.cat, 19)
	n := e.start(e.config("a", vfs.NewMem()))
	e.scenario(c, 10)
	e.caughtUp(c, n)
	look := func() *endsAt {
		began := time.Now()
		polltest.Until(t, "the ends of the changelog are looked up", func() bool {
			last := n.ends.last.Load()
			return last != nil && last.asked.After(began)
		})
		return n.ends.last.Load()
	}
	began := time.Now()
	for before := look(); ; before = look() { // at first they say what became final
		now := before
		for now.asked.Sub(before.asked) < idleInterval+idleLook {
			now = look()
		}
		if maps.Equal(now.ends, before.ends) {
			return
		}
		if time.Since(began) > 30*time.Second {
			t.Fatalf("idle owners moved the ends of the changelog from %v to %v", before.ends, now.ends)
		}
	}
}
