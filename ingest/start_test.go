package ingest_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// TestStartTooLate: a deployment that starts after its contracts emitted logs is refused before the first block, also if
// no endpoint has the earlier state. If none has the logs either, blocks come in, and the status reports it.
func TestStartTooLate(t *testing.T) {
	t.Parallel()
	const start = 50
	w := newWorldOn(t, devchain.Config{Seed: 7, SafeBlocks: 4, FinalizedBlocks: 8})
	w.step(t, 60)
	cfg := w.config()
	cfg.Deployment.StartBlock = start
	late := func(contract string) {
		t.Helper()
		if err := refused(t, cfg); !errors.Is(err, ingest.ErrStartBlock) || !strings.Contains(err.Error(), contract) {
			t.Errorf("a start after the market's first logs: %v", err)
		}
	}
	late(cfg.Deployment.DealVault.String())
	node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
	lacks := func(lacks func(rpctest.Message) bool) {
		node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if lacks(req) {
				resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32000,"message":"missing trie node"}`)
			}
			return false
		})
	}
	state := func(req rpctest.Message) bool { return req.Method == "eth_getCode" || req.Method == "eth_getProof" }
	cfg.RPC.Endpoints = []rpc.Endpoint{{URL: node.URL, Name: "pruned"}}
	lacks(state)
	late("")
	lacks(func(req rpctest.Message) bool {
		var f struct{ FromBlock *hexutil.Uint64 }
		return state(req) || req.Method == "eth_getLogs" && json.Unmarshal(req.Params[0], &f) == nil && f.FromBlock != nil && *f.FromBlock < start
	})
	in := run(t, cfg)
	polltest.Until(t, "blocks come in", func() bool { return in.Status().Published.Number > start })
	polltest.Until(t, "the status says that nobody knows what was before", func() bool {
		return strings.Contains(in.Status().Unchecked, "before its startBlock")
	})
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
}

// noCode are answers of nodes that say nothing of code.
var noCode = map[string]string{
	"not served":      `{"code":-32601,"message":"the method eth_getCode does not exist/is not available"}`,
	"throttled":       `{"code":-32005,"message":"limit exceeded"}`,
	"words of nobody": `{"code":-32000,"message":"state reads are a paid add-on"}`,
	"no archive":      `{"code":-32000,"message":"header not found"}`,
}

// withoutCode is a node of a chain that answers nothing else to eth_getCode.
func withoutCode(t *testing.T, w *world, refusal string) *rpctest.Liar {
	t.Helper()
	node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
	node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_getCode" {
			resp.Result, resp.Error = nil, json.RawMessage(refusal)
		}
		return false
	})
	return node
}

// TestNoCodeBeforeTheStart: the only node does not serve eth_getCode, or serves no more of it for now. The first session begins all the same, and a
// start that is too late is refused.
func TestNoCodeBeforeTheStart(t *testing.T) {
	t.Parallel()
	for name, refusal := range noCode {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
			w.step(t, 15)
			cfg := w.config()
			cfg.Deployment.StartBlock = 2 // nothing was there before
			cfg.RPC.Endpoints = []rpc.Endpoint{{URL: withoutCode(t, w, refusal).URL, Name: "node"}}
			in := run(t, cfg)
			checkTopic(t, w.kafka, w.topic, cfg.Deployment, w.chain.Client())
			if lacks := in.Status().Unchecked; lacks != "" {
				t.Errorf("it is not known whether there are logs before the start: %q", lacks)
			}
			if err := in.stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
