package ingest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// besideLiar are two honest nodes and one that says that contracts have code and a log, none of which proves accounts.
// The log is in the block of that number and hash.
func besideLiar(t *testing.T, w *world, block uint64, hash common.Hash) (all []rpc.Endpoint) {
	t.Helper()
	lacks := &lacking{methods: "eth_getProof"}
	for _, name := range []string{"honest", "honest2", "liar"} {
		node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
		all = append(all, rpc.Endpoint{URL: node.URL, Name: name})
		node.Tells(func(rw http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if name == "liar" {
				inventLog(req, resp, block, hash)
			}
			return lacks.tell(rw, r, req, resp)
		})
	}
	return all
}

// inventLog answers that contracts have code, and adds a log of the first contract that is asked for.
func inventLog(req rpctest.Message, resp *rpctest.Message, block uint64, hash common.Hash) {
	switch req.Method {
	case "eth_getCode":
		resp.Error = nil
		resp.Say("0x60")
	case "eth_getLogs":
		var q struct {
			FromBlock, ToBlock *hexutil.Uint64
			Address            []common.Address
		}
		if json.Unmarshal(req.Params[0], &q) != nil || q.ToBlock == nil || uint64(*q.FromBlock) > block || uint64(*q.ToBlock) < block || len(q.Address) == 0 {
			return
		}
		any9 := common.Hash{9}.Hex()
		resp.Error = nil
		resp.Say([]any{map[string]any{
			"address": q.Address[0], "topics": []string{any9}, "data": "0x", "blockNumber": hexutil.Uint64(block), "blockHash": hash,
			"transactionHash": any9, "transactionIndex": "0x0", "logIndex": "0x0", "removed": false,
		}})
	}
}

func (w *world) hashOf(t *testing.T, block uint64) common.Hash {
	t.Helper()
	h, err := w.chain.Client().HeaderByNumber(t.Context(), new(big.Int).SetUint64(block))
	if err != nil {
		t.Fatal(err)
	}
	return h.Hash()
}

