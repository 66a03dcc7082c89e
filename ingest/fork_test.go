package ingest_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// forger makes up a chain from a block on: empty blocks that hash and link right.
type forger struct {
	t    *testing.T
	w    *world
	from uint64

	mu     sync.Mutex
	forged map[uint64]*types.Header
}

// header is a forged header; it is made from the chain's own.
func (f *forger) header(number uint64) *types.Header {
	if h := f.forged[number]; h != nil {
		return h
	}
	h, err := f.w.chain.Client().HeaderByNumber(f.t.Context(), new(big.Int).SetUint64(number))
	if err != nil {
		return nil
	}
	if number > f.from {
		below := f.header(number - 1)
		if below == nil {
			return nil
		}
		h.ParentHash = below.Hash()
	}
	h.Extra, h.Bloom, h.ReceiptHash = []byte("forged"), types.Bloom{}, types.EmptyReceiptsHash
	f.forged[number] = h
	return h
}

func (f *forger) tell(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	var h types.Header
	switch m, _ := rpctest.Header(req, resp); {
	case m != nil && json.Unmarshal(resp.Result, &h) == nil && h.Number.Uint64() >= f.from:
		if forged := f.header(h.Number.Uint64()); forged != nil {
			resp.Say(forged)
		}
	case req.Method == "eth_getLogs":
		resp.Say([]any{})
	}
	return false
}

// TestForgedChain: the fastest endpoint has a chain of its own, whose headers hash and link right and whose blocks are
// empty. Beside two honest endpoints it is outvoted; beside one nothing comes in until it stops. Below the tip that is so
// by default, and up to the tip with --rpc-confirm=2.
func TestForgedChain(t *testing.T) {
	for _, test := range []struct {
		name    string
		honest  int
		confirm int
		atTip   bool
	}{
		{"history, beside one", 1, 0, false},
		{"history, beside two", 2, 0, false},
		{"tip, beside one", 1, 2, true},
		{"tip, beside two", 2, 2, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := lyingWorld(t)
			f := &forger{t: t, w: w, from: 20, forged: map[uint64]*types.Header{}}
			liar := rpctest.NewLiar(t, w.chain.HTTP(), 0)
			endpoints := []rpc.Endpoint{{URL: liar.URL, Name: "liar"}}
			for i := range test.honest {
				endpoints = append(endpoints, rpc.Endpoint{URL: rpctest.NewLiar(t, w.chain.HTTP(), 10*time.Millisecond).URL, Name: fmt.Sprint("honest", i)})
			}
			cfg, topic := w.lyingConfig(t, "forged", endpoints...)
			cfg.RPC.Confirm = test.confirm
			check := func() {
				t.Helper()
				if reverts := checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client()); reverts > 0 {
					t.Errorf("%d forged blocks were published", reverts)
				}
			}
			if !test.atTip {
				liar.Tells(f.tell)
			}
			in := run(t, cfg)
			if test.atTip {
				check()
				head, err := w.chain.Client().BlockNumber(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				f.from = head + 1
				liar.Tells(f.tell)
			}
			lie := "fork"
			if test.honest == 1 {
				lie = "disagreement"
			}
			for began := time.Now(); count(t, in.reg, "liar", lie) == 0; {
				if time.Since(began) > time.Minute {
					t.Fatal("the liar was never counted")
				}
				w.step(t, 1)
				<-time.After(100 * time.Millisecond)
			}
			if test.honest == 1 {
				liar.Tells(nil)
			}
			check()
		})
	}
}
