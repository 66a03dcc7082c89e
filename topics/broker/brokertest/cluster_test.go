package brokertest

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Of three nodes any one may be killed or frozen: the others take records, and it comes back to them.
func TestApacheClusterGoesOnWithoutANode(t *testing.T) {
	if os.Getenv("LIENSTREAM_SOAK") == "" {
		t.Skip("three brokers of Apache Kafka take minutes and memory: make soak")
	}
	c := ApacheCluster(t)
	nodes := c.Nodes
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.MetadataMinAge(10*time.Millisecond), kgo.RequestTimeoutOverhead(time.Second),
		kgo.ProduceRequestTimeout(time.Second), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if _, err := c.admin.CreateTopic(t.Context(), 3, 3, nil, "t"); err != nil {
		t.Fatal(err)
	}
	written := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for p := range int32(3) { // each is led by another node
			if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Partition: p, Value: []byte("x")}).FirstErr(); err != nil {
				t.Fatalf("partition %d: %v", p, err)
			}
		}
	}
	written()
	for i, n := range nodes {
		if n.ID() != int32(i+1) {
			t.Fatalf("node %d has ID %d", i+1, n.ID())
		}
	}
	nodes[0].Kill()
	written()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := nodes[0].Restart(ctx); err != nil {
		t.Fatal(err)
	}
	c.InSync(t, "t")
	nodes[1].Pause()
	written()
	nodes[1].Resume()
	c.InSync(t, "t")
}
