package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A leader epoch ends where the next one begins, also while the next leader, and the one after it, have written nothing.
func TestEpochsOfMovedPartitions(t *testing.T) {
	b, err := Open(Config{Nodes: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if err := b.cluster.CreateTopic("t", 1, nil); err != nil {
		t.Fatal(err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	leader := b.cluster.LeaderFor("t", 0)
	ends := func(when string, current int32, want ...int64) {
		t.Helper()
		for epoch, end := range want {
			req := kmsg.NewPtrOffsetForLeaderEpochRequest()
			req.ReplicaID = -1
			p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			p.CurrentLeaderEpoch, p.LeaderEpoch = current, int32(epoch)
			req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{p}}}
			resp, err := req.RequestWith(t.Context(), cl.Broker(int(leader)))
			if err != nil {
				t.Fatal(err)
			}
			got := resp.Topics[0].Partitions[0]
			if err := kerr.ErrorForCode(got.ErrorCode); err != nil || got.EndOffset != end {
				t.Errorf("%s epoch %d ends at %d, %v, want %d", when, epoch, got.EndOffset, err, end)
			}
		}
	}
	move := func() {
		t.Helper()
		leader = 1 - leader
		if err := b.Move("t", 0, leader); err != nil {
			t.Fatal(err)
		}
	}
	produce(t, b.Addrs(), "a")
	produce(t, b.Addrs(), "b")
	ends("before any move", -1, 2, -1)
	move()
	ends("after a move", 1, 2, 2, -1)
	move()
	ends("after a second", 2, 2, 2, 2, -1)
	produce(t, b.Addrs(), "c")
	ends("once something is written", -1, 2, 2, 3, -1)
	if err := b.cluster.DeleteTopic("t"); err != nil {
		t.Fatal(err)
	}
	if err := b.cluster.CreateTopic("t", 1, nil); err != nil {
		t.Fatal(err)
	}
	leader = b.cluster.LeaderFor("t", 0)
	move()
	ends("of a topic made again", -1, 0, 0, -1)
}
