package engine

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// newDeposed is a broker that may say an old end of the changelog.
func newDeposed(t *testing.T, isolation int8) (*env, *brokertest.Deposed) {
	changelog := topics.Catalogue{Prefix: "t", ChainID: 1}.Changelog(topics.AppMarket)
	d := brokertest.StartDeposed(t, changelog, 0, isolation)
	e := provision(t, brokertest.Config(d.Addrs, "t"), 1)
	if is := e.cat.Changelog(topics.AppMarket); is != changelog {
		t.Fatalf("the changelog is %s, not %s", is, changelog)
	}
	return e, d
}

// Who takes over fences the joint ID that the former owner writes under, although a broker named none when it asked.
func TestDeposedLeaderNamesTheWriter(t *testing.T) {
	e, d := newDeposed(t, 1)
	c := newChain(t, e.kafka, e.cat, 5)
	a := e.holdAll(e.config("a", vfs.NewMem()), topics.RoleOwner)
	c.add(1)
	e.caughtUp(c, a)
	e.committed(c, a)
	first, err := a.lastLife(t.Context(), 0)
	check(t, err)
	e.together(c, a)
	cfg := e.config("b", vfs.NewMem())
	cfg.crash = func(_ int32, point string) bool {
		if point == "caughtUp" && d.Told.Load() == 0 {
			d.Old.Store(first.end + 1)
		}
		return false
	}
	b := e.holdAll(cfg, topics.RoleOwner)
	polltest.Until(t, "the former owner is fenced, and none of the two writes beside the other", func() bool {
		c.add(1)
		e.caughtUp(c, a)
		writers := map[int64]bool{}
		for _, r := range e.readAll(e.cat.Changelog(topics.AppMarket), 0) {
			if string(r.Key) == string(keyOpen) {
				clear(writers)
			}
			writers[r.ProducerID] = true
		}
		if d.Told.Load() > 0 && len(writers) > 2 {
			t.Fatalf("after the last open record %d producers write", len(writers))
		}
		return d.Told.Load() > 0 && total(t, a.cfg.Registerer, "lienstream_processors_restarts_total", "fenced") > 0
	})
	b.stop(t)
	e.caughtUp(c, a)
	e.invariantTopics(c)
}

// One such answer does not stop a task: its state is ahead of what the broker knows, and of nothing else.
func TestDeposedLeaderStopsNoTask(t *testing.T) {
	e, d := newDeposed(t, 0)
	c := newChain(t, e.kafka, e.cat, 5)
	disk := vfs.NewMem()
	n := e.start(e.config("a", disk))
	for range 10 {
		c.add(1)
		e.caughtUp(c, n)
	}
	n.stop(t)
	d.Old.Store(5)
	n = e.start(e.config("a", disk))
	c.add(1)
	e.caughtUp(c, n)
	if d.Told.Load() == 0 {
		t.Fatal("nobody asked")
	}
}
