package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// oddly serves a chain, and describes transactions so that they do not have their hash, without what was signed. forged replaces these hashes; zero:
// it is honest.
type oddly struct {
	*rpctest.Sparse
	forged common.Hash
	silent bool
}

func (n *oddly) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if n.silent {
		http.Error(w, "not today", http.StatusBadGateway)
		return
	}
	rpctest.Serve(w, r, func(m rpctest.Message) string {
		switch {
		case strings.Contains(m.Method, "RawTransaction"):
			return `null,"error":{"code":-32601,"message":"the method does not exist/is not available"}`
		case m.Method == "eth_getBlockReceipts" && n.forged != (common.Hash{}):
			var receipts []map[string]any
			_ = json.Unmarshal([]byte(n.Answer(m)), &receipts)
			for _, receipt := range receipts {
				receipt["transactionHash"] = n.forged
				for _, l := range receipt["logs"].([]any) {
					l.(map[string]any)["transactionHash"] = n.forged
				}
			}
			b, _ := json.Marshal(receipts)
			return string(b)
		case m.Method == "eth_getBlockByHash" && string(m.Params[1]) == "true":
			return strings.Replace(n.Answer(m), `"type":"0x2"`, `"type":"0x55"`, 1)
		}
		return n.Answer(m)
	})
}

// TestUnsigned: where no endpoint has a stranger's transaction as it was signed, the block comes in all the same, is counted, and that is said. Nobody
// is believed beside one that has it or may have it, and not where as many say something else.
func TestUnsigned(t *testing.T) {
	forged := common.Hash{0xbb}
	chain := rpctest.NewSparse(7, 20, 2, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}}) // it listens, which a bubble's time would wait for
	defer chain.Close()
	for _, test := range []struct {
		name  string
		nodes []string
		want  string // whose hash; empty: nobody's
	}{
		{"alone", []string{"odd"}, "odd"},
		{"alone, and lies", []string{"forges"}, "forges"}, // as with every word that nothing proves
		{"beside one that has it", []string{"odd", "signs"}, "signs"},
		{"lies beside one that has it", []string{"forges", "signs"}, "signs"},
		{"two of them", []string{"odd", "odd"}, "odd"},
		{"one of two lies", []string{"odd", "forges"}, ""},
		{"one of three lies", []string{"forges", "odd", "odd"}, "odd"},
		{"beside one that is away for a moment", []string{"forges", "silent"}, ""},
		{"beside one that is silent", []string{"odd", "silent for long"}, "odd"},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			var nodes []http.Handler
			for _, what := range test.nodes {
				switch what {
				case "signs":
					nodes = append(nodes, chain)
				case "forges":
					nodes = append(nodes, &oddly{Sparse: chain, forged: forged})
				default:
					nodes = append(nodes, &oddly{Sparse: chain, silent: strings.HasPrefix(what, "silent")})
				}
			}
			c := piped(t, func(*Config) {}, nodes...)
			headers, err := c.Headers(t.Context(), 4, 4, common.Hash{})
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(test.nodes[len(test.nodes)-1], "for long") {
				for began := time.Now(); time.Since(began) < 2*c.cfg.Silence; {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					_, _ = c.Vote(ctx, 4, false)
					<-ctx.Done()
					cancel()
				}
			}
			for again := range 2 {
				var blocks []follow.Block
				blocks, err = c.Logs(t.Context(), headers)
				if test.want == "" {
					if !errors.Is(err, ErrNoProof) {
						t.Fatalf("%v", err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				want := chain.Signed(4)
				if test.want == "forges" {
					want = forged
				}
				if got := hashOf(t, blocks); got != want {
					t.Errorf("the hash is %s, want %s", got, want)
				}
				unproved := 0.0
				if test.want != "signs" {
					unproved = 1
				}
				if n := testutil.ToFloat64(c.metrics.unproved); n != unproved || (n == 0) != (c.Unsigned() == "") {
					t.Errorf("round %d: %v blocks are not proved, want %v: %q", again, n, unproved, c.Unsigned())
				}
			}
		})
	}
}

// TestUnsignedBlocks: two endpoints that have nothing as it was signed are asked twice for many blocks, and not twice for each.
func TestUnsignedBlocks(t *testing.T) {
	chain := rpctest.NewSparse(7, 20, 2, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	defer chain.Close()
	inBubble(t, "", func(t *testing.T) {
		c := piped(t, func(*Config) {}, &oddly{Sparse: chain}, &oddly{Sparse: chain})
		headers, err := c.Headers(t.Context(), 1, 20, common.Hash{})
		if err != nil {
			t.Fatal(err)
		}
		blocks, err := c.Logs(t.Context(), headers)
		if err != nil || len(blocks) != 20 {
			t.Fatalf("%d blocks, %v", len(blocks), err)
		}
		if n := testutil.ToFloat64(c.metrics.unproved); n != 10 {
			t.Errorf("%v blocks are not proved, want 10", n)
		}
	})
}

// hashOf is that of the transaction of the only log.
func hashOf(t *testing.T, blocks []follow.Block) (hash common.Hash) {
	t.Helper()
	n := 0
	for i := range blocks {
		for _, l := range blocks[i].Logs {
			n, hash = n+1, l.(*topics.Log).TxHash
		}
	}
	if n != 1 {
		t.Fatalf("%d logs", n)
	}
	return hash
}

// TestAhead: transactions come with the receipts once blocks that may concern us did, not before, and apart where an endpoint does not take
// two calls at once, which says nothing of how many others it takes.
func TestAhead(t *testing.T) {
	chain := rpctest.NewSparse(7, 200, 2, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	defer chain.Close()
	for _, refuses := range []bool{false, true} {
		inBubble(t, fmt.Sprint("refuses ", refuses), func(t *testing.T) {
			requests, calls := 0, 0
			c := piped(t, func(*Config) {}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests++
				large, all := 0, 0
				rpctest.Serve(w, r, func(m rpctest.Message) string {
					calls++
					all++
					if m.Method == "eth_getBlockReceipts" || m.Method == "eth_getBlockByHash" {
						large++
					}
					if refuses && large > 1 {
						return `null,"error":{"code":-32008,"message":"response is too big"}`
					}
					return chain.Answer(m)
				})
			}))
			took := func(n uint64) (int, int) {
				t.Helper()
				headers, err := c.Headers(t.Context(), n, n, common.Hash{})
				if err != nil {
					t.Fatal(err)
				}
				requests, calls = 0, 0
				if _, err := c.Logs(t.Context(), headers); err != nil {
					t.Fatal(err)
				}
				return requests, calls
			}
			if r, n := took(2); r != 2 || n != 2 {
				t.Errorf("the first takes %d requests of %d calls", r, n)
			}
			for n := uint64(4); n <= 16; n += 2 {
				took(n)
			}
			want := 1
			if refuses {
				want = 2
			}
			if r, n := took(18); r != want || n != 2 {
				t.Errorf("the ninth takes %d requests of %d calls, want %d of 2", r, n, want)
			}
			if n := c.endpoints[0].limits.batch.now(); n != DefaultConfig().MaxBatch {
				t.Errorf("batches have %d calls from now on", n)
			}
		})
	}
}
