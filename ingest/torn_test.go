package ingest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/topics"
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
	w := newWorld(t, "kfake", 1, devchain.ScenarioConfig{})
	d := brokertest.StartDeposed(t, w.topic, 1, 1)
	w.kafka = brokertest.Config(d.Addrs, "test")
	w.provision(t, w.kafka)
	in := run(t, w.config())
	w.step(t, 5)
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
	d.Old.Store(3)
	in = run(t, w.config())
	w.step(t, 5)
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	if d.Told.Load() == 0 {
		t.Error("nobody asked")
	}
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
}
