package system

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// resumesWithin is how long after a broker is lost a new block is shown.
const resumesWithin = 10 * time.Second

// onKafkaCluster gives the world three brokers in place of one.
func (w *world) onKafkaCluster(t *testing.T) *brokertest.Cluster {
	t.Helper()
	k := brokertest.ApacheCluster(t)
	w.servers = append(w.servers, "--kafka="+strings.Join(k.Addrs(), ","), "--kafka-replication=3")
	return k
}

// victim is the node that coordinates the ingester's transactions and leads partitions of its topic.
func victim(t *testing.T, k *brokertest.Cluster, w *world) *broker.Apache {
	t.Helper()
	catalogue := topics.Catalogue{Prefix: topics.DefaultPrefix, ChainID: w.market.Deployment.ChainID}
	leads := k.InSync(t, catalogue.Raw())
	n := k.Coordinator(t, fmt.Sprintf("%s.%d.ingest", catalogue.Prefix, catalogue.ChainID))
	t.Logf("node %d coordinates the ingester's transactions; partitions of %s that each leads: %v", n.ID(), catalogue.Raw(), leads)
	return n
}

// shown mines a block and waits until services show it.
func (w *world) shown(t *testing.T, within time.Duration, services ...*api) time.Duration {
	t.Helper()
	began := time.Now()
	w.mine(t.Context(), t, 1)
	head, err := w.backend.Client().BlockNumber(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range services {
		polltest.Within(t, within-time.Since(began), func() error {
			res, err := a.get(t.Context(), "/listings?limit=1") // of all partitions
			if err != nil {
				return err
			}
			var number uint64
			if _, err := fmt.Sscan(res.Number, &number); err != nil {
				return fmt.Errorf("block %q: %w", res.Number, err)
			}
			if number < head {
				return fmt.Errorf("block %d is shown, %d was mined %v ago", number, head, time.Since(began))
			}
			return nil
		})
	}
	return time.Since(began)
}

// TestBrokerLost kills one broker of three, freezes it, and freezes two: among them always the one that coordinates the
// ingester's transactions and leads a part of its topic. No read fails meanwhile. A new block is shown soon after, once there is
// a quorum.
func TestBrokerLost(t *testing.T) {
	if os.Getenv("LIENSTREAM_SOAK") == "" {
		t.Skip("three brokers of Apache Kafka take minutes and memory: make soak")
	}
	w := newWorld(t, "devchain", "embedded", devchain.ScenarioConfig{Seed: seed(t), TxsPerBlock: 4, TimePerBlock: 6 * time.Hour})
	k := w.onKafkaCluster(t)
	w.mine(t.Context(), t, 160) // more than may be reverted: something is final
	f := newFleet(t, w)
	f.join(t, "ingest", "ingest")
	f.processors(t, "a")
	f.processors(t, "b")
	f.serving(t)
	addr := address(t)
	f.join(t, "serving-2", "serving", "--services=indexer", "--indexer-addr="+addr)
	services := []*api{f.api, newAPI(addr)}
	f.whole(t)
	f.balanced(t, "a", "b")

	for _, lost := range []struct {
		name   string
		frozen int // brokers; 0: one is killed
	}{{"killed", 0}, {"frozen", 1}, {"two frozen", 2}} {
		t.Run(lost.name, func(t *testing.T) {
			n := victim(t, k, w)
			reads := []*reader{readOn(t, services[0], "/deals?limit=200", "/deals/7"), readOn(t, services[1], "/listings?limit=200&sort=cost")}
			var back func()
			if lost.frozen == 0 {
				n.Kill()
				back = sync.OnceFunc(func() { restart(t, n) })
			} else {
				back = sync.OnceFunc(freeze(k, n, lost.frozen))
			}
			defer back()          // what comes next has all brokers
			if lost.frozen == 2 { // nothing can be written
				w.pass(t, outage())
				back()
			}
			t.Logf("%s: a new block is shown after %v", lost.name, w.shown(t, resumesWithin, services...).Round(time.Millisecond))
			back()
			k.InSync(t, "")
			t.Logf("with all brokers again a new block is shown after %v", w.shown(t, resumesWithin, services...).Round(time.Millisecond))
			for _, r := range reads {
				if gap := r.stop(t, lost.name); gap > standbyGap || r.failed > 0 {
					t.Errorf("%d reads failed, one took %v", r.failed, gap)
				}
				r.judge(t.Context(), t, w.judge)
			}
			f.whole(t)
		})
	}
	topicsEqualChain(t, w)
}

// restart starts a killed broker again.
func restart(t *testing.T, n *broker.Apache) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := n.Restart(ctx); err != nil {
		t.Fatal(err)
	}
}

// freeze stops so many brokers, first of all one of them, until the returned function is called.
func freeze(k *brokertest.Cluster, first *broker.Apache, brokers int) (thaw func()) {
	frozen := []*broker.Apache{first}
	for _, n := range k.Nodes {
		if n != first && len(frozen) < brokers {
			frozen = append(frozen, n)
		}
	}
	for _, n := range frozen {
		n.Pause()
	}
	return func() {
		for _, n := range frozen {
			n.Resume()
		}
	}
}
