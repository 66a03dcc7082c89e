package rpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics"
)

const tooBig = `null,"error":{"code":-32008,"message":"Response is too big"}`

// bigBlocks is a node that returns the receipts of no block at once. whole: it has them as the chain hashes them.
type bigBlocks struct {
	*rpctest.Sparse
	whole bool

	mu    sync.Mutex
	calls map[string]int
}

func (n *bigBlocks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rpctest.Serve(w, r, func(m rpctest.Message) string {
		n.mu.Lock()
		n.calls[m.Method]++
		n.mu.Unlock()
		switch {
		case m.Method == "eth_getBlockReceipts":
			return tooBig
		case m.Method == "debug_getRawReceipts" && !n.whole:
			return noMethod
		}
		return n.Answer(m)
	})
}

// counts are the calls so far, and how many of each method.
func (n *bigBlocks) counts() (all int, by map[string]int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, times := range n.calls {
		all += times
	}
	return all, maps.Clone(n.calls)
}

// TestCallsOfBigHistory: a node never returns all receipts of a block at once. If it has raw receipts, or another node
// returns them, a block of history costs 10 calls at most, and one at the tip 60. It used to be one for each
// transaction.
func TestCallsOfBigHistory(t *testing.T) {
	chain := rpctest.NewBusy(7, 240, 1, 62, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close)
	for _, proof := range []Proof{ProofAll, ProofTip} {
		for _, beside := range []bool{false, true} {
			for _, tip := range []bool{false, true} {
				inBubble(t, fmt.Sprintf("%s/beside another %t/tip %t", proof, beside, tip), func(t *testing.T) {
					n := &bigBlocks{Sparse: chain, whole: !beside, calls: map[string]int{}}
					nodes := []http.Handler{n}
					if beside {
						nodes = append(nodes, chain)
					}
					c := piped(t, func(cfg *Config) { cfg.Proof = proof }, nodes...)
					most := 10 * int(chain.Head()) //nolint:gosec // of a few
					if tip {
						most = 60 * int(chain.Head()) //nolint:gosec // of a few
						for at := uint64(1); at <= chain.Head(); at++ {
							checkBig(t, c, chain, at, at)
						}
					} else {
						checkHashes(t, c, chain)
					}
					if calls, by := n.counts(); calls > most {
						t.Errorf("%d calls for %d blocks, at most %d: %v", calls, chain.Head(), most, by)
					} else {
						t.Logf("%d calls for %d blocks: %v", calls, chain.Head(), by)
					}
				})
			}
		}
	}
}

func checkBig(t *testing.T, c *Client, chain *rpctest.Sparse, from, to uint64) {
	t.Helper()
	headers, err := c.Headers(t.Context(), from, to, common.Hash{})
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := c.Logs(t.Context(), headers)
	if err != nil {
		t.Fatal(err)
	}
	for i := range blocks {
		b := &blocks[i]
		if len(b.Logs) != 1 || b.Logs[0].(*topics.Log).TxHash != chain.Signed(b.Number) || b.Logs[0].(*topics.Log).Topics[0] != (common.Hash{2}) {
			t.Fatalf("block %d has %v", b.Number, b.Logs)
		}
	}
}

