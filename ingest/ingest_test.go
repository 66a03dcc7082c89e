package ingest_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

const partitions = 4

// world is a chain with a market, and a broker.
type world struct {
	chain    *devchain.Chain
	market   *devchain.Market
	scenario *devchain.Scenario
	kafka    kafka.Config
	topic    string
}

func newWorld(t *testing.T, kind string, seed uint64, cfg devchain.ScenarioConfig) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("takes a chain and a broker")
	}
	t.Logf("seed %d", seed)
	chain, err := devchain.New(devchain.Config{Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = chain.Close() })
	market, err := devchain.Deploy(t.Context(), chain, devchain.MarketConfig{NodeModules: "../contracts/node_modules", Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Seed = seed
	scenario, err := devchain.NewScenario(market, cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{chain: chain, market: market, scenario: scenario, kafka: brokertest.Config(brokertest.Start(t, kind), "test")}
	w.topic = w.provision(t, w.kafka)
	return w
}

// provision makes the raw topic of a prefix.
func (w *world) provision(t *testing.T, cfg kafka.Config) string {
	t.Helper()
	catalogue := topics.Catalogue{Prefix: cfg.Prefix, ChainID: w.market.Deployment.ChainID, Partitions: partitions}
	raw, _ := catalogue.Find(topics.KindRaw, topics.Logs)
	brokertest.Apply(t, cfg, []topics.Topic{raw})
	return catalogue.Raw()
}

func (w *world) step(t *testing.T, blocks int) {
	t.Helper()
	for range blocks {
		if _, err := w.scenario.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func (w *world) config() ingest.Config {
	cfg := ingest.DefaultConfig()
	cfg.Deployment, cfg.Kafka, cfg.Partitions = w.market.Deployment, w.kafka, partitions
	cfg.RPC.Endpoints = []rpc.Endpoint{{URL: w.chain.HTTP(), WS: w.chain.WS(), Name: "node"}}
	cfg.RPC.Timeout *= slowness
	return cfg
}

// running is an ingester under way.
type running struct {
	*ingest.Ingester
	stop func() error // ends it, once, and returns what Run returned
	done chan struct{}
	reg  *prometheus.Registry
}

func run(t *testing.T, cfg ingest.Config) *running {
	t.Helper()
	return runLogging(t, cfg, zaptest.NewLogger(t))
}

func runLogging(t *testing.T, cfg ingest.Config, log *zap.Logger) *running {
	t.Helper()
	reg := prometheus.NewRegistry()
	in, err := ingest.New(cfg, log, reg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{Ingester: in, done: make(chan struct{}), reg: reg}
	var result error
	go func() {
		defer close(r.done)
		result = in.Run(ctx)
	}()
	r.stop = func() error {
		cancel()
		<-r.done
		return result
	}
	t.Cleanup(func() { _ = r.stop() })
	return r
}

// TestReorgs: a chain with reorgs of depth 1 to 64 while it is ingested, in backfill and at the tip.
func TestReorgs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kfake", rand.Uint64(), devchain.ScenarioConfig{Reorgs: true, ReorgEvery: 12})
	w.step(t, 100)
	in := run(t, w.config())
	for rounds, reverts := 1, 0; rounds <= 5 || reverts == 0; rounds++ {
		if rounds > 100 {
			t.Fatal("no block was reverted")
		}
		w.step(t, 30)
		reverts = checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	}
	if err := in.Ready(); err != nil {
		t.Error(err)
	}
	if err := in.stop(); err != nil {
		t.Error(err)
	}
}

// TestCrash: connections to Kafka are cut at random points, the chain goes on with reorgs, and now and then
// the ingester is another process.
func TestCrash(t *testing.T) {
	t.Parallel()
	for _, kind := range brokertest.Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			crash(t, kind)
		})
	}
}

func crash(t *testing.T, kind string) {
	t.Helper()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t, kind, seed, devchain.ScenarioConfig{Reorgs: true, ReorgEvery: 10})
	in := run(t, w.config())
	for range 30 {
		for range random.IntN(12) {
			w.step(t, 1)
		}
		in.Kill()
		if random.IntN(4) == 0 {
			if err := in.stop(); err != nil {
				t.Fatal(err)
			}
			in = run(t, w.config())
		}
	}
	w.step(t, 1)
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
}

// TestFenced: the second ingester fences the first, which ends with an error that says so.
func TestFenced(t *testing.T) {
	t.Parallel()
	for _, kind := range brokertest.Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			fenced(t, kind)
		})
	}
}

func fenced(t *testing.T, kind string) {
	t.Helper()
	w := newWorld(t, kind, 1, devchain.ScenarioConfig{})
	first := run(t, w.config())
	w.step(t, 5)
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	second := run(t, w.config())
	w.step(t, 5)
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	select {
	case <-first.done: // a heartbeat is its next transaction, at the latest
	case <-time.After(time.Minute):
		t.Fatal("the first ingester goes on: it took the topic back")
	}
	if err := first.stop(); !errors.Is(err, kafka.ErrFenced) {
		t.Errorf("first ingester ended with %v", err)
	}
	polltest.Within(t, time.Minute, second.Ready)
}

// TestStandby: the standby takes over when the active ingester is gone, and not before.
func TestStandby(t *testing.T) {
	w := newWorld(t, "kfake", 1, devchain.ScenarioConfig{})
	cfg := w.config()
	cfg.Standby, cfg.Heartbeat, cfg.TakeoverAfter = true, 40*time.Millisecond, time.Second
	active := run(t, cfg)
	w.step(t, 5)
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	standby := run(t, cfg)
	w.step(t, 5)
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	if phase := standby.Status().Phase; phase == ingest.PhaseFollow || phase == ingest.PhaseBackfill {
		t.Fatalf("standby is in phase %s", phase)
	}
	if err := active.stop(); err != nil {
		t.Fatal(err)
	}
	w.step(t, 5)
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	if phase := standby.Status().Phase; phase != ingest.PhaseFollow {
		t.Errorf("standby is in phase %s", phase)
	}
}

// TestStandbyOfNobody: a standby that has just started does not wait if the topic was never written.
func TestStandbyOfNobody(t *testing.T) {
	w := newWorld(t, "kfake", 1, devchain.ScenarioConfig{})
	cfg := w.config()
	cfg.Standby, cfg.TakeoverAfter = true, time.Hour
	run(t, cfg)
	w.step(t, 5)
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
}

func TestMain(m *testing.M) {
	flag.Parse()
	if !slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-test.parallel") }) {
		_ = flag.Set("test.parallel", "4") // they wait most of the time
	}
	goleak.VerifyTestMain(m,
		// The chain in the process is go-ethereum, which leaves these behind.
		goleak.IgnoreAnyFunction("github.com/ethereum/go-ethereum/core.(*txSenderCacher).cache"),
		goleak.IgnoreAnyFunction("github.com/ethereum/go-ethereum/eth/filters.(*FilterAPI).NewHeads.func1"),
		goleak.IgnoreAnyFunction("github.com/syndtr/goleveldb/leveldb.(*DB).mpoolDrain"),
	)
}
