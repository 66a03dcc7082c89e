package ingest_test

import (
	"context"
	"encoding/json"
	"math/big"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
)

// stranger is a contract that emits Paused(address) so often when it is sent a transaction, and answers a call
// with code.
func stranger(logs uint16, answer func(at byte) []byte) []byte {
	paused := crypto.Keccak256([]byte("Paused(address)"))
	code := []byte{0x36, 0x60, 0, 0x57, 0x61, byte(logs >> 8), byte(logs)} // CALLDATASIZE PUSH1 answer JUMPI PUSH2 logs
	loop := byte(len(code))
	code = append(append(code, 0x5b, 0x7f), paused...)               // JUMPDEST PUSH32 topic
	code = append(code, 0x60, 32, 0x60, 0, 0xa1)                     // PUSH1 size PUSH1 offset LOG1
	code = append(code, 0x60, 1, 0x90, 0x03, 0x80, 0x60, loop, 0x57) // PUSH1 1 SWAP1 SUB DUP1 PUSH1 loop JUMPI
	code = append(code, 0x00)
	code[2] = byte(len(code))
	return append(append(code, 0x5b), answer(code[2])...)
}

// TestStranger: a contract of nobody's emits Paused(address), 30,000 times in a block, and answers calls with
// what a node cannot bear. It is not asked, and the topic goes on.
func TestStranger(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(byte) []byte{
		"overflows the stack": func(at byte) []byte { return []byte{0x60, 0, 0x60, at, 0x56} },            // PUSH1 0 PUSH1 at JUMP
		"answers 5 MB":        func(byte) []byte { return []byte{0x62, 0x4c, 0x4b, 0x40, 0x60, 0, 0xf3} }, // PUSH3 5,000,000 PUSH1 0 RETURN
		"never ends":          func(at byte) []byte { return []byte{0x60, at, 0x56} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, err := crypto.ToECDSA(crypto.Keccak256([]byte("stranger")))
			if err != nil {
				t.Fatal(err)
			}
			foreign := common.HexToAddress("0xe111")
			w := newWorldOn(t, devchain.Config{Seed: 7, Alloc: types.GenesisAlloc{
				crypto.PubkeyToAddress(key.PublicKey): {Balance: new(big.Int).Lsh(big.NewInt(1), 90)},
				foreign:                               {Balance: new(big.Int), Code: stranger(10_000, answer)},
			}})
			node, calls := countCalls(t, w.chain.HTTP())
			cfg := w.config()
			cfg.RPC.Endpoints = []rpc.Endpoint{{URL: node.URL, Name: "node"}}
			in := run(t, cfg)
			w.step(t, 5)
			checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
			probes := value(t, in.reg, "lienstream_ingest_probes_total")
			calls.Store(0)
			for nonce := range uint64(3) {
				tx := types.MustSignNewTx(key, types.LatestSignerForChainID(big.NewInt(devchain.DefaultChainID)), &types.DynamicFeeTx{
					ChainID: big.NewInt(devchain.DefaultChainID), Nonce: nonce, GasTipCap: big.NewInt(1e9), GasFeeCap: big.NewInt(2e10), Gas: 16_000_000, To: &foreign,
				})
				if err := w.chain.Client().SendTransaction(t.Context(), tx); err != nil {
					t.Fatal(err)
				}
			}
			w.step(t, 3)
			checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
			asked := value(t, in.reg, "lienstream_ingest_probes_total") - probes
			if got := float64(calls.Load()); got > 5*asked {
				t.Errorf("%v calls for %v registered tokens", got, asked)
			}
			for _, p := range w.probes(t) {
				if p.Token == foreign {
					t.Fatal("the stranger was probed")
				}
			}
		})
	}
}

// TestProbedAgain: a node that answers no call leaves fields empty and nothing else undone; once it answers, a
// later block has what was missing. A token that was registered before this process began is known too.
func TestProbedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
	node, silent := newMute(t, w.chain.HTTP())
	cfg := w.config()
	cfg.RPC.Endpoints = []rpc.Endpoint{{URL: node.URL, Name: "node"}}
	in := run(t, cfg)
	w.step(t, 30)
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	blind := map[common.Address]bool{}
	for _, p := range w.probes(t) {
		if p.Paused != nil {
			t.Fatalf("token %s was answered for", p.Token)
		}
		blind[p.Token] = true
	}
	if len(blind) == 0 {
		t.Fatal("no token was probed")
	}
	silent.Store(false)
	for deadline := time.Now().Add(time.Minute); len(blind) > 0; {
		if time.Now().After(deadline) {
			t.Fatalf("%d tokens were never asked again", len(blind))
		}
		w.step(t, 2)
		checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
		for _, p := range w.probes(t) {
			if p.Paused != nil || p.UIMultiplier != nil {
				delete(blind, p.Token)
			}
		}
		if len(blind) > 0 && onlyPlain(t, w, blind) {
			break
		}
	}
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
	w.probedAgain(t, cfg)
}

