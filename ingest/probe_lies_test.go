package ingest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics"
)

// liesAboutCalls says of each word that a contract returns that it is one more, and lists no token.
func liesAboutCalls(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
	var word hexutil.Bytes
	if req.Method != "eth_call" || json.Unmarshal(resp.Result, &word) != nil {
		return false
	}
	switch {
	case len(word) == 32:
		n := new(uint256.Int).SetBytes(word)
		resp.Say(hexutil.Bytes(n.AddUint64(n, 1).PaddedBytes(32)))
	case len(word) > 64:
		resp.Say(hexutil.Bytes(append(common.LeftPadBytes([]byte{32}, 32), make([]byte, 32)...)))
	}
	return false
}

// TestLiesAboutCalls: a faster node that lies about calls is beside one or two honest nodes. Beside one, probes are
// unknown and none is wrong; beside two, they are right. Tokens that were registered before are known, although the
// liar lists none.
func TestLiesAboutCalls(t *testing.T) {
	t.Parallel()
	for honest := 1; honest <= 2; honest++ {
		t.Run(fmt.Sprint("beside ", honest), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
			liar := rpctest.NewLiar(t, w.chain.HTTP(), 0)
			liar.Tells(liesAboutCalls)
			cfg := w.config()
			cfg.RPC.Endpoints = []rpc.Endpoint{{URL: liar.URL, Name: "liar"}}
			for i := range honest {
				node := rpctest.NewLiar(t, w.chain.HTTP(), 5*time.Millisecond)
				cfg.RPC.Endpoints = append(cfg.RPC.Endpoints, rpc.Endpoint{URL: node.URL, Name: fmt.Sprint("honest", i)})
			}
			w.step(t, 20)
			in := run(t, cfg)
			w.step(t, 20)
			checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
			if err := in.stop(); err != nil {
				t.Fatal(err)
			}
			known := 0
			for _, p := range w.probes(t) {
				known += checkProbe(t, w, p)
			}
			if (known > 0) != (honest == 2) {
				t.Errorf("beside %d honest nodes %d answers are known", honest, known)
			}
			if count(t, in.reg, "liar", "disagreement") == 0 {
				t.Error("the liar was never counted")
			}

			w.probedAgain(t, cfg)
		})
	}
}

