package ingest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics/polltest"
)

type rule = func(r *http.Request, asked []rpctest.Message) rpctest.Refusal

// batches refuses more than so many calls at once.
func batches(most int, refusal rpctest.Refusal) rule {
	return func(_ *http.Request, asked []rpctest.Message) rpctest.Refusal {
		if len(asked) > most {
			return refusal
		}
		return rpctest.Refusal{}
	}
}

// ranges refuses eth_getLogs of more than so many blocks.
func ranges(most uint64, say func(r *http.Request, from, to uint64) rpctest.Refusal) rule {
	return func(r *http.Request, asked []rpctest.Message) rpctest.Refusal {
		for _, m := range asked {
			var q struct{ FromBlock, ToBlock *hexutil.Uint64 }
			if m.Method == "eth_getLogs" && json.Unmarshal(m.Params[0], &q) == nil && q.ToBlock != nil && uint64(*q.ToBlock-*q.FromBlock)+1 > most {
				return say(r, uint64(*q.FromBlock), uint64(*q.ToBlock))
			}
		}
		return rpctest.Refusal{}
	}
}

// addresses refuses eth_getLogs of a number of addresses that does not fit.
func addresses(fits func(n int) bool, refusal rpctest.Refusal) rule {
	return func(_ *http.Request, asked []rpctest.Message) rpctest.Refusal {
		for _, m := range asked {
			var q struct {
				Address   []common.Address
				FromBlock *hexutil.Uint64
			}
			if m.Method == "eth_getLogs" && json.Unmarshal(m.Params[0], &q) == nil && q.FromBlock != nil && !fits(len(q.Address)) {
				return refusal
			}
		}
		return rpctest.Refusal{}
	}
}

func answered(code int, message string) rpctest.Refusal {
	return rpctest.Refusal{Body: fmt.Sprintf(`{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%q}}`, code, message)}
}

func always(refusal rpctest.Refusal) func(*http.Request, uint64, uint64) rpctest.Refusal {
	return func(*http.Request, uint64, uint64) rpctest.Refusal { return refusal }
}

