package system

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/topics/broker"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
)

// behindWires gives the world an Apache Kafka that each of these nodes reaches by a wire of its own.
func (w *world) behindWires(t *testing.T, nodes ...string) map[string]*proxy {
	t.Helper()
	wires := map[string]*proxy{}
	var listeners []broker.Listener
	for _, node := range nodes {
		behind := address(t)
		wires[node] = startProxy(t, behind)
		listeners = append(listeners, broker.Listener{Addr: behind, Advertised: wires[node].addr})
	}
	w.servers = append(w.servers, "--kafka="+brokertest.Apache(t, listeners...).Addrs()[0])
	return wires
}

// TestKafkaBehindWires cuts each role off from Kafka, slows its connections, and cuts all roles off at random moments,
// while blocks are mined. The broker keeps running: a node's transaction stays open, or was committed without its
// knowledge. Everything recovers by itself.
func TestKafkaBehindWires(t *testing.T) {
	w := newWorld(t, "devchain", "embedded", devchain.ScenarioConfig{Seed: seed(t), TxsPerBlock: 4, TimePerBlock: 6 * time.Hour})
	nodes := []string{"ingest", "a", "serving"}
	wires := w.behindWires(t, nodes...)
	w.onRedis(t)
	w.mine(t.Context(), t, 60)
	f := newFleet(t, w)
	to := func(node string) string { return "--kafka=" + wires[node].addr }
	f.join(t, "ingest", "ingest", to("ingest"))
	f.processors(t, "a", "--session-timeout=3s", to("a"))
	f.serving(t, "--max-head-age=3s", to("serving"))
	paths := []string{"/deals?limit=200", "/listings?limit=200&sort=cost", "/deals/7"}
	f.well(t)

	for _, node := range nodes {
		t.Run(node+" cut off", func(t *testing.T) {
			// Serving nodes need Kafka only to find the processors.
			f.away(t, "cut off", node != "serving", wires[node].cut, wires[node].mend, paths...)
		})
		t.Run(node+" slow", func(t *testing.T) {
			f.away(t, "slow", false, func() { wires[node].slow(20 * time.Millisecond) }, func() { wires[node].slow(0) }, paths...)
		})
	}
	t.Run("cut now and then", func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed(t), 2))
		stop := w.load(t, 50*time.Millisecond)
		for range 20 {
			wire := wires[nodes[random.IntN(len(nodes))]]
			wire.cut()
			wire.mend()
			<-time.After(time.Duration(random.IntN(200)) * time.Millisecond)
		}
		stop()
		f.well(t)
	})
	w.mine(t.Context(), t, 150) // more than may be reverted: something is final
	f.serves(t)
	topicsEqualChain(t, w)
	for _, name := range []string{"serving", "a", "ingest"} {
		f.nodes[name].interrupt(t)
	}
}
