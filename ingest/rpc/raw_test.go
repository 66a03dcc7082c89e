package rpc

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/pause"
)

const noMethod = `null,"error":{"code":-32601,"message":"the method does not exist/is not available"}`

// counted counts the calls of a node, and those for transactions as they were signed.
func counted(n *oddly, calls, signed *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rpctest.Serve(w, r, func(m rpctest.Message) string {
			calls.Add(1)
			if strings.Contains(m.Method, "RawTransaction") {
				signed.Add(1)
			}
			return n.answer(m)
		})
	})
}

// history is a chain of blocks with a log and as many transactions as are fetched as they were signed.
func history(t *testing.T) *rpctest.Sparse {
	t.Helper()
	chain := rpctest.NewBusy(7, 240, 1, DefaultConfig().MaxRaw, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close) // it listens, which a bubble's time would wait for
	return chain
}

// checkHashes fetches the chain as history, and compares the hashes of its logs' transactions.
func checkHashes(t *testing.T, c *Client, chain *rpctest.Sparse) {
	t.Helper()
	const step = 40
	for from := uint64(1); from < chain.Head(); from += step {
		blocks, err := c.Blocks(t.Context(), from, from+step-1, chain.Head())
		if err != nil {
			t.Fatal(err)
		}
		for i := range blocks {
			for _, l := range blocks[i].Logs {
				if got, want := l.(*topics.Log).TxHash, chain.Signed(blocks[i].Number); got != want {
					t.Fatalf("block %d: the hash is %s, want %s", blocks[i].Number, got, want)
				}
			}
		}
	}
}

// TestCallsOfHistory: the only node describes all transactions of each block in its own way. Whatever it answers to
// requests for their signed form, a block of history costs 10 calls at most, and comes in.
func TestCallsOfHistory(t *testing.T) {
	chain := history(t)
	for name, signed := range map[string]func(rpctest.Message) string{
		"it has them": chain.Answer,
		"no method":   nil,
		"null":        func(rpctest.Message) string { return "null" },
		"the first alone": func(m rpctest.Message) string {
			if len(m.Params) > 1 && string(m.Params[1]) != `"0x0"` {
				return "null"
			}
			return chain.Answer(m)
		},
		"refused": func(rpctest.Message) string { return `null,"error":{"code":-32000,"message":"no"}` },
	} {
		for _, proof := range []Proof{ProofAll, ProofTip} {
			inBubble(t, name+"/"+string(proof), func(t *testing.T) {
				var calls, raw atomic.Int64
				c := piped(t, func(cfg *Config) { cfg.Proof = proof }, counted(&oddly{Sparse: chain, signed: signed}, &calls, &raw))
				checkHashes(t, c, chain)
				head := int64(chain.Head()) //nolint:gosec // of a few
				if most := 10 * head; calls.Load() > most {
					t.Errorf("%d calls for %d blocks, %d of them for what was signed", calls.Load(), head, raw.Load())
				}
				if name == "it has them" && proof == ProofAll && raw.Load() < head {
					t.Errorf("only %d transactions were asked for", raw.Load())
				}
			})
		}
	}
}

// TestDisputedHistory: if endpoints name different transactions of a block of history, the one that can prove them is
// asked to, whatever that costs.
func TestDisputedHistory(t *testing.T) {
	chain := history(t)
	for _, first := range []bool{true, false} {
		inBubble(t, map[bool]string{true: "the liar is first", false: "the liar is second"}[first], func(t *testing.T) {
			nodes := []http.Handler{&oddly{Sparse: chain, forged: common.Hash{0xbb}}, &oddly{Sparse: chain, signed: chain.Answer}}
			if !first {
				nodes[0], nodes[1] = nodes[1], nodes[0]
			}
			c := piped(t, func(cfg *Config) { cfg.Proof = ProofAll }, nodes...)
			checkHashes(t, c, chain)
		})
	}
}

// TestNullsAreRemembered: a node that has the methods and not the transactions is not asked with every block, and is asked again once it has them.
func TestNullsAreRemembered(t *testing.T) {
	chain := rpctest.NewSparse(7, 240, 1, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close)
	inBubble(t, "", func(t *testing.T) {
		var has atomic.Bool
		var calls, raw atomic.Int64
		c := piped(t, func(*Config) {}, counted(&oddly{Sparse: chain, signed: func(m rpctest.Message) string {
			switch {
			case has.Load():
				return chain.Answer(m)
			case strings.HasPrefix(m.Method, "debug"):
				return noMethod
			}
			return "null"
		}}, &calls, &raw))
		n := uint64(0)
		next := func() {
			n++
			headers, err := c.Headers(t.Context(), n, n, common.Hash{})
			if err != nil {
				t.Fatal(err)
			}
			blocks, err := c.Logs(t.Context(), headers)
			if err != nil {
				t.Fatal(err)
			}
			if got := hashOf(t, blocks); got != chain.Signed(n) {
				t.Fatalf("the hash is %s", got)
			}
			_ = pause.For(t.Context(), time.Second)
		}
		for range 120 {
			next()
		}
		if most := int64(3 * 8); raw.Load() > most { // after 0, 1, 3, … 63 s
			t.Errorf("asked %d times in 120 blocks, at most %d", raw.Load(), most)
		}
		has.Store(true)
		_ = pause.For(t.Context(), rawAgain)
		for range 5 {
			before := raw.Load()
			next()
			if raw.Load() == before {
				t.Errorf("block %d is not asked for again", n)
			}
		}
	})
}
