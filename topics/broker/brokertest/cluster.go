package brokertest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lienstream/lienstream/topics/broker"
	"github.com/lienstream/lienstream/topics/polltest"
)

// Cluster is three nodes of Apache Kafka, each broker and controller, with every topic on all three: one may be away.
type Cluster struct {
	Nodes []*broker.Apache
	admin *kadm.Client
}

// ApacheCluster starts a cluster with small heaps.
func ApacheCluster(t testing.TB) *Cluster {
	t.Helper()
	c := new(Cluster)
	installed(t, func(ctx context.Context, libs string) (err error) {
		c.Nodes, err = broker.StartApacheCluster(ctx, broker.ApacheConfig{LibsDir: libs, Dir: t.TempDir(), HeapMB: 256}, 3)
		return err
	})
	for _, a := range c.Nodes {
		t.Cleanup(a.Kill)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.MetadataMinAge(10*time.Millisecond), kgo.RequestTimeoutOverhead(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	c.admin = kadm.NewClient(cl)
	return c
}

// Addrs are the addresses of all nodes.
func (c *Cluster) Addrs() (addrs []string) {
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Addrs()...)
	}
	return addrs
}

// InSync waits until every replica of every partition is in sync, and returns how many of a topic's partitions each node
// leads.
func (c *Cluster) InSync(t testing.TB, topic string) map[int32]int {
	t.Helper()
	var leads map[int32]int
	polltest.Within(t, time.Minute, func() error {
		found, err := c.admin.ListTopicsWithInternal(t.Context())
		if err != nil {
			return err
		}
		leads = map[int32]int{}
		for _, d := range found {
			for _, p := range d.Partitions {
				if len(p.ISR) < len(c.Nodes) {
					return fmt.Errorf("%s/%d: in sync are %v", d.Topic, p.Partition, p.ISR)
				}
				if d.Topic == topic {
					leads[p.Leader]++
				}
			}
		}
		return nil
	})
	return leads
}

// Coordinator is the node that coordinates a producer's transactions.
func (c *Cluster) Coordinator(t testing.TB, transactional string) *broker.Apache {
	t.Helper()
	var found kadm.FindCoordinatorResponse
	polltest.Within(t, time.Minute, func() error {
		found = c.admin.FindTxnCoordinators(t.Context(), transactional)[transactional]
		return found.Err
	})
	at := slices.IndexFunc(c.Nodes, func(n *broker.Apache) bool { return n.ID() == found.NodeID })
	if at < 0 {
		t.Fatalf("the coordinator of %s is node %d", transactional, found.NodeID)
	}
	return c.Nodes[at]
}
