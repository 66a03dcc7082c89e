package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// stopsBroken waits until all tasks of a node have stopped over a topic that is not whole, and the error says so.
func (e *env) stopsBroken(n *runningNode, says string) {
	e.t.Helper()
	e.stopsFor(n, ErrBroken, says)
}

// stopsFor waits until all tasks stop for an error that says more, and what to do.
func (e *env) stopsFor(n *runningNode, want error, says string) {
	e.t.Helper()
	polltest.Until(e.t, "tasks stop", func() bool { return stoppedTasks(n) == int(e.cat.Partitions) })
	err := n.Stopped()
	if !errors.Is(err, want) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "--rebuild") {
		e.t.Fatalf("%v; want one that says %q and what to do", err, says)
	}
}

// A partition that lost a transaction at its end, where the others did not, and to which the ingester went on
// to append, stops its owner and its standby.
func TestLostTransaction(t *testing.T) {
	for _, role := range []topics.HolderRole{topics.RoleOwner, topics.RoleStandby} {
		t.Run(string(role), func(t *testing.T) {
			e := newEnv(t, 1)
			c := newChain(t, e.kafka, e.cat, 5)
			owner := e.holdAll(e.config("owner", vfs.NewMem()), topics.RoleOwner)
			c.add(3)
			e.caughtUp(c, owner)
			n := owner
			if role == topics.RoleStandby {
				n = e.holdAll(e.config("standby", vfs.NewMem()), role)
				polltest.Until(t, "standby at the head", e.at(c, n, role))
			}
			lost := c.head()
			lost.Number++
			c.begin()
			c.send(0, nil, &topics.BlockEnd{
				Block: ref(lost.Number+1, 0), Parent: lost.Hash, Head: lost.Number + 1, Commit: true, Previous: lost, Linked: true,
			})
			c.commit()
			e.stopsBroken(n, "predecessor of block 5 is block 4")
		})
	}
}

// A raw topic whose beginning is gone builds no state, at the first start or in a rebuild.
func TestLostBeginning(t *testing.T) {
	cfg := brokertest.Config(brokertest.Start(t, "kfake"), "t")
	e := provision(t, cfg, 1)
	c := newChain(t, e.kafka, e.cat, 5)
	n := e.start(e.config("a", vfs.NewMem()))
	for range 5 {
		c.add(1)
	}
	e.caughtUp(c, n)
	n.stop(t)
	var third int64
	for _, r := range e.readAll(e.cat.Raw(), 0) {
		if raw, err := topics.DecodeRaw(r.Value); err == nil && third == 0 {
			if end, ok := raw.(*topics.BlockEnd); ok && end.Block.Number == 2 {
				third = r.Offset + 1
			}
		}
	}
	brokertest.Truncate(t, cfg.Brokers, e.cat.Raw(), 0, third)
	rebuilt := e.config("a", vfs.NewMem())
	rebuilt.Rebuild = true
	n = e.start(rebuilt)
	e.stopsBroken(n, "begins with block 3")
}

// A raw topic that was deleted and filled again, to the same offsets or not, is another one: the state is not
// carried on over it. A rebuild makes it anew, and publishes no event twice.
func TestReplacedTopic(t *testing.T) {
	e := newEnv(t, 2)
	c := newChain(t, e.kafka, e.cat, 5)
	disk := vfs.NewMem()
	n := e.start(e.config("a", disk))
	for range 10 {
		c.add(1)
	}
	e.caughtUp(c, n)
	e.invariantTopics(c)
	n.stop(t)
	c = e.replaceRaw(c, nil)
	c.add(1)
	n = e.start(e.config("a", disk))
	e.stopsBroken(n, "the ID of")
	n.stop(t)
	n = e.start(e.config("b", vfs.NewMem())) // the changelog knows it too
	e.stopsBroken(n, "the ID of")
	n.stop(t)
	e.rebuilds(c, disk)
}

// Topics that were mirrored to other brokers have the same records, and are others: state is carried on over none of them, be it on
// disk or in the mirrored changelog. A rebuild makes it anew, and publishes no event twice.
func TestMirroredTopics(t *testing.T) {
	e := newEnv(t, 2)
	former := newChain(t, e.kafka, e.cat, 5)
	disk := vfs.NewMem()
	n := e.start(e.config("a", disk))
	for range 10 {
		former.add(1)
	}
	e.caughtUp(former, n)
	e.invariantTopics(former)
	n.stop(t)

	mirror := newEnv(t, 2)
	c := newChain(t, mirror.kafka, mirror.cat, 6)
	c.blocks, c.salt = former.blocks, former.salt
	c.begin()
	for _, topic := range e.cat.Topics() {
		if topic.Kind == topics.KindControl {
			continue // which tell who is there
		}
		for p := range e.cat.Partitions {
			for _, r := range e.readAll(topic.Name(), p) {
				c.tx.Produce(t.Context(), &kafka.Record{Topic: r.Topic, Partition: p, Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp})
			}
		}
	}
	c.commit()
	c.add(1)
	n = mirror.start(mirror.config("a", disk))
	mirror.stopsBroken(n, "the ID of")
	n.stop(t)
	// The mirrored changelog lacks the ends of transactions: its commits are not where they say.
	n = mirror.start(mirror.config("a", vfs.NewMem()))
	mirror.stopsFor(n, ErrUnusable, "or did not copy")
	n.stop(t)
	mirror.rebuilds(c, disk)
}

// A changelog that was deleted, or lost its end, is not carried on over by state on disk that has come further.
func TestReplacedChangelog(t *testing.T) {
	cfg := brokertest.Config(brokertest.Start(t, "kfake"), "t")
	e := provision(t, cfg, 1)
	c := newChain(t, e.kafka, e.cat, 5)
	disk := vfs.NewMem()
	n := e.start(e.config("a", disk))
	for range 10 {
		c.add(1)
	}
	e.caughtUp(c, n)
	n.stop(t)
	brokertest.Delete(t, cfg.Brokers, e.cat.Changelog(topics.AppMarket))
	provision(t, cfg, 1)
	n = e.start(e.config("a", disk))
	e.stopsBroken(n, "the ID of")
}

// A topic that lost its end has the same ID, and says where the leader of an epoch has come to.
func TestLostEnd(t *testing.T) {
	e := newEnv(t, 1)
	c := newChain(t, e.kafka, e.cat, 5)
	c.add(3)
	n, err := New(e.config("a", vfs.NewMem()), toy{})
	check(t, err)
	check(t, n.connect())
	defer n.disconnect()
	raw := e.readAll(e.cat.Raw(), 0)
	last := raw[len(raw)-1]
	id, err := n.sameTopic(t.Context(), n.input, 0, kafka.TopicID{}, last.LeaderEpoch, last.Offset+1)
	check(t, err)
	for _, tc := range []struct {
		epoch  int32
		offset int64
		whole  bool
	}{
		{last.LeaderEpoch, last.Offset + 1, true},
		{last.LeaderEpoch, startOffset, true},
		{last.LeaderEpoch, last.Offset + 100, false},
		{last.LeaderEpoch + 1, last.Offset + 1, false}, // of an epoch that no leader knows any more
	} {
		_, err := n.sameTopic(t.Context(), n.input, 0, id, tc.epoch, tc.offset)
		if (err == nil) != tc.whole || err != nil && !errors.Is(err, ErrBroken) {
			t.Errorf("epoch %d, offset %d: %v", tc.epoch, tc.offset, err)
		}
	}
}
