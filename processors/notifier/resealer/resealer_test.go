package resealer

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const partitions = 2

// vault is a notifier with subscriptions.
type vault struct {
	t        *testing.T
	cat      topics.Catalogue
	node     *engine.Node
	producer *kafka.Producer
	client   *notifier.Client
}

func newVault(t *testing.T) *vault {
	v := &vault{t: t, cat: topics.Catalogue{Prefix: "n", ChainID: 1, Partitions: partitions}}
	cfg := engine.DefaultConfig()
	cfg.Kafka = brokertest.Config(brokertest.Start(t, "kfake"), "n")
	brokertest.Apply(t, cfg.Kafka, v.cat.Topics())
	cfg.Catalogue, cfg.AppName, cfg.Instance, cfg.Dir, cfg.FS, cfg.Standbys = v.cat, topics.AppNotifier, "a", "state", vfs.NewMem(), 0
	var err error
	v.node, err = engine.NewCommands(cfg, notifier.New(partitions, prometheus.NewRegistry()))
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- v.node.Run(ctx) }()
	t.Cleanup(func() { cancel(); check(t, <-ended) })
	v.producer, err = kafka.NewProducer(cfg.Kafka, "users", kafka.ProducerOptions{})
	check(t, err)
	t.Cleanup(v.producer.Close)
	routing := read.DefaultConfig()
	routing.Application, routing.Partitions, routing.Local = topics.AppNotifier, partitions, v.node
	router, err := read.NewRouter(routing)
	check(t, err)
	v.client = notifier.NewClient(v.cat, v.producer, router)
	polltest.Until(t, "it comes up", func() bool { _, err := v.client.Health(t.Context()); return err == nil })
	return v
}

// resealer is one with these keys, and its metrics.
func (v *vault) resealer(ids ...int) (*Resealer, *notifier.Keys, *prometheus.Registry) {
	v.t.Helper()
	var lines []string
	for _, id := range ids {
		lines = append(lines, fmt.Sprintf("%d:%s", id, strings.Repeat(fmt.Sprintf("%02x", id), 32)))
	}
	keys, err := notifier.ParseKeys(strings.Join(lines, "\n"))
	check(v.t, err)
	reg := prometheus.NewRegistry()
	return New(v.cat, v.node, v.producer, keys, zap.NewNop(), reg), keys, reg
}

func walletOf(i int) common.Address { return common.Address{byte(i), byte(i >> 8), 1} }

// subscribe writes a subscription under the first of some keys.
func (v *vault) subscribe(keys *notifier.Keys, i int, unix int64) {
	v.t.Helper()
	sealed, err := keys.Seal(walletOf(i), notifier.Email, fmt.Sprintf("a%d@example.com", i))
	check(v.t, err)
	s := &notifier.Subscribe{Wallet: walletOf(i), Channel: notifier.Email, Sealed: sealed, Mask: "m", Prefs: 0x7f, Unix: unix}
	s.ID[0] = byte(unix)
	outcome, err := v.client.Subscribe(v.t.Context(), s)
	if err != nil || outcome != notifier.Accepted {
		v.t.Errorf("subscribe: %v, %v", outcome, err)
	}
}

// invariant: every address opens with these keys, and the rest of its subscription is as it was written.
func (v *vault) invariant(keys *notifier.Keys, n int) {
	v.t.Helper()
	for i := range n {
		subs, err := v.client.Subscriptions(v.t.Context(), walletOf(i))
		check(v.t, err)
		if len(subs) != 1 || subs[0].Unix != 1 || subs[0].Prefs != 0x7f || subs[0].Mask != "m" || subs[0].CreatedAt == 0 {
			v.t.Fatalf("wallet %d: %+v", i, subs)
		}
		if address, err := keys.Open(walletOf(i), notifier.Email, subs[0].Sealed); err != nil || address != fmt.Sprintf("a%d@example.com", i) {
			v.t.Fatalf("wallet %d: its address is %q: %v", i, address, err)
		}
	}
}

