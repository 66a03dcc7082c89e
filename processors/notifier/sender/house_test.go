package sender_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/time/rate"

	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/processors/notifier/sender"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

const (
	genesis = 2_000_000_000
	hour    = 3600
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var links = sender.Links{App: "https://app.example", Notify: "https://notify.example"}

// house is a node of the notifier with a sender, on a broker of its own.
type house struct {
	t        *testing.T
	cfg      kafka.Config
	cat      topics.Catalogue
	keys     *notifier.Keys
	producer *kafka.Producer
	client   *notifier.Client
	metrics  *prometheus.Registry // of the node
	node     *engine.Node
	at       uint64
	ahead    time.Duration // the clock of the commands' sender
	look     time.Duration // of the sender

	sends  *prometheus.Registry // of the sender
	logged *observer.ObservedLogs
}

func newHouse(t *testing.T, conf sender.Config, channels func(*notifier.Keys) map[notifier.Channel]sender.Channel) *house {
	conf.Hold = time.Second
	return newHouseOn(t, brokertest.Start(t, "kfake"), 1, rate.Inf, conf, channels)
}

func newHouseOn(t *testing.T, brokers []string, partitions int32, perSecond rate.Limit, conf sender.Config, channels func(*notifier.Keys) map[notifier.Channel]sender.Channel) *house {
	if testing.Short() {
		t.Skip("takes a broker")
	}
	cfg := brokertest.Config(brokers, "n")
	h := &house{t: t, cfg: cfg, at: genesis, look: 10 * time.Millisecond, metrics: prometheus.NewRegistry()}
	h.cat = topics.Catalogue{Prefix: "n", ChainID: 1, Partitions: partitions}
	brokertest.Apply(t, cfg, h.cat.Topics())
	of := engine.DefaultConfig()
	of.Kafka, of.Catalogue, of.AppName, of.Instance, of.Dir, of.FS = cfg, h.cat, topics.AppNotifier, "a", "/a", vfs.NewMem()
	of.Standbys, of.SessionTimeout, of.CommitTimeout, of.Registerer = 0, 6*time.Second, 3*time.Second, h.metrics
	var err error
	h.node, err = engine.NewCommands(of, notifier.New(1, prometheus.NewRegistry()))
	check(t, err)
	h.producer, err = kafka.NewProducer(cfg, "p", kafka.ProducerOptions{})
	check(t, err)
	t.Cleanup(h.producer.Close)
	routing := read.DefaultConfig()
	routing.Application, routing.Partitions, routing.Local = topics.AppNotifier, partitions, h.node
	router, err := read.NewRouter(routing)
	check(t, err)
	h.client = notifier.NewClient(h.cat, h.producer, router)
	h.keys, err = notifier.ParseKeys("1:" + strings.Repeat("11", 32))
	check(t, err)

	polltest.Run(t, h.node.Run)
	if channels != nil {
		h.deliver(perSecond, conf, channels)
	}
	return h
}

// deliver starts the sender.
func (h *house) deliver(perSecond rate.Limit, conf sender.Config, channels func(*notifier.Keys) map[notifier.Channel]sender.Channel) {
	h.t.Helper()
	conf.Catalogue, conf.Look, conf.FirstWait = h.cat, h.look, 20*time.Millisecond
	lines := map[notifier.Channel]*sender.Line{}
	for name, channel := range channels(h.keys) {
		lines[name] = &sender.Line{Channel: channel, Rate: rate.NewLimiter(perSecond, 1)}
	}
	var log zapcore.Core
	log, h.logged = observer.New(zap.WarnLevel)
	h.sends = prometheus.NewRegistry()
	out, err := sender.New(conf, h.node, h.producer, h.keys, lines, zap.New(log), h.sends)
	check(h.t, err)
	polltest.Run(h.t, out.Run)
}

// subscribe has a wallet told of everything.
func (h *house) subscribe(wallet common.Address, channel notifier.Channel, address, mask string) {
	h.t.Helper()
	sealed, err := h.keys.Seal(wallet, channel, address)
	check(h.t, err)
	polltest.Until(h.t, "the subscription is taken", func() bool {
		outcome, err := h.client.Subscribe(h.t.Context(), &notifier.Subscribe{
			ID: notifier.ID{wallet[0], byte(channel)}, Wallet: wallet, Channel: channel, Sealed: sealed, Mask: mask, Prefs: 0x7f, Unix: 1,
		})
		return err == nil && outcome == notifier.Accepted
	})
}

// again has a wallet that subscribed sign anew.
func (h *house) again(wallet common.Address, channel notifier.Channel, address string) {
	h.t.Helper()
	sealed, err := h.keys.Seal(wallet, channel, address)
	check(h.t, err)
	outcome, err := h.client.Subscribe(h.t.Context(), &notifier.Subscribe{
		ID: notifier.ID{wallet[0], byte(channel), 1}, Wallet: wallet, Channel: channel, Sealed: sealed, Mask: "m", Prefs: 0x7f, Unix: 2,
	})
	if check(h.t, err); outcome != notifier.Accepted {
		h.t.Fatalf("it is not taken: %v", outcome)
	}
}

func (h *house) send(wallet common.Address, cmd notifier.Command) {
	h.t.Helper()
	rec, err := cmd.Record(h.cat, wallet)
	check(h.t, err)
	rec.Timestamp = time.Now().Add(h.ahead)
	_, err = h.producer.Send(h.t.Context(), rec)
	check(h.t, err)
}

// everybody sends a command to every partition of the notifier.
func (h *house) everybody(cmd notifier.Command) {
	h.t.Helper()
	for p := range h.cat.Partitions {
		rec, err := cmd.Record(h.cat, common.Address{})
		check(h.t, err)
		rec.Partition, rec.Timestamp = p, time.Now().Add(h.ahead)
		_, err = h.producer.Send(h.t.Context(), rec)
		check(h.t, err)
	}
}

// fire makes the alert of six hours before a deal's end due for all wallets.
func (h *house) fire(borrowers ...common.Address) {
	h.t.Helper()
	for _, wallet := range borrowers {
		h.send(wallet, notifier.Command{Fact: &notifier.Fact{Wallet: wallet, Deal: notifier.Deal{
			ID: "7", Borrower: wallet, Lender: common.Address{0xff}, Cap: "1234500000",
			FundedAt: h.at, Expiry: h.at + 7*hour, GraceEnd: h.at + 31*hour, Open: true,
		}}})
	}
	h.at += hour
	h.everybody(notifier.Command{Tick: &notifier.Tick{Block: h.at, Time: h.at}})
}

// gauge is the sum of the sender's metrics of that name and label.
func (h *house) gauge(name, label, value string) (sum float64) {
	h.t.Helper()
	all, err := h.sends.Gather()
	check(h.t, err)
	for _, family := range all {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == label && l.GetValue() == value }) {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// restarts is how often the node's task began anew.
func (h *house) restarts() (n float64) {
	h.t.Helper()
	all, err := h.metrics.Gather()
	check(h.t, err)
	for _, family := range all {
		for _, m := range family.GetMetric() {
			if family.GetName() == "lienstream_processors_restarts_total" {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// settled waits until nothing is left to send, and so much was sent.
func (h *house) settled(sent int) {
	h.t.Helper()
	polltest.Until(h.t, "all that is due was tried to its end", func() bool {
		now, err := h.client.Health(h.t.Context())
		return err == nil && now.Pending == 0 && now.SentLastHour == sent
	})
}

// alertID is the key of the alert of the first fire, as receivers see it.
func alertID(wallet common.Address, channel string) string {
	return alertDue(wallet, channel, genesis+hour)
}

func alertDue(wallet common.Address, channel string, due uint64) string {
	alert := topics.Alert{Wallet: wallet, Channel: channel, Kind: "t6", DealID: "7", Due: due}
	id := alert.ID()
	return common.Bytes2Hex(id[:16])
}

// disabled is why a wallet is told no more; empty: it is.
func (h *house) disabled(wallet common.Address) string {
	h.t.Helper()
	subs, err := h.client.Subscriptions(h.t.Context(), wallet)
	check(h.t, err)
	return subs[0].Disabled
}
