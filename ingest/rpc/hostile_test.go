package rpc

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics"
)

// TestHostileAnswers: whatever a node answers in place of a header or of logs, the request ends in time, holds no more
// than the limit, and nothing of it is believed.
func TestHostileAnswers(t *testing.T) {
	chain := rpctest.NewSparse(7, 20, 2, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close)
	const most = 1 << 20
	head := &types.Header{Number: common.Big0, Difficulty: common.Big0, UncleHash: types.EmptyUncleHash, TxHash: types.EmptyTxsHash, ReceiptHash: types.EmptyReceiptsHash}
	numbered := func(n string) string { // the hash is that of its fields
		h := types.CopyHeader(head)
		h.Number.SetString(n, 0)
		b, _ := json.Marshal(h)
		return string(b)
	}
	result := func(result string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			rpctest.Serve(w, r, func(rpctest.Message) string { return result })
		}
	}
	logs := func(change func(logs []map[string]any) []map[string]any) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			rpctest.Serve(w, r, func(m rpctest.Message) string {
				var all []map[string]any
				_ = json.Unmarshal([]byte(chain.Answer(m)), &all)
				b, _ := json.Marshal(change(all))
				return string(b)
			})
		}
	}
	var header map[string]any
	_ = json.Unmarshal([]byte(chain.Answer(rpctest.Message{Method: "eth_getBlockByNumber", Params: []json.RawMessage{json.RawMessage(`"0x4"`)}})), &header)
	delete(header, "logsBloom")
	bloomless, _ := json.Marshal(header)
	for _, test := range []struct {
		name   string
		logs   bool // it is asked for these
		answer http.HandlerFunc
		want   string
	}{
		{"a gigabyte, compressed", false, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			for part := make([]byte, 1<<20); ; {
				if _, err := z.Write(part); err != nil {
					return
				}
			}
		}, errTooBig.Error()},
		{"a byte a second", false, func(w http.ResponseWriter, r *http.Request) {
			for tick := time.NewTicker(time.Second); ; {
				if _, err := w.Write([]byte(" ")); err != nil || http.NewResponseController(w).Flush() != nil {
					return
				}
				select {
				case <-tick.C:
				case <-r.Context().Done():
					return
				}
			}
		}, "deadline exceeded"},
		{"no bloom filter", false, result(string(bloomless)), "logsBloom"},
		{"block 2^63", false, result(numbered("0x8000000000000000")), "wrong_block"},
		{"block 2^64-1", false, result(numbered("0xffffffffffffffff")), "wrong_block"},
		{"block 2^64", false, result(numbered("0x10000000000000000")), "number"},
		{"logs of another address", true, logs(func(all []map[string]any) []map[string]any {
			all[1]["address"] = common.Address{9}
			return all
		}), "does not match the filter"},
		{"two logs of one index", true, logs(func(all []map[string]any) []map[string]any { return append(all[:1:1], all...) }), "order"},
		{"a log of block 2^63", true, logs(func(all []map[string]any) []map[string]any {
			all[len(all)-1]["blockNumber"] = "0x8000000000000000"
			return all
		}), "out_of_range"},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			c := piped(t, func(cfg *Config) { cfg.MaxBody = most }, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { test.answer(w, r) }))
			e := c.endpoints[0]
			e.proved = true
			began := time.Now()
			var err error
			if test.logs {
				var headers []follow.Header
				for n := uint64(2); n <= 20; n++ {
					h := follow.Header{Bloom: types.CreateBloom(&types.Receipt{Logs: []*types.Log{{Address: common.Address{1}}}})}
					h.Number, h.Hash = n, chain.Hash(n)
					headers = append(headers, h)
				}
				logs, _, failed := c.ask(t.Context(), e, &c.filter, 2, 20)
				if err = failed; err == nil {
					err = c.filter.match(headers, logs)
				}
			} else {
				err = e.headers(t.Context(), []uint64{4}, make([]follow.Header, 1))
			}
			if err == nil || !strings.Contains(fmt.Sprint(err), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if took := time.Since(began); took > DefaultConfig().Timeout {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// TestRedirects: a node that redirects requests counts as failed, and no request goes elsewhere.
func TestRedirects(t *testing.T) {
	heard := 0
	elsewhere := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard++
		rpctest.Serve(w, r, func(rpctest.Message) string { return `"0x7"` })
	})
	for _, status := range []int{http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		inBubble(t, fmt.Sprint(status), func(t *testing.T) {
			c := piped(t, func(*Config) {}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://node1/", status)
			}), elsewhere)
			if err := c.endpoints[0].prove(t.Context()); err == nil || heard > 0 {
				t.Errorf("%v, the other one has heard of %d requests", err, heard)
			}
		})
	}
}

// TestHighestHead: beside an honest node, another one claims the highest possible block number. No such head is
// believed, and only the liar is counted.
func TestHighestHead(t *testing.T) {
	chain := rpctest.NewSparse(7, 5000, 2, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close)
	const verified = 10
	for _, number := range []uint64{1 << 30, math.MaxUint64 - maxJump, math.MaxUint64} {
		h := &types.Header{Number: new(big.Int).SetUint64(number), Difficulty: common.Big0, UncleHash: types.EmptyUncleHash, TxHash: types.EmptyTxsHash, ReceiptHash: types.EmptyReceiptsHash}
		says, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		inBubble(t, fmt.Sprint(number), func(t *testing.T) {
			liar := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				rpctest.Serve(w, r, func(m rpctest.Message) string {
					if m.Method == "eth_getBlockByNumber" && strings.Contains(string(m.Params[0]), "latest") {
						return string(says)
					}
					return chain.Answer(m)
				})
			})
			c := piped(t, func(*Config) {}, chain, liar)
			for range 6 {
				if a, err := c.Head(t.Context(), verified); err != nil || a.Number > chain.Head() {
					t.Errorf("head %d of a chain of %d blocks: %v", a.Number, chain.Head(), err)
				}
				<-time.After(time.Second)
			}
			c.announce(c.endpoints[1], follow.Header{BlockRef: topics.BlockRef{Number: number, Hash: h.Hash()}})
			if top := c.top(nil); top > chain.Head() {
				t.Errorf("block %d counts as one that somebody has", top)
			}
			if c.Plausible(number, verified) || !c.Plausible(chain.Head(), verified) {
				t.Error("what is plausible")
			}
			lies := func(e *endpoint) float64 {
				return testutil.ToFloat64(c.metrics.lies.WithLabelValues(e.name, "inflated_head"))
			}
			if c.endpoints[0].doubted() || lies(c.endpoints[0]) > 0 {
				t.Error("the honest one is doubted")
			}
		})
	}
}
