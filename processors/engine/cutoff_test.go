package engine

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/pause"
	"github.com/lienstream/lienstream/topics/polltest"
)

// deaf is a broker that does not hear one node: what that sends is lost, without an error.
type deaf struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
	addr atomic.Pointer[string] // nil: it hears again
}

func (d *deaf) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := d.dial(ctx, network, addr)
	return &unheard{Conn: c, d: d, addr: addr}, err
}

type unheard struct {
	net.Conn
	d    *deaf
	addr string
	lost bool
}

func (c *unheard) Write(b []byte) (int, error) {
	if addr := c.d.addr.Load(); addr != nil && *addr == c.addr {
		c.lost = true
		return len(b), nil
	}
	if c.lost {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// cluster is who leads and coordinates what.
func (e *env) cluster() brokertest.Layout {
	group := "t.1." + topics.AppMarket
	c, err := brokertest.LayoutOf(e.t.Context(), e.kafka.Brokers, e.kafka.Dial, e.cat.Changelog(topics.AppMarket), e.cat.OwnersTopic(),
		group, group+".-1.a", group+".-1.b")
	check(e.t, err)
	return c
}

// An owner that one broker does not answer, while its heartbeats reach another, leaves its partitions to the standby, which all
// brokers answer, also if that broker has the owners topic, so that the owner receives no announcements; it joins again when the
// broker answers. If the broker answers neither, the owner keeps its partitions.
func TestOwnerThatABrokerDoesNotHear(t *testing.T) {
	if testing.Short() {
		t.Skip("takes brokers")
	}
	for name, deafen := range map[string]bool{"it hears of others": false, "it hears of nobody": true} {
		t.Run(name, func(t *testing.T) {
			emptyPools()
			defer emptyPools()
			synctest.Test(t, func(t *testing.T) { ownerUnheard(t, deafen) })
		})
	}
}

// ownerUnheard is that test; with deafen the broker has the owners topic.
func ownerUnheard(t *testing.T, deafen bool) {
	const partitions, cut = 8, 0
	e := newPipedEnv(t, partitions, 7)
	brokers := e.cluster()
	var leads int32 // what it coordinates is not what fails
	for brokers.Others[leads] {
		leads++
	}
	away := brokers.Addrs[leads]
	check(t, e.broker.Move(e.cat.Changelog(topics.AppMarket), cut, leads))
	if deafen {
		check(t, e.broker.Move(e.cat.OwnersTopic(), 0, leads))
	}
	c := newChain(t, e.kafka, e.cat, 8)
	nodes, nets := map[string]*runningNode{}, map[string]*deaf{}
	for _, name := range []string{"a", "b"} {
		cfg := e.config(name, vfs.NewMem())
		nets[name] = &deaf{dial: e.kafka.Dial}
		cfg.Standbys, cfg.Kafka = 1, brokertest.Config(e.kafka.Brokers, "t")
		cfg.Kafka.Dial = nets[name].Dial
		nodes[name] = e.start(cfg)
	}
	owners := func() map[int32]string {
		owner := map[int32]string{}
		for name, n := range nodes {
			if len(n.Watermarks()) < partitions {
				return nil
			}
			for _, w := range n.Watermarks() {
				switch r := n.replicas[w.Partition]; {
				case !w.At.Same(c.head()) || r.leaving.Load():
					return nil
				case w.Role == topics.RoleOwner:
					owner[w.Partition] = name
				}
			}
		}
		return owner
	}
	c.add(8)
	shared := func() bool {
		share := map[string]int{}
		for _, name := range owners() {
			share[name]++
		}
		return share["a"] == partitions/2 && share["b"] == partitions/2
	}
	polltest.Until(t, "each owns its share, and follows the rest", shared)

	before := owners()
	owner := before[cut]
	for _, d := range nets {
		d.addr.Store(&away)
	}
	for range 20 {
		c.add(8)
		_ = pause.For(t.Context(), time.Second)
		for p, name := range before {
			if nodes[name].replicas[p].leaving.Load() {
				t.Fatalf("%s gave partition %d away, whose broker nobody can reach", name, p)
			}
		}
	}
	other := map[string]string{"a": "b", "b": "a"}[owner]
	nets[other].addr.Store(nil)
	takesOver := func() {
		t.Helper()
		polltest.Within(t, 20*time.Second, func() error {
			c.add(8)
			_ = pause.For(t.Context(), time.Second)
			if m, ok := nodes[other].replicas[cut].watermark(); !ok || m.Role != topics.RoleOwner || !m.At.Same(c.head()) {
				return context.DeadlineExceeded
			}
			return nil
		})
		nets[owner].addr.Store(nil)
		polltest.Until(t, "it has its share again", shared)
	}
	takesOver()
	if owners()[cut] == owner { // else the broker that fails has nothing of its own
		nets[owner].addr.Store(&away)
		takesOver()
	}
	e.caughtUp(c, nodes["a"], nodes["b"])
	e.invariantState(c, nodes["a"], nodes["b"])
	e.invariantTopics(c)
}