// probedAgain: a session that begins anew probes what it knows nothing of.
func (w *world) probedAgain(t *testing.T, cfg ingest.Config) {
	t.Helper()
	before := len(w.probes(t))
	run(t, cfg)
	for deadline := time.Now().Add(time.Minute); len(w.probes(t)) == before; {
		if time.Now().After(deadline) {
			t.Fatal("no token is probed after a restart")
		}
		w.step(t, 20)
		checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	}
}

// TestNewsOfARevertedBlock: what tokens say is unknown, then a block without logs has it, and that block is taken back. The
// chain that comes instead has it too, although they say the same as before.
func TestNewsOfARevertedBlock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
	node, silent := newMute(t, w.chain.HTTP())
	cfg := w.config()
	cfg.RPC.Endpoints = []rpc.Endpoint{{URL: node.URL, Name: "node"}}
	run(t, cfg)
	w.step(t, 30)
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	silent.Store(false)
	var head *types.Header
	mine := func() map[common.Address]uint64 {
		last, err := w.chain.Client().HeaderByNumber(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.chain.Mine(t.Context(), last.Time+1, nil); err != nil {
			t.Fatal(err)
		}
		checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
		if head, err = w.chain.Client().HeaderByNumber(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		told := map[common.Address]uint64{}
		for _, p := range w.probes(t) {
			if p.Paused != nil {
				told[p.Token] = p.Block.Number
			}
		}
		return told
	}
	var before map[common.Address]uint64
	for deadline := time.Now().Add(time.Minute); len(before) == 0; before = mine() {
		if time.Now().After(deadline) {
			t.Fatal("no token is asked again")
		}
	}
	if err := w.chain.Rewind(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	var after map[common.Address]uint64
	for range 4 { // a chain is believed once it is the longer one
		after = mine()
	}
	for token, block := range before {
		if after[token] == 0 {
			t.Errorf("block %d said of %s what is not said again up to block %d", block, token, head.Number)
		}
	}
}

// onlyPlain says whether none of the tokens has a function that is probed.
func onlyPlain(t *testing.T, w *world, all map[common.Address]bool) bool {
	t.Helper()
	for token := range all {
		var answer string
		err := w.chain.Client().Client().CallContext(t.Context(), &answer, "eth_call",
			map[string]any{"to": token, "data": "0x5c975abb"}, "latest") // paused()
		if err == nil && len(answer) > 2 {
			return false
		}
	}
	return true
}

// countCalls is a node that counts what it is asked to call.
func countCalls(t *testing.T, honest string) (*rpctest.Liar, *atomic.Int64) {
	t.Helper()
	var calls atomic.Int64
	node := rpctest.NewLiar(t, honest, 0)
	node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
		if req.Method == "eth_call" {
			calls.Add(1)
		}
		return false
	})
	return node, &calls
}

// newWorldOn is newWorld on a chain of that configuration.
func newWorldOn(t *testing.T, cfg devchain.Config) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("takes a chain and a broker")
	}
	chain, err := devchain.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = chain.Close() })
	market, err := devchain.Deploy(t.Context(), chain, devchain.MarketConfig{NodeModules: "../contracts/node_modules", Seed: cfg.Seed})
	if err != nil {
		t.Fatal(err)
	}
	scenario, err := devchain.NewScenario(market, devchain.ScenarioConfig{Seed: cfg.Seed})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{chain: chain, market: market, scenario: scenario, kafka: brokertest.Config(brokertest.Start(t, "kfake"), "test")}
	w.topic = w.provision(t, w.kafka)
	return w
}

// probes reads all probes that the topic has, up to the chain's head.
func (w *world) probes(t *testing.T) (all []*topics.Probe) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	head, err := w.chain.Client().HeaderByNumber(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	for partition := range int32(partitions) {
		r, err := readUntil(ctx, w.kafka, w.topic, partition, head.Hash())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range r.blocks {
			once := map[common.Address]bool{}
			for _, raw := range b.records {
				if p, ok := raw.(*topics.Probe); ok {
					if once[p.Token] {
						t.Fatalf("token %s is probed twice in block %d", p.Token, p.Block.Number)
					}
					once[p.Token] = true
					all = append(all, p)
				}
			}
		}
	}
	return all
}

// value reads a metric that has no labels.
func value(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// newMute is a node that answers no call while silent.
func newMute(t *testing.T, of string) (node *rpctest.Liar, silent *atomic.Bool) {
	t.Helper()
	node, silent = rpctest.NewLiar(t, of, 0), new(atomic.Bool)
	silent.Store(true)
	node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_call" && silent.Load() {
			resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32000,"message":"the dog ate it"}`)
		}
		return false
	})
	return node, silent
}
