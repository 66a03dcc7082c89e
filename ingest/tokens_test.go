package ingest_test

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
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

// TestListsDiffer: of two nodes one leaves all tokens out of the registry's list. A session begins without the registry's history, and
// knows the tokens that the other one names.
func TestListsDiffer(t *testing.T) {
	t.Parallel()
	list := hexutil.Encode(contracts.Selector("tokens(uint256,uint256)"))
	w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
	registry := strings.ToLower(w.market.Deployment.AssetRegistry.Hex())
	var asked, differ atomic.Int64
	cfg := w.config()
	cfg.RPC.Endpoints, cfg.RPC.MaxRange = nil, 2
	for i, name := range []string{"honest", "liar"} {
		node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
		cfg.RPC.Endpoints = append(cfg.RPC.Endpoints, rpc.Endpoint{URL: node.URL, Name: name})
		node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			_, byNumber := rpctest.Logs(req, resp)
			switch {
			case byNumber && strings.Contains(string(req.Params[0]), `"topics":["`) && strings.Contains(string(req.Params[0]), registry):
				asked.Add(1)
			case i == 1 && req.Method == "eth_call" && strings.Contains(string(req.Params[0]), list):
				differ.Add(1)
				resp.Error = nil
				resp.Say(hexutil.Bytes(append(append(make([]byte, 31), 32), make([]byte, 32)...)))
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
	asked.Store(0)
	w.probedAgain(t, cfg)
	if differ.Load() == 0 {
		t.Error("nobody asked for the list")
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("%d requests for the registry's history", n)
	}
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
