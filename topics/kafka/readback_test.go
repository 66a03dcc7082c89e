package kafka_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/lienstream/lienstream/topics/broker"
	"github.com/lienstream/lienstream/topics/freeport"
	"github.com/lienstream/lienstream/topics/kafka"
)

// mortal is three brokers, of which one may die: its connections break, and new ones are refused.
type mortal struct {
	*testBroker
	t       *testing.T
	cluster *kfake.Cluster

	mu     sync.Mutex
	dead   string              // address; empty: nobody
	elect  int                 // refusals until another broker leads
	open   map[net.Conn]string // address of each
	closed string              // an address where nobody listens
}

func newMortal(t *testing.T, timeout time.Duration) *mortal {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.BrokerConfigs(broker.Settings()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	m := &mortal{t: t, cluster: cluster, open: map[net.Conn]string{}}
	if m.closed, err = freeport.Address(); err != nil {
		t.Fatal(err)
	}
	m.testBroker = newTestBroker(t, cluster.ListenAddrs(), "mortal")
	tx := m.transactor(t, "w")
	err = m.fill(t.Context(), tx, 200, func(i int) []byte { return []byte(strconv.Itoa(i)) })
	if err != nil {
		t.Fatal(err)
	}
	m.cfg.Dial, m.cfg.Timeout = m.dial, timeout
	return m
}

func (m *mortal) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if addr == m.dead {
		if m.elect--; m.elect == 0 {
			next := (m.cluster.LeaderFor(m.log, 1) + 1) % 3
			if err := m.cluster.MoveTopicPartition(m.log, 1, next); err != nil {
				m.t.Error(err)
			}
		}
		addr = m.closed
	}
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil {
		m.open[c] = addr
	}
	return c, err
}

// die ends the leader of the partition. Another one is elected after so many connections were refused.
func (m *mortal) die(elect int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead, m.elect = m.cluster.ListenAddrs()[m.cluster.LeaderFor(m.log, 1)], elect
	for c, addr := range m.open {
		if addr == m.dead {
			_ = c.Close()
		}
	}
}

// Who reads back goes on where the leader dies and another broker is elected, before the first request and between two. Where
// none is elected, it ends in time.
func TestReadBackOutlivesTheLeader(t *testing.T) {
	want := make([]string, 200)
	for i := range want {
		want[i] = strconv.Itoa(199 - i)
	}
	for name, dies := range map[string]int{"before": 0, "between": 1} {
		t.Run(name, func(t *testing.T) {
			m := newMortal(t, time.Minute)
			h, err := kafka.NewHistory(m.cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			var got []string
			if dies == 0 {
				if _, err := h.Place(t.Context(), m.log, 1, -1); err != nil { // it has a connection to the leader
					t.Fatal(err)
				}
				m.die(3)
				if p, err := h.Place(t.Context(), m.log, 1, -1); err != nil || p.EpochEnd == 0 {
					t.Fatalf("%+v: %v", p, err)
				}
				m.die(3)
			}
			err = h.ReadBack(t.Context(), m.log, 1, 0, func(r *kafka.Record) bool {
				if got = append(got, string(r.Value)); len(got) == dies {
					m.die(3)
				}
				return true
			})
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("read back %v: %v", got, err)
			}
		})
	}
	t.Run("for good", func(t *testing.T) {
		m := newMortal(t, 300*time.Millisecond)
		m.die(-1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := kafka.ReadBack(ctx, m.cfg, m.log, 1, 0, func(*kafka.Record) bool { return true })
		if err == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Fatalf("without a leader: %v", err)
		}
	})
}
