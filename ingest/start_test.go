package ingest_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// TestStartTooLate: a deployment that starts after its contracts have emitted is refused before the first block. Where no endpoint knows
// what was there before, blocks come in.
func TestStartTooLate(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, devchain.Config{Seed: 7, SafeBlocks: 4, FinalizedBlocks: 8})
	w.step(t, 60)
	cfg := w.config()
	cfg.Deployment.StartBlock = 50
	if err := refused(t, cfg); !errors.Is(err, ingest.ErrStartBlock) || !strings.Contains(err.Error(), cfg.Deployment.DealVault.String()) {
		t.Errorf("a start after the market's first logs: %v", err)
	}
	pruned := rpctest.NewLiar(t, w.chain.HTTP(), 0)
	pruned.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_getCode" || req.Method == "eth_getProof" {
			resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32000,"message":"missing trie node"}`)
		}
		return false
	})
	cfg.RPC.Endpoints = []rpc.Endpoint{{URL: pruned.URL, Name: "pruned"}}
	in := run(t, cfg)
	polltest.Until(t, "blocks come in", func() bool { return in.Status().Published.Number > 50 })
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
}
