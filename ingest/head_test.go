package ingest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// fabricated tells of a head, and of a finalized block, that is far above the chain and hashes right.
func fabricated(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
	m, tag := rpctest.Header(req, resp)
	var h types.Header
	if m == nil || tag != "latest" && tag != "finalized" || json.Unmarshal(resp.Result, &h) != nil {
		return false
	}
	h.Number = new(big.Int).Add(h.Number, big.NewInt(1_000_000))
	resp.Say(&h)
	return false
}

// TestFabricatedHead: a liar's head hashes right and is a million blocks too high. It is not believed, neither as a
// head nor as finalized; it is counted, and a later reorg is undone.
func TestFabricatedHead(t *testing.T) {
	t.Parallel()
	w := lyingWorld(t)
	liar, honest := rpctest.NewLiar(t, w.chain.HTTP(), 0), rpctest.NewLiar(t, w.chain.HTTP(), 5*time.Millisecond)
	liar.Tells(fabricated)
	cfg, topic := w.lyingConfig(t, "fabricated", rpc.Endpoint{URL: liar.URL, Name: "liar"}, rpc.Endpoint{URL: honest.URL, Name: "honest"})
	cfg.FinalizedEvery = 50 * time.Millisecond
	in := run(t, cfg)
	for rounds := 0; rounds < 10 || count(t, in.reg, "liar", "inflated_head") == 0; rounds++ {
		if rounds > 200 {
			t.Fatal("the liar was never counted")
		}
		w.step(t, 2)
		checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
		head, err := w.chain.Client().BlockNumber(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s := in.Status(); s.Head > head || s.Finalized+cfg.ReorgWindow > head {
			t.Fatalf("at block %d the head is %d and block %d final", head, s.Head, s.Finalized)
		}
	}
	if err := w.scenario.Rewind(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	w.step(t, 6)
	if reverts := checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client()); reverts == 0 {
		t.Error("nothing was reverted")
	}
	if n := count(t, in.reg, "honest", "stale_head") + count(t, in.reg, "honest", "inflated_head"); n > 0 {
		t.Errorf("the honest node was counted %v times", n)
	}
}

// TestNoHeadThatNobodyProved: the faster of two endpoints announces heads a few blocks too high, so that they are
// followed, and does not answer requests for the blocks. No barrier, from which /health/indexer has its latestBlock,
// names such a head: neither in a backfill, nor at the tip, nor while the chain has halted.
func TestNoHeadThatNobodyProved(t *testing.T) {
	t.Parallel()
	w := lyingWorld(t)
	for _, by := range []int64{1, 3, 40, 1_000_000} {
		t.Run(fmt.Sprint("too high by ", by), func(t *testing.T) {
			liar, honest := rpctest.NewLiar(t, w.chain.HTTP(), 0), rpctest.NewLiar(t, w.chain.HTTP(), 5*time.Millisecond)
			var told atomic.Int64
			lie := ahead(by)
			liar.Tells(func(rw http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
				if req.Method == "eth_getBlockByNumber" && string(resp.Result) == "null" { // a block that it told of
					<-r.Context().Done()
					return true
				}
				if _, tag := rpctest.Header(req, resp); tag == "latest" {
					told.Add(1)
				}
				return lie(rw, r, req, resp)
			})
			cfg, topic := w.lyingConfig(t, fmt.Sprint("proved", by), rpc.Endpoint{URL: liar.URL, Name: "liar"}, rpc.Endpoint{URL: honest.URL, Name: "honest"})
			cfg.PollInterval, cfg.Heartbeat = 10*time.Millisecond, 40*time.Millisecond
			in := run(t, cfg)
			for range 3 {
				w.step(t, 1)
				checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			}
			beats, before := value(t, in.reg, "lienstream_ingest_heartbeats_total"), told.Load()
			polltest.Within(t, time.Minute, func() error {
				if n, m := value(t, in.reg, "lienstream_ingest_heartbeats_total"), told.Load(); n < beats+5 || m < before+5 {
					return fmt.Errorf("%v heartbeats, %d claims", n-beats, m-before)
				}
				return nil
			})
			head, err := w.chain.Client().BlockNumber(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if n := in.Status().Head; n > head {
				t.Errorf("the status says that the chain ends with block %d, and not %d", n, head)
			}
			barriers := 0
			var decoder topics.RawDecoder
			if err := kafka.ReadBack(t.Context(), cfg.Kafka, topic, 0, 0, func(r *kafka.Record) bool {
				raw, err := decoder.Decode(r.Value)
				if end, ok := raw.(*topics.BlockEnd); ok && err == nil {
					if barriers++; end.Head > head {
						t.Errorf("the barrier of block %d says that the chain ends with block %d, and not %d", end.Block.Number, end.Head, head)
					}
				}
				return true
			}); err != nil || barriers < 5 {
				t.Fatalf("%d barriers were read: %v", barriers, err)
			}
			if err := in.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTagGone: the finalized block is 1,000 blocks old. A node that does not know the tag makes nothing final, and a
// reorg of 200 blocks is undone.
func TestTagGone(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, devchain.Config{Seed: 7, SafeBlocks: 900, FinalizedBlocks: 1000})
	w.step(t, 220)
	node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
	node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if _, tag := rpctest.Header(req, resp); tag == "finalized" {
			resp.Result, resp.Error = nil, json.RawMessage(`{"code":-39001,"message":"finalized block not found"}`)
		}
		return false
	})
	cfg := w.config()
	cfg.RPC.Endpoints = []rpc.Endpoint{{URL: node.URL, Name: "node"}}
	cfg.FinalizedEvery = 10 * time.Millisecond
	in := run(t, cfg)
	for range 5 {
		w.step(t, 1)
		checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	}
	if n := in.Status().Finalized; n > 0 {
		t.Fatalf("block %d was published as final", n)
	}
	if err := w.scenario.Rewind(t.Context(), 200); err != nil {
		t.Fatal(err)
	}
	w.step(t, 203)
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}

	// The configuration may say that the window is all there is.
	cfg.Kafka.Prefix, cfg.Finality = "window", ingest.FinalityWindow
	topic := w.provision(t, cfg.Kafka)
	in = run(t, cfg)
	w.step(t, 1)
	checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
	w.step(t, 1)
	checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
	if in.Status().Finalized == 0 {
		t.Error("nothing is final")
	}
}

// TestFinalityOfOneEndsNothing: a reorg goes below a block that was final by the claim of one of two endpoints. The ingester goes on
// asking; had both claimed it, an operator would have to decide.
func TestFinalityOfOneEndsNothing(t *testing.T) {
	t.Parallel()
	for by := range 2 {
		t.Run(fmt.Sprint(by+1, " claim it"), func(t *testing.T) {
			t.Parallel()
			w := newWorldOn(t, devchain.Config{Seed: 7, SafeBlocks: 900, FinalizedBlocks: 1000})
			w.step(t, 40)
			var endpoints []rpc.Endpoint
			for i := range 2 {
				node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
				node.Tells(func(_ http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
					var tag string
					if req.Method != "eth_getBlockByNumber" || json.Unmarshal(req.Params[0], &tag) != nil || tag != "finalized" {
						return false
					}
					head, err := w.chain.Client().HeaderByNumber(r.Context(), nil)
					if i > by || err != nil {
						resp.Result, resp.Error = nil, json.RawMessage(`{"code":-39001,"message":"finalized block not found"}`)
						return false
					}
					resp.Error = nil
					resp.Say(head)
					return false
				})
				endpoints = append(endpoints, rpc.Endpoint{URL: node.URL, Name: fmt.Sprint("node", i)})
			}
			cfg, topic := w.lyingConfig(t, "claimed", endpoints...)
			cfg.FinalizedEvery = 50 * time.Millisecond
			in := run(t, cfg)
			checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			polltest.Within(t, time.Minute, func() error {
				w.step(t, 1)
				head, err := w.chain.Client().BlockNumber(t.Context())
				if err != nil {
					return err
				}
				if n := in.Status().Finalized; n+cfg.ReorgWindow+2 < head {
					return fmt.Errorf("at block %d block %d is final", head, n)
				}
				return nil
			})
			if err := w.scenario.Rewind(t.Context(), 2*cfg.ReorgWindow); err != nil {
				t.Fatal(err)
			}
			w.step(t, int(3*cfg.ReorgWindow))
			polltest.Within(t, time.Minute, func() error {
				select {
				case <-in.done:
					if err := in.stop(); by == 0 || !errors.Is(err, follow.ErrDeepReorg) {
						t.Fatalf("the ingester ended: %v", err)
					}
					return nil
				default:
				}
				if n := value(t, in.reg, "lienstream_ingest_sessions_failed_total"); by > 0 || n < 2 {
					return fmt.Errorf("%v sessions ended", n)
				}
				return nil
			})
		})
	}
}

// TestFrozenHead: the faster of two polled endpoints always reports the same head. Blocks come in as if it did not
// exist.
func TestFrozenHead(t *testing.T) {
	w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
	w.step(t, 30)
	liar, honest := rpctest.NewLiar(t, w.chain.HTTP(), 0), rpctest.NewLiar(t, w.chain.HTTP(), 5*time.Millisecond)
	cfg := w.config()
	cfg.RPC.Endpoints = []rpc.Endpoint{{URL: liar.URL, Name: "liar"}, {URL: honest.URL, Name: "honest"}}
	_ = run(t, cfg)
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	liar.Tells(rpctest.StaleHead())
	began := time.Now()
	const blocks = 30
	for range blocks {
		w.step(t, 1)
		checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	}
	// A poll each, and what the test itself takes; it was a whole stall, 5 s, for every second block.
	if took := time.Since(began); took > blocks*time.Second/2 {
		t.Errorf("%d blocks took %s", blocks, took)
	}
}

// TestReorgBesideAFrozenHead: a reorg replaces the head that one endpoint reported before the blocks below it were
// fetched, while the other's head is frozen. The frozen one still knows the replaced block by its hash, so the first
// is followed as before. Ingestion used to stand for a minute.
func TestReorgBesideAFrozenHead(t *testing.T) {
	t.Parallel()
	w := lyingWorld(t)
	frozen, honest := rpctest.NewLiar(t, w.chain.HTTP(), 0), rpctest.NewLiar(t, w.chain.HTTP(), 5*time.Millisecond)
	cfg, topic := w.lyingConfig(t, "reorg", rpc.Endpoint{URL: frozen.URL, Name: "frozen"}, rpc.Endpoint{URL: honest.URL, Name: "honest"})
	_ = run(t, cfg)
	checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
	stands, err := w.chain.Client().HeaderByNumber(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	frozen.Tells(standing(stands))
	honest.Tells(standing(stands))
	w.step(t, 4)
	replaced := make(chan error, 1)
	var once sync.Once
	honest.Tells(func(_ http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if _, tag := rpctest.Header(req, resp); tag == "latest" {
			once.Do(func() { replaced <- w.chain.Rewind(context.WithoutCancel(r.Context()), 2) })
		}
		return false
	})
	if err := <-replaced; err != nil {
		t.Fatal(err)
	}
	if _, err := w.chain.Mine(t.Context(), stands.Time+1<<20, nil); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
	if took := time.Since(began); took > cfg.RPC.Silence/2 {
		t.Errorf("the block after the reorg took %s", took)
	}
}

// TestSafeAtLast: the last block becomes safe while no other comes, and a repeated barrier reports it. Then a shorter
// branch takes its place, and grows longer, while the node has no safe block: of it nothing is safe until the node says so.
func TestSafeAtLast(t *testing.T) {
	w := newWorldOn(t, devchain.Config{Seed: 7, SafeBlocks: 900, FinalizedBlocks: 1000})
	w.step(t, 20)
	head, err := w.chain.Client().HeaderByNumber(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
	cfg := w.config()
	cfg.RPC.Endpoints = []rpc.Endpoint{{URL: node.URL, Name: "node"}}
	cfg.FinalizedEvery, cfg.Heartbeat = 10*time.Millisecond, 40*time.Millisecond
	in := run(t, cfg)
	last := func() (end topics.BlockEnd) {
		var decoder topics.RawDecoder
		if err := kafka.ReadBack(t.Context(), w.kafka, w.topic, 0, 1, func(r *kafka.Record) bool {
			raw, err := decoder.Decode(r.Value)
			if b, ok := raw.(*topics.BlockEnd); ok && err == nil {
				end = *b
			}
			return false
		}); err != nil {
			t.Fatal(err)
		}
		return end
	}
	polltest.Until(t, "the last block is published", func() bool { return last().Block.Hash == head.Hash() })
	if safe := last().Safe; safe >= head.Number.Uint64() {
		t.Fatalf("block %d is safe already", safe)
	}
	node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if _, tag := rpctest.Header(req, resp); tag == "safe" {
			resp.Say(head)
		}
		return false
	})
	polltest.Until(t, "the last block is safe", func() bool { end := last(); return end.Block.Hash == head.Hash() && end.Safe == end.Block.Number })

	// Of what takes its place nothing is safe, until a node says so.
	var asked atomic.Int64
	node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if _, tag := rpctest.Header(req, resp); tag == "safe" {
			asked.Add(1)
			resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32000,"message":"safe block not found"}`)
		}
		return false
	})
	if err := w.chain.Rewind(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	var tip *types.Header
	for i := range uint64(6) {
		if _, err = w.chain.Mine(t.Context(), head.Time+1<<20+i, nil); err != nil {
			t.Fatal(err)
		}
		if tip, err = w.chain.Client().HeaderByNumber(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		polltest.Until(t, "the other branch is published", func() bool { return last().Block.Hash == tip.Hash() })
		before, commits := asked.Load(), map[time.Time]bool{}
		polltest.Until(t, "the barrier is repeated after two answers that nothing is safe", func() bool {
			if asked.Load() >= before+2 {
				commits[in.Status().CommitAt] = true
			}
			if end := last(); end.Safe >= end.Block.Number {
				t.Fatalf("block %d is of the branch that took the place of a safe block, and is called safe up to %d", end.Block.Number, end.Safe)
			}
			return len(commits) > 2
		})
	}
	node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if _, tag := rpctest.Header(req, resp); tag == "safe" {
			resp.Say(tip)
		}
		return false
	})
	polltest.Until(t, "the other branch is safe", func() bool { end := last(); return end.Block.Hash == tip.Hash() && end.Safe == end.Block.Number })
}

// TestBurstIsNotHeld: more than a window of blocks comes at once right after a vote on finality. The next vote starts
// at once, and they come in with it.
func TestBurstIsNotHeld(t *testing.T) {
	t.Parallel()
	w := lyingWorld(t)
	var away atomic.Bool
	var endpoints []rpc.Endpoint
	for _, name := range []string{"a", "b"} {
		node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
		node.Tells(func(rw http.ResponseWriter, _ *http.Request, _ rpctest.Message, _ *rpctest.Message) bool {
			if away.Load() {
				rw.WriteHeader(http.StatusBadGateway)
			}
			return away.Load()
		})
		endpoints = append(endpoints, rpc.Endpoint{URL: node.URL, Name: name})
	}
	cfg, _ := w.lyingConfig(t, "burst", endpoints...)
	cfg.Finality, cfg.FinalizedEvery = ingest.FinalityWindow, time.Hour
	in := run(t, cfg)
	for _, blocks := range []int{0, 1, 1, 1, 6 * int(cfg.ReorgWindow)} { // a vote is over with one of the single ones
		away.Store(true)
		w.step(t, blocks)
		away.Store(false)
		head, err := w.chain.Client().BlockNumber(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		polltest.Until(t, "the last block is published", func() bool { return in.Status().Published.Number == head })
	}
}
