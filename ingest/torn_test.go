package ingest_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
)

// TestTornTopic: partitions that end at different blocks end the ingester, which says what to do.
func TestTornTopic(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kfake", 1, devchain.ScenarioConfig{})
	in := run(t, w.config())
	w.step(t, 5)
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
	// As if all partitions but the last had lost a transaction.
	tx, err := kafka.NewTransactor(w.kafka, "torn", kafka.TransactorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close()
	if err := errors.Join(tx.Init(t.Context()), tx.Begin()); err != nil {
		t.Fatal(err)
	}
	tx.Produce(t.Context(), &kafka.Record{Topic: w.topic, Partition: partitions - 1, Value: topics.AppendRaw(nil, &topics.BlockEnd{
		Block: topics.BlockRef{Number: 1 << 20, Hash: common.Hash{1}}, Commit: true,
	})})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	in = run(t, w.config())
	select {
	case <-in.done:
	case <-time.After(time.Minute):
		t.Fatal("the ingester goes on over a topic that has lost records")
	}
	if err := in.stop(); !errors.Is(err, ingest.ErrTorn) {
		t.Fatal(err)
	}
}

// A broker that leads a partition no longer, and does not know it yet, does not end the ingester: one old end is no lost record.
func TestDeposedLeaderTearsNothing(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.BrokerConfigs(broker.Settings()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	w := newWorld(t, "kfake", 1, devchain.ScenarioConfig{})
	w.kafka = brokertest.Config(cluster.ListenAddrs(), "test")
	w.provision(t, w.kafka)
	in := run(t, w.config())
	w.step(t, 5)
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
	var told atomic.Bool
	cluster.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		r := req.(*kmsg.ListOffsetsRequest)
		if r.IsolationLevel != 1 || len(r.Topics) != 1 || r.Topics[0].Topic != w.topic || r.Topics[0].Partitions[0].Partition != 1 || !told.CompareAndSwap(false, true) {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = w.topic
		rp := kmsg.NewListOffsetsResponseTopicPartition()
		rp.Partition, rp.Offset = 1, 3
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	in = run(t, w.config())
	w.step(t, 5)
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	if !told.Load() {
		t.Error("nobody asked")
	}
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
}
