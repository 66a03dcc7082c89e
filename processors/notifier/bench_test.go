package notifier_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

const (
	openDeals = 100_000
	dueAtOnce = 10_000
)

// crowd is the notifier with very many subscribers, its state on disk.
type crowd struct {
	b      *testing.B
	cfg    engine.Config
	cat    topics.Catalogue
	tx     *kafka.Transactor
	client *notifier.Client
	stop   func()
	last   []common.Address // of each partition, a wallet

	unix   int64
	queued int
}

func newCrowd(b *testing.B) *crowd {
	c := &crowd{b: b, cat: topics.Catalogue{Prefix: "n", ChainID: 1, Partitions: 4}}
	broker := brokertest.Config(brokertest.Start(b, "kfake"), "n")
	brokertest.Apply(b, broker, c.cat.Topics())
	c.cfg = engine.DefaultConfig()
	c.cfg.Kafka, c.cfg.Catalogue, c.cfg.AppName, c.cfg.Instance, c.cfg.Dir, c.cfg.FS = broker, c.cat, topics.AppNotifier, "a", b.TempDir(), vfs.Default
	c.cfg.Standbys, c.cfg.SessionTimeout = 0, 6*time.Second
	var err error
	c.tx, err = kafka.NewTransactor(broker, "crowd", kafka.TransactorOptions{})
	check(b, err)
	b.Cleanup(c.tx.Close)
	check(b, c.tx.Init(b.Context()))
	c.last = oneOfEach(c.cat.Partitions)
	return c
}

// oneOfEach finds a wallet of each partition.
func oneOfEach(partitions int32) []common.Address {
	all := make([]common.Address, partitions)
	for i := range uint64(1000) {
		wallet := walletOf(1<<40 + i)
		all[topics.Partition(wallet[:], partitions)] = wallet
	}
	return all
}

// deals opens the deals, of which some are due an alert an hour later, and the others not for days.
func (c *crowd) deals(now uint64) {
	for i := range uint64(openDeals) {
		wallet, expiry := walletOf(i), now+100*hour+i
		if i < dueAtOnce {
			expiry = now + 2*hour
		}
		c.put(wallet, &notifier.Command{Fact: &notifier.Fact{Wallet: wallet, Deal: notifier.Deal{
			ID: fmt.Sprint(i), Borrower: wallet, Cap: "1000000", FundedAt: now, Expiry: expiry, GraceEnd: expiry + 24*hour, Open: true,
		}}})
	}
}

// start starts the node, and waits until it answers for every partition.
func (c *crowd) start() {
	c.b.Helper()
	cfg := c.cfg
	cfg.Registerer = prometheus.NewRegistry()
	node, err := engine.NewCommands(cfg, notifier.New(1, prometheus.NewRegistry()))
	check(c.b, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	producer, err := kafka.NewProducer(cfg.Kafka, "users", kafka.ProducerOptions{})
	check(c.b, err)
	routing := read.DefaultConfig()
	routing.Application, routing.Partitions, routing.Local = topics.AppNotifier, c.cat.Partitions, node
	router, err := read.NewRouter(routing)
	check(c.b, err)
	c.client = notifier.NewClient(c.cat, producer, router)
	done := false
	c.stop = func() {
		if !done {
			done = true
			cancel()
			check(c.b, <-ended)
			producer.Close()
		}
	}
	c.b.Cleanup(c.stop)
	polltest.Within(c.b, 5*time.Minute, func() error { _, err := c.client.Health(c.b.Context()); return err })
}

func walletOf(n uint64) common.Address {
	return common.BytesToAddress(crypto.Keccak256(binary.BigEndian.AppendUint64(nil, n)))
}

// put queues a command; flush sends what is queued.
func (c *crowd) put(wallet common.Address, cmd *notifier.Command) {
	rec, err := cmd.Record(c.cat, wallet)
	check(c.b, err)
	c.tx.Produce(c.b.Context(), rec)
	if c.queued++; c.queued == 10_000 {
		c.flush()
		check(c.b, c.tx.Begin())
	}
}

func (c *crowd) flush() {
	check(c.b, c.tx.Commit(c.b.Context()))
	c.queued = 0
}

// tick tells every partition of a time.
func (c *crowd) tick(at uint64) {
	check(c.b, c.tx.Begin())
	for _, wallet := range c.last {
		c.put(wallet, &notifier.Command{Tick: &notifier.Tick{Block: at, Time: at}})
	}
	c.flush()
}

// applied waits until all that was sent is applied: a write is answered after what came before it.
func (c *crowd) applied() {
	c.unix++
	for _, wallet := range c.last {
		polltest.Within(c.b, 5*time.Minute, func() error {
			ctx, cancel := context.WithTimeout(c.b.Context(), 4*time.Minute)
			defer cancel()
			var id notifier.ID
			binary.BigEndian.PutUint64(id[:], uint64(c.unix))
			_, err := c.client.Unsubscribe(ctx, &notifier.Unsubscribe{ID: id, Wallet: wallet, Channel: notifier.Push, Unix: c.unix})
			return err
		})
	}
}

// BenchmarkSubscribers: what subscribers cost at 100,000 open deals. An operation is a tick that makes nothing due, sent to
// all partitions and applied; queued-ms is a tick that makes 10,000 alerts due; restart-ms is until every partition answers.
func BenchmarkSubscribers(b *testing.B) {
	for _, n := range []uint64{100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newCrowd(b)
			c.start()
			began := time.Now()
			check(b, c.tx.Begin())
			for i := range n {
				wallet := walletOf(i)
				c.put(wallet, &notifier.Command{Subscribe: &notifier.Subscribe{
					ID: notifier.ID{1}, Wallet: wallet, Channel: notifier.Email, Sealed: make([]byte, 48), Mask: "a•••@example.com", Prefs: 0x1f, Unix: 1,
				}})
			}
			const now = 2_000_000_000
			c.deals(now)
			c.flush()
			c.applied()
			loaded := time.Since(began)

			c.tick(now + 1)
			c.applied()
			began = time.Now()
			c.tick(now + hour)
			c.applied()
			queued := time.Since(began)
			if h, err := c.client.Health(b.Context()); err != nil || h.Pending != dueAtOnce {
				b.Fatalf("%d are queued, want %d: %v", h.Pending, dueAtOnce, err)
			}
			c.stop()
			began = time.Now()
			c.start()
			restarted := time.Since(began)
			at := uint64(now + hour)
			for b.Loop() {
				at++
				c.tick(at)
				c.applied()
			}
			b.ReportMetric(float64(n+openDeals)/loaded.Seconds(), "loaded/s")
			b.ReportMetric(float64(queued.Milliseconds()), "queued-ms")
			b.ReportMetric(float64(restarted.Milliseconds()), "restart-ms")
		})
	}
}
