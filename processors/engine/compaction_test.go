package engine

import (
	"bytes"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
)

// compactedAhead counts the open records of a partition's changelog before which entries stand that no progress
// ends: compaction took it, for one behind them.
func (e *env) compactedAhead(p int32) (opens int) {
	loose := 0
	for _, r := range e.readAll(e.cat.Changelog(topics.AppMarket), p) {
		switch {
		case bytes.Equal(r.Key, keyProgress):
			loose = 0
		case !bytes.Equal(r.Key, keyOpen):
			loose++
		case loose > 0:
			opens++
		}
	}
	return opens
}

// restores checks that a node whose disk stayed goes on, and that one without a disk comes to the same.
func (e *env) restores(c *chain, cfg Config) {
	e.t.Helper()
	for _, disk := range []vfs.FS{cfg.FS, vfs.NewMem()} {
		cfg.FS, cfg.Registerer = disk, nil
		n := e.start(cfg)
		e.caughtUp(c, n)
		e.invariantState(c, n)
		e.scenario(c, 5)
		e.caughtUp(c, n)
		e.invariantState(c, n)
		e.invariantTopics(c)
		n.stop(e.t)
	}
}

// A changelog that had several owners restores whenever it was compacted.
func TestCompactedChangelog(t *testing.T) {
	addrs, compact := brokertest.Compactable(t)
	e := provision(t, brokertest.Config(addrs, "t"), 2)
	c := newChain(t, e.kafka, e.cat, 11)
	cfg := []Config{e.config("a", vfs.NewMem()), e.config("b", vfs.NewMem())}
	ahead := 0
	for life := range 6 {
		cfg[life%2].Registerer = nil
		n := e.start(cfg[life%2])
		e.scenario(c, 10)
		e.caughtUp(c, n)
		e.invariantState(c, n)
		n.stop(t)
		compact()
		ahead += e.compactedAhead(0) + e.compactedAhead(1)
	}
	if ahead == 0 {
		t.Fatal("compaction left no open record behind entries without a progress")
	}
	e.restores(c, cfg[0])
}

// The same on Apache Kafka, which compacts while owners and standbys read and write.
func TestCompactedWhileOwnersChange(t *testing.T) {
	k := brokertest.ApacheWith(t, broker.ApacheConfig{Settings: map[string]string{
		"log.roll.ms": "150", "log.cleaner.backoff.ms": "50", "log.cleaner.min.cleanable.ratio": "0.001",
	}})
	e := provision(t, brokertest.Config(k.Addrs(), "compacted"), 2)
	c := newChain(t, e.kafka, e.cat, testSeed(t))
	var nodes []*runningNode
	for _, name := range []string{"a", "b"} {
		cfg := e.config(name, vfs.NewMem())
		cfg.Standbys = 1
		nodes = append(nodes, e.start(cfg))
	}
	const owners, met = 16, 3 // changes of owners, and of those that met a changelog that was compacted ahead of them
	ahead, deadline := 0, time.Now().Add(3*time.Minute)
	for i := 0; i < owners || ahead < met; i++ {
		if time.Now().After(deadline) {
			t.Fatalf("after %d changes of owners %d met a changelog that was compacted ahead of them", i, ahead)
		}
		e.scenario(c, 4)
		e.caughtUp(c, nodes...)
		e.invariantState(c, nodes...)
		if e.compactedAhead(0)+e.compactedAhead(1) > 0 {
			ahead++
		}
		gone := nodes[i%2]
		gone.stop(t)
		e.scenario(c, 4)
		e.caughtUp(c, nodes[1-i%2])
		cfg := gone.cfg
		cfg.Registerer = nil
		if i%4 > 1 {
			cfg.FS = vfs.NewMem()
		}
		nodes[i%2] = e.start(cfg)
	}
	cfg := nodes[0].cfg
	for _, n := range nodes {
		n.stop(t)
	}
	e.restores(c, cfg)
}