// TestProviders: what providers refuse, a backfill gets past, in no more than 10 calls a block of history, and no
// request that was refused comes again as it was.
func TestProviders(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, devchain.Config{Seed: 7, SafeBlocks: 4, FinalizedBlocks: 8})
	w.step(t, 120)
	often := func(retry string) rule {
		var requests atomic.Int64
		return func(*http.Request, []rpctest.Message) rpctest.Refusal {
			if requests.Add(1)%8 == 0 {
				return rpctest.Refusal{Status: http.StatusTooManyRequests, RetryAfter: retry, Body: "slow down"}
			}
			return rpctest.Refusal{}
		}
	}
	four := func(n int) bool { return n <= 4 }
	some := func(n int) bool { return n > 0 }
	tests := []struct {
		name   string
		rule   rule
		refuse bool // it must have refused
		again  bool // a request may come again: it was not its size
		ws     bool // it is asked by WebSocket
	}{
		{"takes no batch", batches(1, answered(-32600, "batch requests are not supported")), true, false, false},
		{"a batch of 3, dRPC", batches(3, rpctest.Refusal{Status: 500, Body: `{"id":null,"jsonrpc":"2.0","error":{"code":31,"message":"Batch of more than 3 requests are not allowed on free tier, to use this feature register paid account at drpc.org"}}`}), true, false, false},
		{"a batch of 10, geth", batches(10, answered(-32600, "batch too large")), true, false, false},
		{"a batch of 10, geth by WebSocket", batches(10, answered(-32600, "batch too large")), true, false, true},
		{"a batch of 20, 413", batches(20, rpctest.Refusal{Status: http.StatusRequestEntityTooLarge, Body: "Request Entity Too Large"}), true, false, false},
		{"a batch of 50, Erigon", batches(50, answered(-32000, "batch limit 50 exceeded (can increase by --rpc.batch.limit). Requested batch of size: 100")), true, false, false},
		{"a batch of 25, in words of nobody", batches(25, rpctest.Refusal{Status: 400, Body: "bad request"}), true, false, false},
		{"ranges of 5, in words of nobody", ranges(5, always(answered(-32000, "no"))), true, false, false},
		{"ranges of 9, -32002", ranges(9, always(answered(-32002, "request timed out"))), true, false, false},
		{"ranges of 20 take for ever", ranges(20, func(r *http.Request, _, _ uint64) rpctest.Refusal {
			<-r.Context().Done()
			return rpctest.Refusal{Status: 504}
		}), true, false, false},
		{"ranges of 7 are suggested", ranges(7, func(_ *http.Request, from, _ uint64) rpctest.Refusal {
			return answered(-32005, fmt.Sprintf("query returned more than 10000 results. Try with this block range [0x%x, 0x%x].", from, from+6))
		}), true, false, false},
		{"ranges of 10, Alchemy", ranges(10, always(answered(-32600, "Under the Free tier plan, you can make eth_getLogs requests with up to a 10 block range."))), true, false, false},
		{"answers of that size", ranges(11, always(answered(-32008, "Response is too big"))), true, false, false},
		{"4 addresses", addresses(four, answered(-32602, "exceed max addresses or topics per search position")), true, false, false},
		{"4 addresses, in words of nobody", addresses(four, answered(-32602, "invalid argument 0: address array has too many entries")), true, true, false},
		{"4 addresses, HTTP 400", addresses(four, rpctest.Refusal{Status: 400, Body: "Bad Request"}), true, true, false},
		{"topics without an address, PublicNode", addresses(some, answered(-32701, "Please specify an address in your request or, to remove restrictions, order a dedicated full node here")), true, true, false},
		{"ranges of 5, limit exceeded", ranges(5, always(answered(-32005, "limit exceeded"))), true, true, false},
		{"ranges of 5, as a quota", ranges(5, always(answered(-32000, "your plan's quota for eth_getLogs is 5 blocks"))), true, true, false},
		{"ranges of 5, 429", ranges(5, always(rpctest.Refusal{Status: http.StatusTooManyRequests, Body: "slow down"})), true, true, false},
		{"ranges of 5, 402", ranges(5, always(rpctest.Refusal{Status: 402, Body: "Payment Required"})), true, true, false},
		{"ranges of 5, HTML with 200", ranges(5, always(rpctest.Refusal{Body: "<html>upstream request timeout</html>"})), true, true, false},
		{"ranges of 5, half an answer", ranges(5, always(rpctest.Refusal{Body: `{"jsonrpc":"2.0","id":1,"result":[{"addr`})), true, true, false},
		{"ranges of 5, archive", ranges(5, always(answered(-32000, "eth_getLogs of more than 5 blocks needs an archive plan"))), true, true, false},
		{"ranges of 5, not on this plan", ranges(5, always(answered(-32601, "eth_getLogs is restricted on this plan for such ranges"))), true, true, false},
		{"429", often(""), true, true, false},
		{"429 with Retry-After", often("1"), true, true, false},
	}
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			provider := rpctest.NewProvider(t, w.chain.HTTP(), test.rule)
			url := provider.URL
			if test.ws {
				url = provider.WS
			}
			cfg, topic := w.lyingConfig(t, fmt.Sprint("provider", i), rpc.Endpoint{URL: url, Name: "provider"})
			cfg.RangeBlocks = 64
			cfg.PollInterval = time.Second // a head a second, so that what is counted is the backfill
			in := run(t, cfg)
			checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			if err := in.stop(); err != nil {
				t.Fatal(err)
			}
			head, err := w.chain.Client().BlockNumber(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			calls, denied, refused, repeated := provider.Counts()
			t.Logf("%d blocks, %d calls, %d of them in the %d requests refused", head, calls, denied, refused)
			if test.refuse && refused == 0 {
				t.Error("nothing was refused")
			}
			if test.again {
				calls -= denied // it is chance which are refused, a head or a hundred headers
			}
			if calls > 10*int(head) {
				t.Errorf("%d calls for %d blocks", calls, head)
			}
			if repeated > 0 && !test.again {
				t.Errorf("%d refused requests came again as they were", repeated)
			}
		})
	}
}

// TestProvidersOfAHistory: a token that joins has a history, whose ranges shrink like the market's where a provider takes none so
// large, whatever it says of that.
func TestProvidersOfAHistory(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]rpctest.Refusal{
		"HTML":    {Body: "<html>upstream request timeout</html>"},
		"half":    {Body: `{"jsonrpc":"2.0","id":1,"result":[{"addr`},
		"archive": answered(-32000, "eth_getLogs of more than 5 blocks needs an archive plan"),
		"rate":    answered(-32005, "limit exceeded"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, meme := oldTokenOn(t, devchain.Config{Seed: 7, SafeBlocks: 4, FinalizedBlocks: 8}, 3)
			for range 60 {
				o.mine(o.give(meme, 2, 1))
			}
			provider := rpctest.NewProvider(t, o.chain.HTTP(), ranges(5, always(refusal)))
			cfg, topic := o.lyingConfig(t, "history"+name, rpc.Endpoint{URL: provider.URL, Name: "provider"})
			cfg.RangeBlocks = 64
			in := run(t, cfg)
			checkTopic(t, cfg.Kafka, topic, o.market.Deployment, o.chain.Client())
			if err := in.stop(); err != nil {
				t.Fatal(err)
			}
			if _, _, refused, _ := provider.Counts(); refused == 0 {
				t.Error("nothing was refused")
			}
		})
	}
}

