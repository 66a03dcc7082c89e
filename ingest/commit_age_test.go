package ingest_test

import (
	"testing"

	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// The last commit stays what it was while each session begins anew and none of its commits is taken: an alert goes by its age.
func TestASessionIsNoCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
	broker := brokertest.StartRefusing(t)
	w.kafka = brokertest.Config(broker.Addrs, "test")
	w.topic = w.provision(t, w.kafka)
	in := run(t, w.config())
	w.step(t, 5)
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())

	broker.Refuse()
	w.step(t, 3)
	polltest.Until(t, "nothing is taken any more", func() bool { return broker.Refused() > 2 })
	was := in.Status().CommitAt
	polltest.Until(t, "sessions have failed", func() bool { return broker.Refused() > 8 })
	if is := in.Status().CommitAt; !is.Equal(was) {
		t.Errorf("a commit at %s, after that at %s", is, was)
	}
}
