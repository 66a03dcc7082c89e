package engine

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/topics/polltest"
)

// The loop on the embedded broker with 16 partitions and state on disk: records of the raw topic a second.
// A log costs two events (at the head and final), an entity, a row and its place in an index.
func BenchmarkBackfill(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		e := newEnv(b, 16)
		c := newChain(b, e.kafka, e.cat, 1)
		c.keys, c.logs, c.final, c.ahead = 200*250, 400, 1<<40, 1_000_000
		for c.sent < 500_000 {
			c.add(50)
		}
		measure := func(what string, cfg Config) {
			cfg.Dir = b.TempDir()
			b.StartTimer()
			started := time.Now()
			n := e.start(cfg)
			e.caughtUp(c, n)
			b.StopTimer()
			b.ReportMetric(float64(c.sent)/time.Since(started).Seconds(), what)
			if restored := total(b, n.cfg.Registerer, "lienstream_processors_restored_records_total", ""); restored > 0 {
				b.ReportMetric(restored/time.Since(started).Seconds(), "restored/s")
			}
			n.stop(b)
		}
		measure("backfilled/s", e.config("a", vfs.Default))
		measure("again/s", e.config("a", vfs.Default)) // from the changelog
		again := e.config("a", vfs.Default)
		again.Rebuild = true
		measure("rebuilt/s", again)
		b.StartTimer()
	}
}

// A node without a disk restores 16 partitions of 180,000 rows, some versions of each in the changelog: until the first
// and until all of them can be read.
func BenchmarkRestoreNode(b *testing.B) {
	e := newEnv(b, 16)
	c := newChain(b, e.kafka, e.cat, 1)
	c.keys, c.logs, c.final, c.ahead = 200*250, 400, 1<<40, 1_000_000
	for c.sent < 500_000 {
		c.add(50)
	}
	n := e.start(e.config("a", vfs.NewMem()))
	e.caughtUp(c, n)
	n.stop(b)
	var first, all, entries float64
	for b.Loop() {
		cfg := e.config("a", vfs.Default)
		cfg.Dir = b.TempDir()
		started := time.Now()
		n := e.start(cfg)
		polltest.Until(b, "a partition can be read", func() bool { return len(n.Watermarks()) > 0 })
		first += time.Since(started).Seconds()
		e.caughtUp(c, n)
		all += time.Since(started).Seconds()
		entries += total(b, n.cfg.Registerer, "lienstream_processors_restored_records_total", "")
		n.stop(b)
	}
	b.ReportMetric(first/float64(b.N), "first-s")
	b.ReportMetric(all/float64(b.N), "all-s")
	b.ReportMetric(entries/float64(b.N), "entries")
}

// From a block in the raw topic to all of its partitions being visible.
func BenchmarkTip(b *testing.B) {
	e := newEnv(b, 16)
	c := newChain(b, e.kafka, e.cat, 1)
	c.logs = 40
	cfg := e.config("a", vfs.Default)
	cfg.Dir = b.TempDir()
	n := e.start(cfg)
	c.add(1)
	e.caughtUp(c, n)
	for b.Loop() {
		c.add(1)
		e.caughtUp(c, n)
	}
}