// TestLiesAboutOneFunction: the liar says the truth but of one function, which it says returns nothing but zero, or fails in
// words of its own. What a token says in several functions is known of all of them, or unknown.
func TestLiesAboutOneFunction(t *testing.T) {
	t.Parallel()
	calls := func(req rpctest.Message, function string) bool {
		selector := strings.TrimPrefix(hexutil.Encode(contracts.Selector(function)), "0x")
		return req.Method == "eth_call" && strings.Contains(string(req.Params[0]), selector)
	}
	// The oracle of no token is paused: those of the embedded chain have none.
	oracle := func(req rpctest.Message, resp *rpctest.Message) {
		if calls(req, "oraclePaused()") {
			resp.Error = nil
			resp.Say(hexutil.Bytes(make([]byte, 32)))
		}
	}
	for _, function := range []string{"paused()", "effectiveAt()"} {
		for _, fails := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s fails %t", function, fails), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
				liar := rpctest.NewLiar(t, w.chain.HTTP(), 0)
				liar.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
					oracle(req, resp)
					switch {
					case !calls(req, function) || resp.Error != nil:
					case fails:
						resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32000,"message":"upstream hiccup"}`)
					default:
						resp.Say(hexutil.Bytes(make([]byte, 32)))
					}
					return false
				})
				honest := rpctest.NewLiar(t, w.chain.HTTP(), 5*time.Millisecond)
				honest.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
					oracle(req, resp)
					return false
				})
				cfg := w.config()
				cfg.RPC.Endpoints = []rpc.Endpoint{{URL: liar.URL, Name: "liar"}, {URL: honest.URL, Name: "honest"}}
				w.step(t, 60)
				run(t, cfg)
				w.step(t, 60)
				checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
				known := 0
				for _, p := range w.probes(t) {
					known += checkProbe(t, w, p)
				}
				if known == 0 {
					t.Error("nothing is known of what nobody lies about")
				}
			})
		}
	}
}

// TestPrunedBesideALiar: the honest nodes have no old states, and a third one claims them and lies. It is not believed
// alone: old probes are unknown, and known once the others have the states.
func TestPrunedBesideALiar(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
	liar := rpctest.NewLiar(t, w.chain.HTTP(), 0)
	liar.Tells(liesAboutCalls)
	cfg := w.config()
	cfg.RPC.Endpoints = []rpc.Endpoint{{URL: liar.URL, Name: "liar"}}
	var pruned atomic.Bool
	pruned.Store(true)
	for i := range 2 {
		node := rpctest.NewLiar(t, w.chain.HTTP(), 5*time.Millisecond)
		node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if req.Method == "eth_call" && pruned.Load() && !strings.Contains(string(req.Params[1]), "latest") {
				resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32000,"message":"missing trie node 0123 (path )"}`)
			}
			return false
		})
		cfg.RPC.Endpoints = append(cfg.RPC.Endpoints, rpc.Endpoint{URL: node.URL, Name: fmt.Sprint("honest", i)})
	}
	w.step(t, 40)
	run(t, cfg)
	known := func() (n int) {
		checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
		for _, p := range w.probes(t) {
			n += checkProbe(t, w, p)
		}
		return n
	}
	if n := known(); n > 0 {
		t.Fatalf("%d answers are the word of one", n)
	}
	if len(w.probes(t)) == 0 {
		t.Fatal("no token was probed")
	}
	pruned.Store(false)
	for deadline := time.Now().Add(time.Minute); known() == 0; w.step(t, 2) {
		if time.Now().After(deadline) {
			t.Fatal("no token is asked again")
		}
	}
}

// checkProbe holds what is known of a token against the chain, and returns how many answers are.
func checkProbe(t *testing.T, w *world, p *topics.Probe) (known int) {
	t.Helper()
	ask := func(function string) *uint256.Int { return w.tells(t, p, function) }
	if p.UIMultiplier != nil {
		if is := ask("uiMultiplier()"); !is.Eq(p.UIMultiplier) {
			t.Errorf("block %d: the multiplier of %s is %s, the topic says %s", p.Block.Number, p.Token, is, p.UIMultiplier)
		}
		next, at := ask("newUIMultiplier()"), ask("effectiveAt()").Uint64()
		if p.NewUIMultiplier == nil || !next.Eq(p.NewUIMultiplier) || p.EffectiveAt == nil || at != *p.EffectiveAt {
			t.Errorf("block %d: %s announces %s from %d on, the topic says %v and %v", p.Block.Number, p.Token, next, at, p.NewUIMultiplier, p.EffectiveAt)
		}
		known++
	}
	if p.Paused != nil {
		if is := !ask("paused()").IsZero() || !ask("oraclePaused()").IsZero(); is != *p.Paused {
			t.Errorf("block %d: that %s is paused is %t, the topic says %t", p.Block.Number, p.Token, is, *p.Paused)
		}
		known++
	}
	return known
}

// tells is what the token of a probe says as of its block; 0: it says nothing.
func (w *world) tells(t *testing.T, p *topics.Probe, function string) *uint256.Int {
	t.Helper()
	var word hexutil.Bytes
	err := w.chain.Client().Client().CallContext(t.Context(), &word, "eth_call",
		map[string]any{"to": p.Token, "data": hexutil.Bytes(contracts.Selector(function))}, map[string]any{"blockHash": p.Block.Hash})
	if err != nil || len(word) != 32 {
		return new(uint256.Int)
	}
	return new(uint256.Int).SetBytes(word)
}
