package engine

import (
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// replaceRaw deletes the raw topic and fills it again with the same records, but for barriers that edit leaves out or changes. The
// chain that it returns goes on.
func (e *env) replaceRaw(former *chain, edit func(*topics.BlockEnd) (keep bool)) *chain {
	e.t.Helper()
	records := make([][]*kafka.Record, e.cat.Partitions)
	for p := range records {
		records[p] = e.readAll(e.cat.Raw(), int32(p))
	}
	brokertest.Delete(e.t, e.kafka.Brokers, e.cat.Raw())
	provision(e.t, e.kafka, e.cat.Partitions)
	c := newChain(e.t, e.kafka, e.cat, 6) // the producer of the former topic knows its ID
	c.blocks, c.salt, c.reverts, c.final = former.blocks, former.salt, former.reverts, former.final
	c.begin()
	for p, rs := range records {
		for _, r := range rs {
			value := r.Value
			if raw, err := topics.DecodeRaw(value); edit != nil && len(r.Key) == 0 {
				check(e.t, err)
				if end, ok := raw.(*topics.BlockEnd); ok {
					if !edit(end) {
						continue
					}
					value = topics.AppendRaw(nil, end)
				}
			}
			c.tx.Produce(e.t.Context(), &kafka.Record{Topic: r.Topic, Partition: int32(p), Key: r.Key, Value: value})
		}
	}
	c.commit()
	return c
}

// rebuilds makes the state anew beside the disk's, and requires that it is that of the chain, and that every event was published once.
func (e *env) rebuilds(c *chain, disk *vfs.MemFS) {
	e.t.Helper()
	cfg := e.config("a", disk)
	cfg.Rebuild = true
	n := e.start(cfg)
	e.caughtUp(c, n)
	e.invariantState(c, n)
	e.committed(c, n)
	for p := range e.cat.Partitions {
		if got, want := e.head(p), c.events(p, 1<<62); len(got) != len(want) {
			e.t.Errorf("partition %d: %d events of %d", p, len(got), len(want))
		}
	}
	e.invariantTopics(c)
	e.scenario(c, 10)
	e.finish(c, n)
	e.invariantTopics(c)
}

// What a chain does after a block that was the last one to be published.
var later = map[string]func(*chain){
	"it goes on": func(*chain) {},
	"a heartbeat": func(c *chain) {
		b, parent := c.head(), c.blocks[len(c.blocks)-2].ref
		c.begin()
		for p := range c.cat.Partitions {
			c.send(p, nil, &topics.BlockEnd{Block: b, Parent: parent.Hash, Finalized: c.final, Head: b.Number, Commit: true, Previous: c.before(parent), Linked: true})
		}
		c.commit()
	},
	"a reorg": func(c *chain) {
		b, previous := c.head(), c.before(c.blocks[len(c.blocks)-2].ref)
		c.reverts++
		c.blocks = c.blocks[:len(c.blocks)-1]
		c.begin()
		for p := range c.cat.Partitions {
			c.send(p, nil, &topics.BlockRevert{Block: b, Head: previous})
		}
		c.previous = previous
		c.block(true)
		c.commit()
	},
}

// published makes a chain of which a node has published all but what comes later. empty: its last block has no logs.
func published(t *testing.T, empty bool) (*env, *chain, *vfs.MemFS) {
	t.Helper()
	e := newEnv(t, 2)
	c := newChain(t, e.kafka, e.cat, 5)
	disk := vfs.NewMem()
	n := e.start(e.config("a", disk))
	logs := c.logs
	c.begin()
	for range 10 {
		c.block(false)
	}
	if empty {
		c.logs = 0
	}
	c.block(true)
	c.commit()
	c.logs = logs
	e.caughtUp(c, n)
	e.committed(c, n)
	n.stop(t)
	return e, c, disk
}

// A raw topic that was ingested again has no barriers of blocks without logs. Where the last block that was published is such a one,
// its child's barrier names it.
func TestIngestedAgain(t *testing.T) {
	for name, more := range later {
		t.Run(name, func(t *testing.T) {
			e, c, disk := published(t, true)
			last, before := c.head(), c.blocks[len(c.blocks)-2].ref
			c = e.replaceRaw(c, func(end *topics.BlockEnd) bool {
				end.Commit = end.Commit || end.Block.Same(before)
				return !end.Block.Same(last)
			})
			c.previous = before
			c.add(1)
			c.previous = before
			more(c)
			c.previous = topics.BlockRef{}
			e.rebuilds(c, disk)
		})
	}
}

// A raw topic that was mirrored whole, and has more than was published.
func TestReplacedWithItsChild(t *testing.T) {
	for name, more := range later {
		t.Run(name, func(t *testing.T) {
			e, c, disk := published(t, false)
			c.add(1)
			more(c)
			e.rebuilds(e.replaceRaw(c, nil), disk)
		})
	}
}

// A task that knows of its next blocks that they are final has progress whose floor is above its block.
func TestReplacedBelowTheFloor(t *testing.T) {
	e := newEnv(t, 2)
	c := newChain(t, e.kafka, e.cat, 5)
	for range 10 {
		c.add(1)
	}
	c.final = 8
	c.add(1)
	disk := vfs.NewMem()
	var commits [2]atomic.Int64
	first := e.config("a", disk)
	first.crash = func(p int32, point string) bool { return point == "beforeEnd" && commits[p].Add(1) > 2 } // it dies in its third commit
	n := e.start(first)
	polltest.Until(t, "two commits", func() bool { return commits[0].Load() > 2 && commits[1].Load() > 2 })
	n.stop(t)
	e.rebuilds(e.replaceRaw(c, nil), disk)
}
