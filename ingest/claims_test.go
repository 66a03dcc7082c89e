package ingest_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/trie"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// claimant makes up blocks above the head, anew for each head. In each the registry allows a token of the lane, and receipts and all
// hashes fit.
type claimant struct {
	t      *testing.T
	w      *world
	blocks uint64
	lane   contracts.Lane
	late   string // the method that it answers for these blocks as late as it may

	waited sync.Map // requests
	mu     sync.Mutex
	above  common.Hash
	forged []*types.Header
	by     map[common.Hash]*types.Header
}

func (c *claimant) receipt(h *types.Header) *types.Receipt {
	registry, err := contracts.ABI("AssetRegistry")
	if err != nil {
		c.t.Error(err)
	}
	set, one := registry.Events["AssetSet"], big.NewInt(1)
	data, err := set.Inputs.NonIndexed().Pack(uint8(contracts.KindERC20), true, uint8(18), one, one, one, "X", "X")
	if err != nil {
		c.t.Error(err)
	}
	r := &types.Receipt{Type: types.DynamicFeeTxType, Status: 1, CumulativeGasUsed: 50_000, TxHash: common.Hash{1}, Logs: []*types.Log{{
		Address: c.w.market.Deployment.AssetRegistry, Data: data, BlockNumber: h.Number.Uint64(), BlockHash: h.Hash(), TxHash: common.Hash{1},
		Topics: []common.Hash{set.ID, common.BytesToHash(h.Number.Bytes()), common.BytesToHash([]byte{byte(c.lane)})},
	}}}
	r.Bloom = types.CreateBloom(r)
	return r
}

// claims are the blocks above a head.
func (c *claimant) claims(head *types.Header) []*types.Header {
	if c.above != head.Hash() {
		c.above, c.forged = head.Hash(), nil
		for below := head; len(c.forged) < int(c.blocks); below = c.forged[len(c.forged)-1] {
			h := types.CopyHeader(below)
			h.Number.Add(h.Number, common.Big1)
			h.ParentHash, h.Extra, h.Time = below.Hash(), []byte("forged"), below.Time+1
			r := c.receipt(h)
			h.Bloom, h.ReceiptHash = r.Bloom, types.DeriveSha(types.Receipts{r}, trie.NewStackTrie(nil))
			c.forged = append(c.forged, h)
			c.by[h.Hash()] = h
		}
	}
	return c.forged
}

func (c *claimant) tell(_ http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
	head, err := c.w.chain.Client().HeaderByNumber(r.Context(), nil)
	if err != nil {
		return false
	}
	c.mu.Lock()
	mine := c.answer(head, req, resp)
	c.mu.Unlock()
	if _, again := c.waited.LoadOrStore(r, true); mine && req.Method == c.late && !again { // once for a batch
		select {
		case <-time.After(lateAnswer):
		case <-r.Context().Done():
		}
	}
	return false
}

// answer answers a request for one of the blocks.
func (c *claimant) answer(head *types.Header, req rpctest.Message, resp *rpctest.Message) bool {
	all := c.claims(head)
	var of common.Hash
	switch req.Method {
	case "eth_getBlockByNumber":
		var tag string
		_ = json.Unmarshal(req.Params[0], &tag)
		n, err := hexutil.DecodeUint64(tag)
		if tag == "latest" {
			n = head.Number.Uint64() + c.blocks
		} else if err != nil || n <= head.Number.Uint64() || n > head.Number.Uint64()+c.blocks {
			return false
		}
		resp.Say(all[n-head.Number.Uint64()-1])
		return tag != "latest"
	case "eth_getBlockByHash", "eth_getBlockReceipts":
		_ = json.Unmarshal(req.Params[0], &of)
		h := c.by[of]
		if h == nil {
			return false
		}
		resp.Error = nil
		if req.Method == "eth_getBlockByHash" {
			resp.Say(h)
		} else {
			resp.Say(types.Receipts{c.receipt(h)})
		}
		return true
	case "eth_call":
		var at struct{ BlockHash common.Hash }
		_ = json.Unmarshal(req.Params[1], &at)
		if c.by[at.BlockHash] == nil {
			return false
		}
		resp.Error = nil
		resp.Say(hexutil.Bytes(make([]byte, 32)))
		return true
	}
	return false
}

// TestClaimsHoldNothing: one of three endpoints makes up blocks above the chain, and answers requests for their
// receipts, or for probes of their tokens, as late as possible; or tokens join with them, whose history would be read.
// Blocks keep coming in, and no history is read.
func TestClaimsHoldNothing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		blocks uint64
		lane   contracts.Lane
		late   string
	}{
		{"receipts come late", 60, contracts.LaneStock, "eth_getBlockReceipts"},
		{"tokens answer late", 12, contracts.LaneStock, "eth_call"},
		{"tokens join", 2, contracts.LaneMeme, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := lyingWorld(t)
			liar := rpctest.NewLiar(t, w.chain.HTTP(), 0)
			endpoints := []rpc.Endpoint{{URL: liar.URL, Name: "liar"}}
			var histories atomic.Int64
			for n := range 2 {
				honest := rpctest.NewLiar(t, w.chain.HTTP(), 5*time.Millisecond)
				honest.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
					if req.Method == "eth_getCode" {
						histories.Add(1)
					}
					return false
				})
				endpoints = append(endpoints, rpc.Endpoint{URL: honest.URL, WS: w.chain.WS(), Name: fmt.Sprint("honest", n)})
			}
			cfg, topic := w.lyingConfig(t, "claims", endpoints...)
			cfg.RPC.Timeout, cfg.PollBackup = 10*time.Second, 100*time.Millisecond
			in := run(t, cfg)
			checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			histories.Store(0)
			c := &claimant{t: t, w: w, blocks: test.blocks, lane: test.lane, late: test.late, by: map[common.Hash]*types.Header{}}
			liar.Tells(c.tell)
			const during, most = 20 * time.Second, 15 * time.Second // all of it, were they not bounded
			came, at, longest := uint64(0), time.Now(), time.Duration(0)
			blocks := time.NewTicker(250 * time.Millisecond)
			defer blocks.Stop()
			for began := time.Now(); time.Since(began) < during; <-blocks.C {
				w.step(t, 1)
				if n := in.Status().Verified; n != came {
					came, at = n, time.Now()
				}
				longest = max(longest, time.Since(at))
			}
			t.Logf("no block came in for %s at the longest; %d questions for code", longest, histories.Load())
			if longest > most {
				t.Errorf("no block came in for %s", longest)
			}
			if n := histories.Load(); n > 0 {
				t.Errorf("an honest endpoint was asked %d times for the code of a token", n)
			}
			liar.Tells(nil)
			w.step(t, 1)
			checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			blameless(t, in, 2)
		})
	}
}
