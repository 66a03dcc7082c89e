package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/pause"
)

// TestCallsOfABigBlock: the only node refuses receipts as too large. Whatever it answers then, it gets 60 requests in
// 12 s in the long run: for 65,536 transactions of a block with gas for fewer, for transactions that it does not have,
// or that are not the block's. One that has them is asked for all of them at once.
func TestCallsOfABigBlock(t *testing.T) {
	chain := rpctest.NewSparse(7, 20, 2, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	defer chain.Close()
	for _, test := range []struct {
		name         string
		transactions int
		receipt      string // empty: the block's
	}{
		{"more than there is gas for", maxTransactions, "null"},
		{"as many as there may be", eachFree, "null"},
		{"not the block's", eachFree, `{"status":"0x1","cumulativeGasUsed":"0x1","logsBloom":"0x` + strings.Repeat("0", 512) + `","logs":[]}`},
		{"no receipts", eachFree, `"0x"`},
		{"honest", 1, ""},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			calls := 0
			c := piped(t, func(*Config) {}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				rpctest.Serve(w, r, func(m rpctest.Message) string {
					calls++
					switch {
					case m.Method == "eth_getBlockReceipts":
						return `null,"error":{"code":-32008,"message":"response is too big"}`
					case m.Method == "debug_getRawReceipts":
						return noMethod
					case m.Method == "eth_getTransactionReceipt" && test.receipt != "":
						return test.receipt
					case m.Method == "eth_getTransactionReceipt":
						m.Params[0], _ = json.Marshal(chain.Hash(4))
						m.Method = "eth_getBlockReceipts"
						return strings.TrimSuffix(strings.TrimPrefix(chain.Answer(m), "["), "]")
					case m.Method == "eth_getBlockByHash" && string(m.Params[1]) == "false":
						hashes := make([]string, test.transactions)
						for i := range hashes {
							hashes[i] = fmt.Sprintf(`"0x%064x"`, i)
						}
						if test.receipt == "" {
							hashes[0] = fmt.Sprintf("%q", chain.Signed(4))
						}
						return `{"transactions":[` + strings.Join(hashes, ",") + `]}`
					}
					return chain.Answer(m)
				})
			}))
			headers, err := c.Headers(t.Context(), 4, 4, common.Hash{})
			if err != nil {
				t.Fatal(err)
			}
			const minutes = 4
			calls = 0
			for began := time.Now(); time.Since(began) < minutes*time.Minute; {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // as the session's pause after ErrTooBig
				_, err = c.Logs(ctx, headers)
				if err == nil {
					cancel()
					break
				}
				if !errors.Is(err, ErrTooBig) && !errors.Is(err, ErrGone) && ctx.Err() == nil {
					t.Fatal(err)
				}
				<-ctx.Done()
				cancel()
			}
			if honest := test.receipt == ""; (err == nil) != honest {
				t.Fatalf("%v", err)
			}
			if most := minutes * 60 / 12 * 60; calls > most || err == nil && calls > 7 {
				t.Errorf("%d calls in %d minutes, at most %d", calls, minutes, most)
			} else {
				t.Logf("%d calls in %d minutes, at most %d", calls, minutes, most)
			}
		})
	}
}

// TestBigBlockAgain: an honest node returns a block's receipts one by one, and fails at one of them. The rest is
// requested within seconds, and no receipt twice.
func TestBigBlockAgain(t *testing.T) {
	const n = 450
	const receipt = `{"status":"0x1","cumulativeGasUsed":"0x1","logsBloom":"0x` + "%0512d" + `","logs":[],"transactionHash":"0x%064x"}`
	all := "["
	for i := range n {
		all += fmt.Sprintf(receipt, 0, i) + ","
	}
	var r receipts
	if err := r.decode(&scanner{b: []byte(strings.TrimSuffix(all, ",") + "]")}); err != nil {
		t.Fatal(err)
	}
	h := follow.Header{GasUsed: n * 5_000, Receipts: r.root()}
	h.Number, h.Hash = 4, common.Hash{4}
	for name, fails := range map[string]string{"rate": `null,"error":{"code":-32005,"message":"rate limit exceeded"}`, "null": "null"} {
		inBubble(t, name, func(t *testing.T) {
			asked, failed := map[string]int{}, false
			c := piped(t, func(*Config) {}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				rpctest.Serve(w, r, func(m rpctest.Message) string {
					switch m.Method {
					case "eth_chainId":
						return `"0x7"`
					case "eth_getBlockReceipts":
						return `null,"error":{"code":-32008,"message":"response is too big"}`
					case "eth_getBlockByHash":
						hashes := make([]string, n)
						for i := range hashes {
							hashes[i] = fmt.Sprintf(`"0x%064x"`, i)
						}
						return `{"transactions":[` + strings.Join(hashes, ",") + `]}`
					case "debug_getRawReceipts":
						return noMethod
					}
					var hash common.Hash
					_ = json.Unmarshal(m.Params[0], &hash)
					if i := hash.Big().Uint64(); i == 350 && !failed {
						failed = true
						return fails
					}
					asked[hash.Hex()]++
					return fmt.Sprintf(receipt, 0, hash.Big())
				})
			}))
			began := time.Now()
			for {
				err := c.endpoints[0].receipts(t.Context(), &c.filter, nil, []follow.Header{h}, nil, func(int, []topics.Log, int) {})
				if err == nil {
					break
				}
				if time.Since(began) > 5*time.Second {
					t.Fatal(err)
				}
				_ = pause.For(t.Context(), 100*time.Millisecond)
			}
			again := 0
			for _, times := range asked {
				again += times - 1
			}
			if len(asked) != n || again > DefaultConfig().MaxBatch {
				t.Errorf("%d receipts were asked for, %d of them again", len(asked), again)
			}
		})
	}
}

