package engine

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lienstream/lienstream/topics/polltest"
)

// A node says how far a partition is for as long as it holds it: what it knew then would hide that another, or nobody, is far behind.
func TestAPartitionThatMovedHasNoLag(t *testing.T) {
	e := newEnv(t, 2)
	c := newChain(t, e.kafka, e.cat, 8)
	acfg := e.config("a", vfs.NewMem())
	a := e.start(acfg)
	for range 5 {
		c.add(1)
	}
	e.caughtUp(c, a)
	b := e.start(e.config("b", vfs.NewMem()))
	polltest.Until(t, "each has one", func() bool { return len(a.Watermarks()) == 1 && len(b.Watermarks()) == 1 })
	e.caughtUp(c, a, b)
	stays, moved := label(a.Watermarks()[0].Partition), label(b.Watermarks()[0].Partition)
	polltest.Until(t, "only what it holds has a lag", func() bool {
		families, err := acfg.Registerer.(*prometheus.Registry).Gather()
		check(t, err)
		has := map[string]int{}
		for _, f := range families {
			if f.GetName() != "lienstream_processors_lag_blocks" && f.GetName() != "lienstream_processors_block_number" {
				continue
			}
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "partition" {
						has[l.GetValue()]++
					}
				}
			}
		}
		return has[stays] == 2 && has[moved] == 0
	})
}

// TestAnIdlePartitionHasANumber: what was forgotten while a task showed it is told again, though nothing moves.
func TestAnIdlePartitionHasANumber(t *testing.T) {
	e := newEnv(t, 1)
	c := newChain(t, e.kafka, e.cat, 8)
	a := e.start(e.config("a", vfs.NewMem()))
	c.add(1)
	e.caughtUp(c, a)
	at := float64(a.Watermarks()[0].At.Number)
	a.metrics.forget(0)
	polltest.Until(t, "its block is told", func() bool { return testutil.ToFloat64(a.metrics.block.WithLabelValues(label(0))) == at })
}
