package ingest_test

import (
	"encoding/json"
	"math/big"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// TestFinalizedOnAnotherBranch: the only node calls a block final that is not the ingested one of that number, as
// after a switch to another chain of which it has no head yet. Nothing becomes final until the node names an ingested
// block.
func TestFinalizedOnAnotherBranch(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, devchain.Config{Seed: 7, SafeBlocks: 4, FinalizedBlocks: 8})
	w.step(t, 60)
	head, err := w.chain.Client().BlockNumber(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	node, honest := otherBranch(t, w, head-20, &asked)
	cfg, _ := w.lyingConfig(t, "branch", rpc.Endpoint{URL: node.URL, Name: "node"})
	in := run(t, cfg)
	polltest.Until(t, "the node has been asked again with the block there", func() bool {
		w.step(t, 1)
		return in.Status().Published.Number > head && asked.Load() > 8
	})
	if n := in.Status().Finalized; n >= head-20 {
		t.Errorf("block %d is final", n)
	}
	honest.Store(true)
	polltest.Until(t, "blocks become final again", func() bool {
		w.step(t, 1)
		return in.Status().Finalized > head-20
	})
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
}

// TestStartOnAnotherBranch: a session begins while the only node calls a block final that differs from the topic's.
// Blocks come in.
func TestStartOnAnotherBranch(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, devchain.Config{Seed: 7, SafeBlocks: 4, FinalizedBlocks: 8})
	w.step(t, 20)
	in := run(t, w.config())
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
	head, err := w.chain.Client().BlockNumber(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	node, _ := otherBranch(t, w, head, &asked)
	cfg := w.config()
	cfg.RPC.Endpoints = []rpc.Endpoint{{URL: node.URL, Name: "node"}}
	in = run(t, cfg)
	w.step(t, 2)
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	if asked.Load() == 0 {
		t.Error("it was not asked what is final")
	}
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
}

// otherBranch is a node whose finalized block, until it is honest, is another one of that number than it has.
func otherBranch(t *testing.T, w *world, number uint64, asked *atomic.Int64) (node *rpctest.Liar, honest *atomic.Bool) {
	t.Helper()
	other, err := w.chain.Client().HeaderByNumber(t.Context(), new(big.Int).SetUint64(number))
	if err != nil {
		t.Fatal(err)
	}
	other.Extra = []byte("another branch")
	raw, err := json.Marshal(other)
	if err != nil {
		t.Fatal(err)
	}
	node, honest = rpctest.NewLiar(t, w.chain.HTTP(), 0), &atomic.Bool{}
	node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if h, tag := rpctest.Header(req, resp); h != nil && tag == "finalized" && !honest.Load() {
			asked.Add(1)
			if err := json.Unmarshal(raw, &h); err != nil {
				t.Error(err)
			}
			resp.Say(h)
		}
		return false
	})
	return node, honest
}
