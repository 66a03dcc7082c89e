package ingest_test

import (
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/topics/broker"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// The last commit stays what it was while each session begins anew and none of its commits is taken: an alert goes by its age.
func TestASessionIsNoCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.BrokerConfigs(broker.Settings()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	broker.WholeFetches(cluster)
	w.kafka = brokertest.Config(cluster.ListenAddrs(), "test")
	w.topic = w.provision(t, w.kafka)
	in := run(t, w.config())
	w.step(t, 5)
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())

	var refused atomic.Int32
	cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		refused.Add(1)
		return brokertest.RefusedProduce(req.(*kmsg.ProduceRequest), kerr.MessageTooLarge), nil, true
	})
	w.step(t, 3)
	polltest.Until(t, "nothing is taken any more", func() bool { return refused.Load() > 2 })
	was := in.Status().CommitAt
	polltest.Until(t, "sessions have failed", func() bool { return refused.Load() > 8 })
	if is := in.Status().CommitAt; !is.Equal(was) {
		t.Errorf("a commit at %s, after that at %s", is, was)
	}
}
