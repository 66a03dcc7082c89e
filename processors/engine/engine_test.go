package engine

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Blocks, reorgs and finality come out as a replay would, in state and topics.
func TestLoop(t *testing.T) {
	e := newEnv(t, 4)
	c := newChain(t, e.kafka, e.cat, 1)
	n := e.start(e.config("a", vfs.NewMem()))
	for i := range 40 {
		c.add(1 + i%3)
		if i%5 == 4 {
			c.reorg(min(1+c.rng.IntN(8), len(c.blocks)-int(c.final)))
		}
		if i%7 == 6 {
			c.final = c.head().Number - 5
		}
	}
	e.caughtUp(c, n)
	e.invariantState(c, n)
	e.invariantTopics(c)
	c.final = c.head().Number
	c.add(1)
	e.caughtUp(c, n)
	e.invariantFinal(c, c.final)
}