// TestLiarBeforeTheStart: beside two honest nodes one makes up a log before the start, in a block of the chain or in
// none. Blocks come in, the start counts as checked, and the liar is counted.
func TestLiarBeforeTheStart(t *testing.T) {
	t.Parallel()
	for _, onChain := range []bool{false, true} {
		t.Run(fmt.Sprint("in a block of the chain ", onChain), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
			w.step(t, 10)
			hash := common.Hash{9}
			if onChain {
				hash = w.hashOf(t, 1)
			}
			cfg := w.config()
			cfg.Deployment.StartBlock = 2
			cfg.RPC.Endpoints = besideLiar(t, w, 1, hash)
			in := run(t, cfg)
			in.comesTo(t, w)
			if lacks := in.Status().Unchecked; lacks != "" {
				t.Errorf("the status says %q", lacks)
			}
			if n := counted(t, in.reg, "liar", "made_up"); (n > 0) != onChain {
				t.Errorf("the liar was counted %v times", n)
			}
			if err := in.stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// comesTo waits until the newest block is in the topic. The ingester must not end before.
func (in *running) comesTo(t *testing.T, w *world) {
	t.Helper()
	head := w.head(t)
	polltest.Within(t, slowness*time.Minute, func() error {
		select {
		case <-in.done:
			t.Fatalf("it ends: %v", in.stop())
		default:
		}
		if n := in.Status().Published.Number; n < head {
			return fmt.Errorf("at block %d of %d", n, head)
		}
		return nil
	})
}

// TestLiarOnAddedContracts: contracts are added that do not exist yet, and beside two honest nodes one makes up code and
// a log of theirs. Blocks come in.
func TestLiarOnAddedContracts(t *testing.T) {
	t.Parallel()
	w, cfg := withoutTokens(t, 10)
	cfg.Deployment = w.market.Deployment
	for i, a := range []*common.Address{
		&cfg.Deployment.EpochController, &cfg.Deployment.RewardDistributor, &cfg.Deployment.LiquidityStaking, &cfg.Deployment.Burner,
	} {
		*a = common.BytesToAddress([]byte{0x99, byte(i + 1)})
	}
	cfg.RPC.Endpoints = besideLiar(t, w, 3, w.hashOf(t, 3))
	in := run(t, cfg)
	w.step(t, 2)
	in.comesTo(t, w)
	if lacks := in.Status().Unchecked; lacks != "" {
		t.Errorf("the status says %q", lacks)
	}
}

// TestUncheckedLogs: the only node returns logs that the topic would lack, and no longer has the receipts that would prove
// them. Blocks come in, and the status and the topic say what is not known, also after a restart. Once the receipts
// are back, the next session ends.
func TestUncheckedLogs(t *testing.T) {
	t.Parallel()
	const start = 50
	early := newWorldOn(t, devchain.Config{Seed: 7, SafeBlocks: 4, FinalizedBlocks: 8})
	early.step(t, 60)
	late := early.config()
	late.Deployment.StartBlock = start

	added, more := withoutTokens(t, 20)
	more.Deployment = added.market.Deployment
	for name, test := range map[string]struct {
		w    *world
		cfg  ingest.Config
		upTo uint64
		err  error
		says string
	}{
		"before the start":   {early, late, start - 1, ingest.ErrStartBlock, "before its startBlock"},
		"of added contracts": {added, more, added.head(t), ingest.ErrOtherFilter, more.Deployment.LiquidityStaking.Hex()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cfg := test.w, test.cfg
			pruned := map[string]bool{}
			for n := range test.upTo + 1 {
				pruned[w.hashOf(t, n).Hex()] = true
			}
			node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
			cfg.RPC.Endpoints = []rpc.Endpoint{{URL: node.URL, Name: "node"}}
			prunes := func(receipts bool) {
				node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
					hash := ""
					if len(req.Params) > 0 {
						_ = json.Unmarshal(req.Params[0], &hash)
					}
					if req.Method == "eth_getCode" || req.Method == "eth_getProof" || receipts && req.Method == "eth_getBlockReceipts" && pruned[hash] {
						resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32000,"message":"missing trie node"}`)
					}
					return false
				})
			}
			prunes(true)
			for range 2 {
				in := run(t, cfg)
				w.step(t, 3)
				in.comesTo(t, w)
				polltest.Until(t, "the topic says it", func() bool { return strings.Contains(w.unproved(t, w.kafka, w.topic), test.says) })
				if says := in.Status().Unchecked; !strings.Contains(says, test.says) {
					t.Errorf("the status says %q", says)
				}
				if err := in.stop(); err != nil {
					t.Fatal(err)
				}
			}
			prunes(false)
			if err := refused(t, cfg); !errors.Is(err, test.err) {
				t.Errorf("with receipts it ends with %v", err)
			}
		})
	}
}

// hideBefore makes a node refuse what would show whether there are logs before a block.
func hideBefore(node *rpctest.Liar, block uint64, refusal string) {
	node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		var q struct { // not those for one token's history
			FromBlock *hexutil.Uint64
			Address   []common.Address
		}
		before := req.Method == "eth_getLogs" && json.Unmarshal(req.Params[0], &q) == nil && q.FromBlock != nil && uint64(*q.FromBlock) < block
		if before || req.Method == "eth_getCode" {
			resp.Result, resp.Error = nil, json.RawMessage(refusal)
		}
		return false
	})
}

// TestCheckedAgain: at the first session the only node answers nothing that shows whether there are logs before the
// start. At the next one it does, and nothing is unknown any more.
func TestCheckedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
	w.step(t, 10)
	cfg := w.config()
	cfg.Deployment.StartBlock = 2
	node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
	cfg.RPC.Endpoints = []rpc.Endpoint{{URL: node.URL, Name: "node"}}
	hideBefore(node, 2, `{"code":-32000,"message":"missing trie node"}`)
	in := run(t, cfg)
	in.comesTo(t, w)
	if in.Status().Unchecked == "" {
		t.Error("the status does not say that logs before the start are unknown")
	}
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
	node.Tells(nil)
	in = run(t, cfg)
	w.step(t, 2)
	in.comesTo(t, w)
	polltest.Until(t, "nothing is unknown any more", func() bool { return in.Status().Unchecked == "" })
	w.step(t, 1)
	in.comesTo(t, w)
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
	if says := w.says(t, w.kafka, w.topic); says != "" {
		t.Errorf("the topic says %q", says)
	}
}

func (w *world) head(t *testing.T) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n, err := w.chain.Client().BlockNumber(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestOutageAtTheFirstStart: the only node is out of order while a first start looks for logs before its startBlock, which is too
// late. Blocks come in, and status and topic say that it is not known; the next session, with the node whole, ends.
func TestOutageAtTheFirstStart(t *testing.T) {
	t.Parallel()
	const start = 50
	w := newWorldOn(t, devchain.Config{Seed: 7, SafeBlocks: 4, FinalizedBlocks: 8})
	w.step(t, 60)
	cfg := w.config()
	cfg.Deployment.StartBlock = start
	cfg.Standby, cfg.TakeoverAfter, cfg.Heartbeat = true, 3*time.Second, time.Second // it looks for a third of that
	node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
	cfg.RPC.Endpoints = []rpc.Endpoint{{URL: node.URL, Name: "node"}}
	hideBefore(node, start, `{"code":-32603,"message":"internal error"}`)
	in := run(t, cfg)
	in.comesTo(t, w)
	polltest.Until(t, "the topic says it", func() bool { return strings.Contains(w.unproved(t, w.kafka, w.topic), "before its startBlock") })
	if says := in.Status().Unchecked; !strings.Contains(says, "before its startBlock") {
		t.Errorf("the status says %q", says)
	}
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
	node.Tells(nil)
	if err := refused(t, cfg); !errors.Is(err, ingest.ErrStartBlock) {
		t.Errorf("with the node whole it ends with %v", err)
	}
}