// TestRawReceipts: raw receipts decode to the same logs as receipts in JSON. Whatever else an endpoint returns for
// them, the block comes in by single receipts, and the endpoint is not counted as a liar.
func TestRawReceipts(t *testing.T) {
	var all types.Receipts
	for i, kind := range []uint8{types.LegacyTxType, types.AccessListTxType, types.DynamicFeeTxType, types.BlobTxType, types.SetCodeTxType} {
		r := &types.Receipt{Type: kind, Status: uint64(i % 2), CumulativeGasUsed: uint64(i+1) * 50_000, TxHash: common.Hash{9, byte(i)}, Logs: []*types.Log{}}
		for k := range i {
			l := &types.Log{Address: common.Address{byte(1 + k%2)}, Data: bytes.Repeat([]byte{byte(k)}, k*20), Topics: []common.Hash{}}
			for topic := range k + 1 {
				l.Topics = append(l.Topics, common.Hash{byte(topic), 3})
			}
			r.Logs = append(r.Logs, l)
		}
		r.Bloom = types.CreateBloom(r)
		all = append(all, r)
	}
	var h follow.Header
	h.Number, h.Hash, h.GasUsed = 4, common.Hash{4}, 250_000
	var raw []string
	var hashes []common.Hash
	index := uint(0)
	for i, r := range all {
		b, err := r.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, fmt.Sprintf("%q", hexutil.Bytes(b)))
		hashes = append(hashes, r.TxHash)
		for _, l := range r.Logs {
			l.BlockNumber, l.BlockHash, l.TxHash, l.TxIndex, l.Index = h.Number, h.Hash, r.TxHash, uint(i), index //nolint:gosec // of a few
			index++
		}
	}
	said, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	want := new(receipts)
	if err := want.decode(&scanner{b: said}); err != nil {
		t.Fatal(err)
	}
	h.Receipts = want.root()
	logs, err := want.of(&h)
	if err != nil || len(logs) != 10 {
		t.Fatalf("%d logs: %v", len(logs), err)
	}
	for name, answer := range map[string]string{
		"them":         "[" + strings.Join(raw, ",") + "]",
		"one less":     "[" + strings.Join(raw[1:], ",") + "]",
		"one more":     "[" + strings.Join(append(slices.Clone(raw), raw[0]), ",") + "]",
		"out of order": "[" + strings.Join(append(slices.Clone(raw[1:]), raw[0]), ",") + "]",
		"null":         "null", "nothing": "[]", "no hex": `["0x"]`, "half a byte": `["0x1"]`, "numbers": "[1,2]", "no method": noMethod, "too big": tooBig,
	} {
		inBubble(t, name, func(t *testing.T) {
			calls := map[string]int{}
			c := piped(t, func(*Config) {}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				rpctest.Serve(w, r, func(m rpctest.Message) string {
					calls[m.Method]++
					switch m.Method {
					case "eth_chainId":
						return `"0x7"`
					case "eth_getBlockReceipts":
						return tooBig
					case "debug_getRawReceipts":
						return answer
					case "eth_getBlockByHash":
						b, _ := json.Marshal(map[string]any{"transactions": hashes})
						return string(b)
					}
					var hash common.Hash
					_ = json.Unmarshal(m.Params[0], &hash)
					b, _ := json.Marshal(all[slices.Index(hashes, hash)])
					return string(b)
				})
			}))
			c.noBloom.Store(true)
			e, both := c.endpoints[0], newFilter([]common.Address{{1}, {2}}, nil, &c.noBloom)
			for range 2 {
				err := e.receipts(t.Context(), &both, newAttempt(), []follow.Header{h}, nil, func(_ int, got []topics.Log, n int) {
					if n != len(all) || !sameLogs(got, logs) {
						t.Errorf("%d transactions, %d logs, want %d", n, len(got), len(logs))
					}
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			each, asked := calls["eth_getTransactionReceipt"], calls["debug_getRawReceipts"]
			if name == "them" && (each > 0 || asked != 2) || name != "them" && (each != 2*len(all) || asked != 1) {
				t.Errorf("%v", calls)
			}
			synctest.Wait()
		})
	}
}

// FuzzRawReceipts: whatever an endpoint returns for receipts as the chain hashes them, a log is one of theirs.
func FuzzRawReceipts(f *testing.F) {
	r := &types.Receipt{Type: types.DynamicFeeTxType, Status: 1, CumulativeGasUsed: 50_000, Logs: []*types.Log{{Address: common.Address{1}, Topics: []common.Hash{{2}}, Data: []byte{3}}}}
	b, _ := r.MarshalBinary()
	f.Add(fmt.Appendf(nil, "[%q]", hexutil.Bytes(b)))
	f.Add([]byte(`["0xc0","0x02"]`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		r := new(receipts)
		s := &scanner{b: answer}
		if s.list("receipts", 100, func() error { return r.encodedOne(s) }) != nil {
			return
		}
		h := &follow.Header{BlockRef: topics.BlockRef{Number: 1}}
		if r.logsOf(h, make([]common.Hash, len(r.ends))) != nil {
			return
		}
		h.Receipts = r.root()
		logs, err := r.of(h)
		if err != nil || len(r.upTo) != len(r.ends) {
			t.Fatalf("%q: %d receipts of %d: %v", answer, len(r.upTo), len(r.ends), err)
		}
		for i := range logs {
			if len(logs[i].Topics) > 4 || len(logs[i].Data) > len(answer) {
				t.Errorf("%q: log %d is %v", answer, i, logs[i])
			}
		}
	})
}
