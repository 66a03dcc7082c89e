package ingest_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// TestEndlessList: the only node returns an endless list of tokens, or the same ones again. Blocks come in all the
// same.
func TestEndlessList(t *testing.T) {
	t.Parallel()
	list := hexutil.Encode(contracts.Selector("tokens(uint256,uint256)"))
	for _, again := range []bool{false, true} {
		t.Run(map[bool]string{false: "ever more", true: "the same"}[again], func(t *testing.T) {
			t.Parallel()
			w := lyingWorld(t)
			var pages atomic.Uint64
			node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
			cfg, topic := w.lyingConfig(t, "endless", rpc.Endpoint{URL: node.URL, Name: "node"})
			in := run(t, cfg)
			checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			if err := in.stop(); err != nil {
				t.Fatal(err)
			}
			node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
				if req.Method != "eth_call" || !strings.Contains(string(req.Params[0]), list) {
					return false
				}
				page := make([]byte, (256+2)*32)
				page[31], page[32+30] = 32, 1
				n := pages.Add(1)
				for i := range 256 {
					word := page[(2+i)*32:][:32]
					if word[31] = byte(i); !again {
						binary.BigEndian.PutUint64(word[20:], n)
					}
				}
				resp.Error = nil
				resp.Say(hexutil.Bytes(page))
				return false
			})
			in = run(t, cfg)
			w.step(t, 3)
			checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			if pages.Load() == 0 {
				t.Error("it was not asked for the list")
			}
			if err := in.stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestListsDiffer: of two nodes one leaves all tokens out of the registry's list, and names none or a thousand others. The
// session begins without them, and without the registry's history, which then proves the tokens that the other one names.
func TestListsDiffer(t *testing.T) {
	t.Parallel()
	list := hexutil.Encode(contracts.Selector("tokens(uint256,uint256)"))
	for _, others := range []int{0, 1000} {
		t.Run(fmt.Sprint(others, " others"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
			var differ, lacks atomic.Int64
			cfg := w.config()
			cfg.RPC.Endpoints = nil
			for i, name := range []string{"honest", "liar"} {
				node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
				cfg.RPC.Endpoints = append(cfg.RPC.Endpoints, rpc.Endpoint{URL: node.URL, Name: name})
				node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
					_, byNumber := rpctest.Logs(req, resp)
					switch {
					case byNumber && lacks.Load() > 0 && strings.Contains(string(req.Params[0]), w.registryLogs()):
						lacks.Add(1)
						resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32000,"message":"missing trie node"}`)
					case i == 1 && req.Method == "eth_call" && strings.Contains(string(req.Params[0]), list):
						differ.Add(1)
						resp.Error = nil
						resp.Say(hexutil.Bytes(inventedPage(t, req, others)))
					}
					return false
				})
			}
			w.step(t, 60)
			in := run(t, cfg)
			checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
			if err := in.stop(); err != nil {
				t.Fatal(err)
			}

			core, logged := observer.New(zapcore.InfoLevel)
			in = runLogging(t, cfg, zap.New(core))
			field := func(message, name string) (n int64) {
				t.Helper()
				polltest.Until(t, message, func() bool { return logged.FilterMessage(message).Len() > 0 })
				return logged.FilterMessage(message).All()[0].ContextMap()[name].(int64)
			}
			if n := field("registered tokens", "tokens"); n != 0 {
				t.Errorf("%d tokens count although only one node names them", n)
			}
			if n := field("the registry's history is read", "tokens"); n != int64(w.assets(t)) {
				t.Errorf("%d tokens are known, and the registry set %d", n, w.assets(t))
			}
			if err := in.stop(); err != nil {
				t.Fatal(err)
			}

			lacks.Store(1) // from now on nothing proves them: they are probed after their logs all the same
			w.probedAgain(t, cfg)
			if differ.Load() == 0 || lacks.Load() == 1 {
				t.Error("nobody asked for the list, or for the history")
			}
		})
	}
}

// inventedPage is the page of the registry's list that a request asks for, in a list of so many tokens that do not exist.
func inventedPage(t *testing.T, req rpctest.Message, tokens int) []byte {
	var call struct{ Data hexutil.Bytes }
	if err := json.Unmarshal(req.Params[0], &call); err != nil {
		t.Error(err)
	}
	from := int(binary.BigEndian.Uint32(call.Data[4+28:]))
	n := max(0, min(256, tokens-from))
	page := make([]byte, (n+2)*32)
	page[31] = 32
	binary.BigEndian.PutUint32(page[60:], uint32(n))
	for i := range n {
		binary.BigEndian.PutUint32(page[(2+i)*32+12:], uint32(from+i+1))
	}
	return page
}

// registryLogs begins a request for events of the registry alone.
func (w *world) registryLogs() string {
	return `"address":"` + strings.ToLower(w.market.Deployment.AssetRegistry.Hex()) + `","topics":["`
}

// assets is how many tokens the registry ever set.
func (w *world) assets(t *testing.T) int {
	t.Helper()
	abi, err := contracts.ABI("AssetRegistry")
	if err != nil {
		t.Fatal(err)
	}
	logs, err := w.chain.Client().FilterLogs(t.Context(), ethereum.FilterQuery{
		Addresses: []common.Address{w.market.Deployment.AssetRegistry}, Topics: [][]common.Hash{{abi.Events["AssetSet"].ID}},
	})
	if err != nil {
		t.Fatal(err)
	}
	all := map[common.Hash]bool{}
	for i := range logs {
		all[logs[i].Topics[1]] = true
	}
	return len(all)
}

// TestSlowHistory: the only node does not serve eth_call, and does not answer for the registry's history. Blocks come in
// all the same, and the tokens are known once it answers.
func TestSlowHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
	w.step(t, 5)
	node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
	cfg := w.config()
	cfg.RPC.Endpoints = []rpc.Endpoint{{URL: node.URL, Name: "node"}}
	in := run(t, cfg)
	in.comesTo(t, w)
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
	lacks := &lacking{methods: "eth_call"}
	var answers atomic.Bool
	node.Tells(func(rw http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_getLogs" && strings.Contains(string(req.Params[0]), w.registryLogs()) && !answers.Load() {
			<-r.Context().Done()
		}
		return lacks.tell(rw, r, req, resp)
	})
	w.step(t, 1)
	core, logged := observer.New(zapcore.InfoLevel)
	in = runLogging(t, cfg, zap.New(core))
	in.comesTo(t, w)
	const read = "the registry's history is read"
	if logged.FilterMessage(read).Len() > 0 {
		t.Fatal("the history was read before the blocks")
	}
	answers.Store(true)
	polltest.Within(t, 2*time.Minute, func() error {
		if all := logged.FilterMessage(read).All(); len(all) == 0 || all[0].ContextMap()["tokens"] != int64(w.assets(t)) {
			return fmt.Errorf("the log says %v", all)
		}
		return nil
	})
}

// TestNoCalls: the only node does not serve eth_call, serves no more of it for now, or has no state. A session that continues a topic begins
// all the same.
func TestNoCalls(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]string{
		"not served": `{"code":-32601,"message":"the method eth_call does not exist/is not available"}`,
		"throttled":  `{"code":-32005,"message":"limit exceeded"}`,
		"no state":   `{"code":-32000,"message":"missing trie node"}`,
		"no time":    `{"code":-32002,"message":"request timed out"}`,
		"no archive": `{"code":-32000,"message":"header not found"}`,
		"too big":    `{"code":-32008,"message":"Response is too big"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
			node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
			node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
				if req.Method == "eth_call" {
					resp.Result, resp.Error = nil, json.RawMessage(refusal)
				}
				return false
			})
			cfg := w.config()
			cfg.RPC.Endpoints = []rpc.Endpoint{{URL: node.URL, Name: "node"}}
			w.step(t, 5)
			for range 2 {
				in := run(t, cfg)
				w.step(t, 1)
				checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
				if err := in.stop(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestNoCallsAtTheTip: the only node does not serve eth_call. No block waits for it, neither one with a log after which a token is probed nor one at
// which tokens are due, nor does the next session.
func TestNoCallsAtTheTip(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
	lacks := &lacking{methods: "eth_call"}
	node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
	node.Tells(lacks.tell)
	cfg := w.config()
	cfg.RPC.Endpoints = []rpc.Endpoint{{URL: node.URL, Name: "node"}}
	cfg.ProbeTimeout = time.Hour
	o := newOwner(t, w, 7)
	stock, create := o.create("StockToken", o.address(), "Slow", "SLOW")
	o.mine(create)
	for session := range 2 {
		began := time.Now()
		in := run(t, cfg)
		for i := range 4 {
			o.mine(o.set(stock, i%2 == 0, contracts.LaneStock))
			checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("session %d has five blocks after %s", session, took)
		}
		if err := in.stop(); err != nil {
			t.Fatal(err)
		}
	}
	if n, request := lacks.most(); n == 0 || n > 4 { // two by each session's client
		t.Errorf("asked %d times for %.120s", n, request)
	}
}