// sealed is how many addresses the metric says are sealed with a key, by their use.
func sealed(t *testing.T, reg *prometheus.Registry, key int, use string) (n float64) {
	t.Helper()
	all, err := reg.Gather()
	check(t, err)
	for _, family := range all {
		for _, m := range family.GetMetric() {
			is := map[string]string{}
			for _, l := range m.GetLabel() {
				is[l.GetName()] = l.GetValue()
			}
			if family.GetName() == "lienstream_notifier_sealed_addresses" && is["key"] == fmt.Sprint(key) && is["use"] == use {
				n += m.GetGauge().GetValue()
			}
		}
	}
	return n
}

// A rotation: what the old key sealed is resealed with the new one, the metric says when that is done, and the old key may go.
func TestRotation(t *testing.T) {
	v := newVault(t)
	const n = 2*page + 7 // several pages in each partition
	_, old, _ := v.resealer(1)
	var g errgroup.Group
	g.SetLimit(32)
	for i := range n {
		g.Go(func() error { v.subscribe(old, i, 1); return nil })
	}
	check(t, g.Wait())
	both, keys, reg := v.resealer(2, 1)
	if both.pass(t.Context()) {
		t.Error("a pass that resealed says that nothing is left to do")
	}
	if got := sealed(t, reg, 1, "old"); got != n {
		t.Errorf("%v addresses are under the old key, want %d", got, n)
	}
	polltest.Within(t, time.Minute, func() error {
		if !both.pass(t.Context()) || sealed(t, reg, 2, "current") != n || sealed(t, reg, 1, "old") != 0 {
			return fmt.Errorf("%v are under the new key", sealed(t, reg, 2, "current"))
		}
		return nil
	})
	check(t, both.Ready())
	v.invariant(keys, n)

	// The old key goes: nothing needs it.
	alone, keys, reg := v.resealer(2)
	if !alone.pass(t.Context()) || sealed(t, reg, 1, "missing") != 0 {
		t.Error("something needs the old key")
	}
	check(t, alone.Ready())
	v.invariant(keys, n)
	if got, err := testutil.GatherAndCount(reg, "lienstream_notifier_sealed_addresses"); err != nil || got != partitions {
		t.Errorf("%d series, want one a partition: %v", got, err)
	}
}

// A key that went too early: what needs it is left as it is, the node says so and is not ready; with the key all is as before.
func TestKeyGoneTooEarly(t *testing.T) {
	v := newVault(t)
	_, old, _ := v.resealer(1)
	const n = 10
	for i := range n {
		v.subscribe(old, i, 1)
	}
	early, _, reg := v.resealer(2)
	early.pass(t.Context())
	if err := early.Ready(); err == nil || !strings.Contains(err.Error(), "10 addresses are sealed with key 1, which notify-keys-file lacks") {
		t.Errorf("it is ready: %v", err)
	}
	if got := sealed(t, reg, 1, "missing"); got != n {
		t.Errorf("%v addresses lack their key, want %d", got, n)
	}
	v.invariant(old, n)
	back, keys, _ := v.resealer(2, 1)
	polltest.Until(t, "all is resealed", func() bool { return back.pass(t.Context()) })
	check(t, back.Ready())
	v.invariant(keys, n)
}

// A wallet's own write meanwhile is not undone.
func TestWriteBeatsReseal(t *testing.T) {
	v := newVault(t)
	both, keys, _ := v.resealer(2, 1)
	_, old, _ := v.resealer(1)
	v.subscribe(old, 0, 1)
	p := topics.Partition(walletOf(0).Bytes(), partitions)
	some, _, err := both.page(t.Context(), p, notifier.SealedAddresses, nil)
	if err != nil || len(some) != 1 {
		t.Fatalf("%d addresses: %v", len(some), err)
	}
	v.subscribe(old, 0, 2) // between the read and the command
	before, err := v.client.Subscriptions(t.Context(), walletOf(0))
	check(t, err)
	check(t, both.reseal(t.Context(), some[0]))
	v.subscribe(keys, 1, 1) // applied after it, if in the same partition
	polltest.Until(t, "a pass reseals what is there now", func() bool { return both.pass(t.Context()) })
	after, err := v.client.Subscriptions(t.Context(), walletOf(0))
	check(t, err)
	one, err := keys.Open(walletOf(0), notifier.Email, before[0].Sealed)
	check(t, err)
	two, err := keys.Open(walletOf(0), notifier.Email, after[0].Sealed)
	check(t, err)
	if one != two || after[0].Unix != 2 {
		t.Errorf("%q became %q: %+v", one, two, after[0])
	}
}