// TestReceiptsAboveTheLimit: the receipts of each block exceed MaxBody, and the only node returns them only one by
// one. They come in.
func TestReceiptsAboveTheLimit(t *testing.T) {
	chain := rpctest.NewBusy(7, 8, 1, 62, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close)
	inBubble(t, "one by one", func(t *testing.T) {
		const most = 32 << 10
		size := len(chain.Answer(rpctest.Message{Method: "eth_getBlockReceipts", Params: []json.RawMessage{json.RawMessage(fmt.Sprintf("%q", chain.Hash(1)))}}))
		if size < most {
			t.Fatalf("a block's receipts are %d bytes", size)
		}
		c := piped(t, func(cfg *Config) { cfg.MaxBody = most }, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rpctest.Serve(w, r, func(m rpctest.Message) string {
				if m.Method == "debug_getRawReceipts" {
					return noMethod
				}
				return chain.Answer(m)
			})
		}))
		checkBig(t, c, chain, 1, chain.Head())
	})
}

// TestBigBlocksTakeTurns: a backfill fetches ranges concurrently, and each has a block whose receipts come one by one.
// All receipts of a block are held until they are proved, so these blocks come one after the other.
func TestBigBlocksTakeTurns(t *testing.T) {
	const transactions, blocks = 60, 4
	chain := rpctest.NewBusy(7, blocks, 1, transactions, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close)
	of := map[string]int{} // block of a transaction
	for n := range blocks {
		hash, _ := json.Marshal(chain.Hash(uint64(n) + 1))
		var block struct{ Transactions []string }
		_ = json.Unmarshal([]byte(chain.Answer(rpctest.Message{Method: "eth_getBlockByHash", Params: []json.RawMessage{hash, []byte("false")}})), &block)
		for _, tx := range block.Transactions {
			of[tx] = n
		}
	}
	inBubble(t, "beside each other", func(t *testing.T) {
		var mu sync.Mutex
		var left [blocks]int // receipts that were not asked for yet, of blocks that were begun
		begun := 0
		c := piped(t, func(cfg *Config) { cfg.MaxBatch = transactions / 3 }, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = pause.For(r.Context(), 100*time.Millisecond)
			rpctest.Serve(w, r, func(m rpctest.Message) string {
				switch m.Method {
				case "eth_getBlockReceipts":
					return `null,"error":{"code":-32008,"message":"response is too big"}`
				case "debug_getRawReceipts":
					return noMethod
				case "eth_getTransactionReceipt":
					var tx string
					_ = json.Unmarshal(m.Params[0], &tx)
					mu.Lock()
					defer mu.Unlock()
					n := of[tx]
					if left[n] == 0 {
						left[n] = transactions
						begun++
					}
					if left[n]--; left[n] == 0 {
						begun--
					}
					if begun > 1 {
						t.Errorf("the receipts of %d blocks are under way", begun)
					}
				}
				return chain.Answer(m)
			})
		}))
		headers, err := c.Headers(t.Context(), 1, blocks, common.Hash{})
		if err != nil {
			t.Fatal(err)
		}
		var g errgroup.Group
		for i := range headers {
			g.Go(func() error {
				got, err := c.Logs(t.Context(), headers[i:i+1])
				if err == nil && len(got[0].Logs) != 1 {
					err = fmt.Errorf("block %d has %d logs", headers[i].Number, len(got[0].Logs))
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}