// TestProvidersOfADenseHistory: of the history of a token that joins only the beginning is too much for a provider, which refuses any
// answer of more than 30 logs, in words that do not say so. That the ranges beside it come does not keep it from shrinking.
func TestProvidersOfADenseHistory(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(w http.ResponseWriter, resp *rpctest.Message) (whole bool){
		"HTML": func(w http.ResponseWriter, _ *rpctest.Message) bool {
			_, _ = io.WriteString(w, "<html>upstream request timeout</html>")
			return true
		},
		"archive": func(_ http.ResponseWriter, resp *rpctest.Message) bool {
			resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32000,"message":"eth_getLogs of so many results needs an archive plan"}`)
			return false
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, meme := denseTokenOn(t)
			token := strings.ToLower(meme.Hex())
			var refused atomic.Int64
			node := rpctest.NewLiar(t, o.chain.HTTP(), 0)
			node.Tells(func(w http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
				logs, byNumber := rpctest.Logs(req, resp)
				if !byNumber || len(logs) <= 30 || !strings.Contains(string(req.Params[0]), `"address":"`+token) {
					return false
				}
				refused.Add(1)
				return refuse(w, resp)
			})
			cfg, topic := o.lyingConfig(t, "dense"+name, rpc.Endpoint{URL: node.URL, Name: "node"})
			cfg.RangeBlocks = 64
			in := run(t, cfg)
			checkTopic(t, cfg.Kafka, topic, o.market.Deployment, o.chain.Client())
			if err := in.stop(); err != nil {
				t.Fatal(err)
			}
			if n := refused.Load(); n == 0 || n > 40 {
				t.Errorf("%d requests were refused", n)
			}
		})
	}
}

// denseTokenOn has a token whose history begins with 50 transfers in ten blocks, which 270 blocks without any follow.
func denseTokenOn(t *testing.T) (*owner, common.Address) {
	t.Helper()
	w := newWorldOn(t, devchain.Config{Seed: 7, SafeBlocks: 4, FinalizedBlocks: 8})
	w.step(t, 5)
	o := newOwner(t, w, 7)
	meme, created := o.create("TKN", o.address())
	o.mine(created, o.call(meme, "TKN", "mint", o.address(), big.NewInt(1_000)))
	for range 10 {
		var transfers []*types.DynamicFeeTx
		for i := range 5 {
			transfers = append(transfers, o.give(meme, byte(1+i), 1))
		}
		o.mine(transfers...)
	}
	for range 270 {
		o.mine()
	}
	o.mine(o.set(meme, true, contracts.LaneMeme))
	for range 12 {
		o.mine(o.give(meme, 2, 1))
	}
	return o, meme
}

// TestNoFinalizedBlock: every client says it in words of its own; nothing is final then, and blocks come in.
func TestNoFinalizedBlock(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, devchain.Config{Seed: 7, SafeBlocks: 4, FinalizedBlocks: 8})
	w.step(t, 20)
	for i, words := range []string{
		`{"code":-39001,"message":"finalized block not found"}`, `{"code":-32000,"message":"finalized block not found"}`,
		`{"code":-32001,"message":"block not found: finalized"}`, `{"code":-32602,"message":"invalid block number: finalized"}`,
		`{"code":-39001,"message":"Unknown block"}`, ``,
	} {
		node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
		node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			switch {
			case req.Method != "eth_getBlockByNumber" || !strings.Contains(string(req.Params[0]), "finalized"):
			case words == "":
				resp.Result = json.RawMessage("null")
			default:
				resp.Result, resp.Error = nil, json.RawMessage(words)
			}
			return false
		})
		cfg, topic := w.lyingConfig(t, fmt.Sprint("tag", i), rpc.Endpoint{URL: node.URL, Name: "node"})
		in := run(t, cfg)
		w.step(t, 1)
		checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
		if n := in.Status().Finalized; n > 0 {
			t.Errorf("%s: block %d is final", words, n)
		}
		if err := in.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestProvidersCapResults: a provider returns no more than so many logs at once, and one block has more. Its logs are
// taken from its receipts; without proof an error says what to do.
func TestProvidersCapResults(t *testing.T) {
	t.Parallel()
	o, meme := oldToken(t, 40)
	for _, proof := range []rpc.Proof{rpc.ProofTip, rpc.ProofAll, rpc.ProofSparse, rpc.ProofOff} {
		t.Run(string(proof), func(t *testing.T) {
			t.Parallel()
			provider := rpctest.NewLiar(t, o.chain.HTTP(), 0)
			provider.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
				if logs, byNumber := rpctest.Logs(req, resp); byNumber && len(logs) > 30 {
					resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32005,"message":"query returned more than 30 results"}`)
				}
				return false
			})
			cfg, topic := o.lyingConfig(t, "caps"+string(proof), rpc.Endpoint{URL: provider.URL, Name: "provider"})
			cfg.RPC.Proof = proof
			in := run(t, cfg)
			if proof == rpc.ProofOff {
				polltest.Until(t, "the error says what to do", func() bool {
					err := in.Status().Err
					return err != nil && strings.Contains(err.Error(), "use another --rpc-proof")
				})
				return
			}
			checkTopic(t, cfg.Kafka, topic, o.market.Deployment, o.chain.Client())
			w := *o.world
			w.kafka, w.topic = cfg.Kafka, topic
			if l := w.ledgerOf(t, meme); len(l.Shares) != 41 {
				t.Errorf("%d holders (%q), want 41", len(l.Shares), l.Fault)
			}
		})
	}
}
