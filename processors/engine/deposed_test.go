package engine

import (
	"math"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// deposed is a broker that says once how a changelog ended before, as one does that was frozen, goes on and believes that it leads.
type deposed struct {
	old, told atomic.Int64 // old: the end; 0: the true one
}

// newDeposed says so to who asks at an isolation level.
func newDeposed(t *testing.T, isolation int8) (*env, *deposed) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.BrokerConfigs(broker.Settings()))
	check(t, err)
	t.Cleanup(cluster.Close)
	cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		req.(*kmsg.FetchRequest).MaxBytes = math.MaxInt32
		return nil, nil, false
	})
	e := provision(t, brokertest.Config(cluster.ListenAddrs(), "t"), 1)
	d := &deposed{}
	changelog := e.cat.Changelog(topics.AppMarket)
	cluster.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		r := req.(*kmsg.ListOffsetsRequest)
		if r.IsolationLevel != isolation || len(r.Topics) != 1 || r.Topics[0].Topic != changelog || r.Topics[0].Partitions[0].Timestamp != -1 {
			return nil, nil, false
		}
		end := d.old.Swap(0)
		if end == 0 {
			return nil, nil, false
		}
		d.told.Add(1)
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = changelog
		rp := kmsg.NewListOffsetsResponseTopicPartition()
		rp.Offset = end
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
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
		if point == "caughtUp" && d.told.Load() == 0 {
			d.old.Store(first.end + 1)
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
		if d.told.Load() > 0 && len(writers) > 2 {
			t.Fatalf("after the last open record %d producers write", len(writers))
		}
		return d.told.Load() > 0 && total(t, a.cfg.Registerer, "lienstream_processors_restarts_total", "fenced") > 0
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
	d.old.Store(5)
	n = e.start(e.config("a", disk))
	c.add(1)
	e.caughtUp(c, n)
	if d.told.Load() == 0 {
		t.Fatal("nobody asked")
	}
}
