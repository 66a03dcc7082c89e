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
	"github.com/lienstream/lienstream/topics/pause"
)

// oddly serves a chain, and describes transactions so that they do not have their hash, without what was signed. forged replaces the hashes of all of
// them; zero: it is honest.
type oddly struct {
	*rpctest.Sparse
	forged common.Hash
	silent bool
	signed func(rpctest.Message) string // nil: the methods are not there
}

func (n *oddly) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if n.silent {
		http.Error(w, "not today", http.StatusBadGateway)
		return
	}
	rpctest.Serve(w, r, n.answer)
}

func (n *oddly) answer(m rpctest.Message) string {
	switch {
	case strings.Contains(m.Method, "RawTransaction") && n.signed != nil:
		return n.signed(m)
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
		var block map[string]any
		_ = json.Unmarshal([]byte(n.Answer(m)), &block)
		for _, tx := range block["transactions"].([]any) {
			tx.(map[string]any)["type"] = "0x55"
			if n.forged != (common.Hash{}) {
				tx.(map[string]any)["hash"] = n.forged
			}
		}
		b, _ := json.Marshal(block)
		return string(b)
	}
	return n.Answer(m)
}

// TestUnsigned: if no endpoint has a stranger's transaction in signed form, the block comes in all the same, and is
// counted and reported. An endpoint with the signed form wins over all others. In a tie the block waits for an
// endpoint that does not answer, but not for ever.
func TestUnsigned(t *testing.T) {
	forged := common.Hash{0xbb}
	chain := rpctest.NewSparse(7, 20, 2, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}}) // it listens, which a bubble's time would wait for
	defer chain.Close()
	for _, test := range []struct {
		name  string
		nodes []string
		want  string // whose hash
	}{
		{"alone", []string{"odd"}, "odd"},
		{"alone, and lies", []string{"forges"}, "forges"}, // as with every word that nothing proves
		{"beside one that has it", []string{"odd", "signs"}, "signs"},
		{"lies beside one that has it", []string{"forges", "signs"}, "signs"},
		{"two of them", []string{"odd", "odd"}, "odd"},
		{"one of two lies", []string{"odd", "forges"}, "odd"},
		{"one of two lies, and is the first", []string{"forges", "odd"}, "forges"},
		{"one of two lies, and another one is away", []string{"forges", "odd", "silent"}, "forges"},
		{"one of three lies", []string{"forges", "odd", "odd"}, "odd"},
		{"beside one that is away for a moment", []string{"odd", "silent"}, "odd"},
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
					nodes = append(nodes, &oddly{Sparse: chain, silent: what == "silent"})
				}
			}
			c := piped(t, func(*Config) {}, nodes...)
			headers, err := c.Headers(t.Context(), 4, 4, common.Hash{})
			if err != nil {
				t.Fatal(err)
			}
			for again := range 2 {
				blocks, err := c.Logs(t.Context(), headers)
				for began := time.Now(); again == 0 && len(test.nodes) == 3 && test.want == "forges" && time.Since(began) < c.cfg.Silence; blocks, err = c.Logs(t.Context(), headers) {
					if !errors.Is(err, ErrNoProof) {
						t.Fatalf("%v", err)
					}
					_ = pause.For(t.Context(), maxRound)
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

// TestUnsignedBlocks: however many blocks have nothing that proves their hashes, they come in at once.
func TestUnsignedBlocks(t *testing.T) {
	const n = 300
	chain := rpctest.NewSparse(7, 2*n, 2, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	defer chain.Close()
	inBubble(t, "", func(t *testing.T) {
		c := piped(t, func(*Config) {}, &oddly{Sparse: chain}, &oddly{Sparse: chain})
		headers, err := c.Headers(t.Context(), 1, 2*n, common.Hash{})
		if err != nil {
			t.Fatal(err)
		}
		blocks, err := c.Logs(t.Context(), headers)
		if err != nil || len(blocks) != 2*n {
			t.Fatalf("%d blocks, %v", len(blocks), err)
		}
		if got := testutil.ToFloat64(c.metrics.unproved); got != n {
			t.Errorf("%v blocks are not proved, want %d", got, n)
		}
	})
}

// TestUnsignedBeside: beside an endpoint without usable receipts a block comes in, with the hashes that it names, or
// its proof.
func TestUnsignedBeside(t *testing.T) {
	chain := rpctest.NewSparse(7, 20, 2, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	defer chain.Close()
	for name, says := range map[string]string{
		"none":   `null,"error":{"code":-32601,"message":"the method does not exist/is not available"}`,
		"failed": `null,"error":{"code":-32603,"message":"Internal error"}`,
		"wrong":  `[]`,
	} {
		for _, proves := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s, proves %t", name, proves), func(t *testing.T) {
				odd := &oddly{Sparse: chain}
				first := &oddly{Sparse: chain}
				if proves {
					first.forged = common.Hash{0xbb}
				}
				calls := 0
				c := piped(t, func(*Config) {}, first, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					rpctest.Serve(w, r, func(m rpctest.Message) string {
						calls++
						switch {
						case m.Method == "eth_getBlockReceipts":
							return says
						case proves:
							return chain.Answer(m)
						}
						return odd.answer(m)
					})
				}))
				if got := hashWithin(t, c, 4, 10*time.Second); got != chain.Signed(4) {
					t.Errorf("the hash is %s", got)
				}
				if n := testutil.ToFloat64(c.metrics.lies.WithLabelValues("node0", lieHash)); (n > 0) != proves {
					t.Errorf("the first is counted %v times", n)
				}
				if calls > 15 {
					t.Errorf("%d calls", calls)
				}
			})
		}
	}
}

// hashWithin is hashOf for a block, which has to come in within a time.
func hashWithin(t *testing.T, c *Client, number uint64, limit time.Duration) common.Hash {
	t.Helper()
	headers, err := c.Headers(t.Context(), number, number, common.Hash{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	blocks, err := c.Logs(ctx, headers)
	if err != nil {
		t.Fatal(err)
	}
	return hashOf(t, blocks)
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

// TestAhead: transactions come with the receipts once recent blocks had wanted logs, not before, and separately if an
// endpoint refuses two calls at once, which does not reduce the batch limit.
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