// An address that is to be confirmed is resealed beside the confirmed one.
func TestAnAwaitedAddressIsResealed(t *testing.T) {
	v := newVault(t)
	both, keys, reg := v.resealer(2, 1)
	_, old, _ := v.resealer(1)
	v.subscribe(old, 0, 1)
	next, err := old.Seal(walletOf(0), notifier.Email, "next@example.com")
	check(t, err)
	outcome, err := v.client.Await(t.Context(), &notifier.Subscribe{ID: notifier.ID{9}, Wallet: walletOf(0), Channel: notifier.Email, Sealed: next, Mask: "m", Prefs: 1, Unix: 2})
	if err != nil || outcome != notifier.Accepted {
		t.Fatalf("%v, %v", outcome, err)
	}
	both.pass(t.Context())
	if got := sealed(t, reg, 1, "old"); got != 2 {
		t.Errorf("%v addresses are under the old key, want 2", got)
	}
	polltest.Until(t, "all is resealed", func() bool { return both.pass(t.Context()) && sealed(t, reg, 2, "current") == 2 })
	subs, err := v.client.Subscriptions(t.Context(), walletOf(0))
	check(t, err)
	for want, text := range map[string][]byte{"a0@example.com": subs[0].Sealed, "next@example.com": subs[0].Awaited.Sealed} {
		id, _ := keys.KeyOf(text)
		if is, err := keys.Open(walletOf(0), notifier.Email, text); err != nil || is != want || id != keys.Current() {
			t.Errorf("%q under key %d, want %q: %v", is, id, want, err)
		}
	}
}

// So is the address in a request to confirm it that waits in the outbox, for a stranger and for a wallet with a deal: the mail goes
// out under the new key alone.
func TestAQueuedRequestIsResealed(t *testing.T) {
	v := newVault(t)
	both, keys, reg := v.resealer(2, 1)
	_, old, _ := v.resealer(1)
	for i, wallet := range []common.Address{walletOf(0), walletOf(1)} {
		if i == 1 {
			rec, err := (&notifier.Command{Fact: &notifier.Fact{Wallet: wallet, Deal: notifier.Deal{ID: "1", Borrower: wallet, FundedAt: 1, Expiry: 9000, GraceEnd: 9900, Open: true}}}).Record(v.cat, wallet)
			check(t, err)
			_, err = v.producer.Send(t.Context(), rec)
			check(t, err)
		}
		email := fmt.Sprintf("a%d@example.com", i)
		sealed, err := old.Seal(wallet, notifier.Email, email)
		check(t, err)
		at, err := old.Seal(old.Place(email), notifier.Email, email)
		check(t, err)
		mail := &notifier.Permit{ID: notifier.ID{1, byte(i)}, Place: old.Place(email), Mail: &notifier.Request{Wallet: wallet, Sealed: at}}
		outcome, err := v.client.Await(t.Context(), &notifier.Subscribe{ID: notifier.ID{9}, Wallet: wallet, Channel: notifier.Email, Sealed: sealed, Mask: "m", Prefs: 1, Unix: 2, Mail: mail})
		if err != nil || outcome != notifier.Accepted {
			t.Fatalf("%v, %v", outcome, err)
		}
		if outcome, err = v.client.Permitted(t.Context(), mail); err != nil || outcome != notifier.Accepted {
			t.Fatalf("%v, %v", outcome, err)
		}
	}
	both.pass(t.Context())
	if got := sealed(t, reg, 1, "old"); got != 4 {
		t.Errorf("%v addresses are under the old key, want 2 of subscriptions and 2 of requests", got)
	}
	polltest.Until(t, "all is resealed", func() bool { return both.pass(t.Context()) && sealed(t, reg, 2, "current") == 4 })
	found := 0
	for p := range v.cat.Partitions {
		some, _, err := both.page(t.Context(), p, notifier.SealedRequests, nil)
		check(t, err)
		for _, s := range some {
			id, _ := keys.KeyOf(s.Text)
			address, err := keys.Open(s.Wallet, s.Channel, s.Text)
			if err != nil || id != keys.Current() || old.Place(address) != s.Wallet {
				t.Errorf("%q under key %d: %v", address, id, err)
			}
			found++
		}
	}
	if found != 2 {
		t.Errorf("%d requests wait, want 2", found)
	}
}
