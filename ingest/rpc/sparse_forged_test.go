package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// invention is one block with a log that nobody else has: its header, logs and receipts fit each other, and are another
// chain's.
func invention(of *rpctest.Sparse, number uint64) rpctest.Lie {
	tell := func(resp *rpctest.Message, method string, params ...any) {
		raw := make([]json.RawMessage, len(params))
		for i := range params {
			raw[i], _ = json.Marshal(params[i])
		}
		resp.Result = json.RawMessage(of.Answer(rpctest.Message{Method: method, Params: raw}))
	}
	hash, at := of.Hash(number).Hex(), hexutil.EncodeUint64(number)
	return func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if len(req.Params) == 0 {
			return false
		}
		switch first := string(req.Params[0]); {
		case req.Method == "eth_getBlockByNumber" && first == fmt.Sprintf("%q", at):
			tell(resp, req.Method, at, false)
		case req.Method == "eth_getBlockReceipts" && first == fmt.Sprintf("%q", hash):
			tell(resp, req.Method, hash)
		case req.Method == "eth_getLogs":
			var q struct{ FromBlock, ToBlock hexutil.Uint64 }
			var logs, more []types.Log
			if json.Unmarshal(req.Params[0], &q) != nil || uint64(q.FromBlock) > number || uint64(q.ToBlock) < number || json.Unmarshal(resp.Result, &logs) != nil {
				return false
			}
			var own rpctest.Message
			var asked map[string]any
			_ = json.Unmarshal(req.Params[0], &asked)
			asked["fromBlock"], asked["toBlock"] = at, at
			tell(&own, req.Method, asked)
			if json.Unmarshal(own.Result, &more) != nil {
				return false
			}
			k := 0
			for k < len(logs) && logs[k].BlockNumber < number {
				k++
			}
			resp.Say(append(append(append([]types.Log{}, logs[:k]...), more...), logs[k:]...))
		}
		return false
	}
}

// invented is a client of a liar, which is the fastest and has made up block 105 with a log, and of honest nodes.
func invented(t *testing.T, honest int) (c *Client, chain *rpctest.Sparse, nodes []*busy, forged string) {
	t.Helper()
	other, chain := chains(t, 300, 300)
	liar := rpctest.NewLiar(t, chain.URL, 0)
	liar.Tells(invention(other, 105))
	all := []http.Handler{liar}
	for range honest {
		node := &busy{Handler: rpctest.NewLiar(t, chain.URL, 5*time.Millisecond)}
		nodes, all = append(nodes, node), append(all, node)
	}
	c = voters(t, func(cfg *Config) { cfg.Proof = ProofSparse }, all...)
	for range 3 {
		for _, e := range c.endpoints {
			if _, err := e.header(t.Context(), `"latest"`); err != nil {
				t.Fatal(err)
			}
		}
	}
	return c, chain, nodes, other.Hash(105).Hex()
}

// hasOnly checks that the blocks up to one are those of the chain.
func hasOnly(t *testing.T, c *Client, chain *rpctest.Sparse, to uint64) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	blocks, err := c.Sparse(ctx, 1, to)
	if err != nil {
		return err
	}
	logs := 0
	for i := range blocks {
		if b := &blocks[i]; b.Hash != chain.Hash(b.Number) {
			t.Errorf("block %d with %d logs is made up", b.Number, len(b.Logs))
		}
		logs += len(blocks[i].Logs)
	}
	if want := int(to / 10); logs != want {
		t.Errorf("%d logs, the chain has %d", logs, want)
	}
	return nil
}

// TestSparseInvention: the fastest endpoint makes up a block with a log within a range, whose header, logs and receipts fit
// each other, and has all other logs of the chain. Beside two honest endpoints it is outvoted and counted; beside one nobody
// can know.
func TestSparseInvention(t *testing.T) {
	c, chain, _, _ := invented(t, 2)
	for range 3 {
		for _, e := range c.endpoints[1:] {
			e.latency = time.Minute // the liar is asked first, however busy the machine is
		}
		if err := hasOnly(t, c, chain, 200); err != nil {
			t.Error(err)
		}
	}
	if c.endpoints[0].forks.n == 0 {
		t.Error("the liar was not counted")
	}
	for _, e := range c.endpoints[1:] {
		if e.forks.n > 0 {
			t.Errorf("%s was counted", e.name)
		}
	}
	c, chain, _, _ = invented(t, 1)
	if err := hasOnly(t, c, chain, 200); err != nil && !errors.Is(err, ErrSplit) {
		t.Error(err)
	}
}

// TestNobodyConfirmsHimself: only the liar answers. Its block with a log links to nothing, so it is not believed
// before the others are silent for long.
func TestNobodyConfirmsHimself(t *testing.T) {
	t.Parallel() // it waits most of the time
	for honest := range 2 {
		c, chain, nodes, forged := invented(t, honest+1)
		for _, node := range nodes {
			node.now.Store(true)
		}
		if err := hasOnly(t, c, chain, 200); err == nil || !errors.Is(err, ErrGone) && !errors.Is(err, ErrSplit) {
			t.Errorf("beside %d: block %s is made up, but: %v", honest+1, forged, err)
		}
		for _, node := range nodes {
			node.now.Store(false)
		}
	}
}

// TestSparseBesideTheDead: a single honest endpoint is believed all the same, while the headers link.
func TestSparseBesideTheDead(t *testing.T) {
	_, chain := chains(t, 1, 5000)
	dead := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	c := voters(t, func(cfg *Config) { cfg.Proof = ProofSparse }, dead, chain)
	if err := hasOnly(t, c, chain, 4500); err != nil {
		t.Error(err)
	}
}

// TestSparseLogOfAnotherBlock: a liar's log is of a block that the chain has, and fits its bloom filter. Receipts decide.
func TestSparseLogOfAnotherBlock(t *testing.T) {
	_, chain := chains(t, 1, 300)
	liar := rpctest.NewLiar(t, chain.URL, 0)
	var told atomic.Int32
	liar.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		var logs []types.Log
		if req.Method != "eth_getLogs" || json.Unmarshal(resp.Result, &logs) != nil || len(logs) < 5 {
			return false
		}
		told.Add(1)
		more := logs[3]
		more.Index++
		resp.Say(append(append(append([]types.Log{}, logs[:4]...), more), logs[4:]...))
		return false
	})
	for _, first := range []bool{true, false} {
		nodes := []http.Handler{liar, rpctest.NewLiar(t, chain.URL, 5*time.Millisecond)}
		if !first {
			nodes[0], nodes[1] = nodes[1], nodes[0]
		}
		c := voters(t, func(cfg *Config) { cfg.Proof = ProofSparse }, nodes...)
		if err := hasOnly(t, c, chain, 200); err != nil {
			t.Error(err)
		}
	}
	if told.Load() == 0 {
		t.Error("the liar was not asked")
	}
}

// TestSparseRequests: a million empty blocks cost at most 250 requests, votes on what is final included.
func TestSparseRequests(t *testing.T) {
	const blocks, ranges = 40_000, 5
	log := types.Log{Address: [20]byte{1}, Topics: []common.Hash{{9}}, Data: make([]byte, 32)}
	chain := rpctest.NewSparse(7, blocks*ranges, 10*blocks*ranges, log)
	t.Cleanup(chain.Close)
	c := voters(t, func(cfg *Config) { cfg.Proof = ProofSparse }, chain, chain)
	for n := range uint64(ranges) {
		if err := hasNone(t, c, n*blocks+1, (n+1)*blocks); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Vote(t.Context(), (n+1)*blocks, true); err != nil {
			t.Fatal(err)
		}
	}
	const most = 250*blocks*ranges/1_000_000 + 8 // and two each for the chain's ID, and for whether it has the blocks
	if n := chain.Requests.Load(); n > most {
		t.Errorf("%d requests for %d empty blocks, at most %d", n, blocks*ranges, most)
	}
	t.Logf("%d requests for %d empty blocks", chain.Requests.Load(), blocks*ranges)
}

func hasNone(t *testing.T, c *Client, from, to uint64) error {
	t.Helper()
	blocks, err := c.Sparse(t.Context(), from, to)
	if err == nil && len(blocks) != 2 {
		err = fmt.Errorf("%d blocks", len(blocks))
	}
	return err
}

// TestSparseBesideALaggard: an answer counts only if its endpoint has the blocks and has indexed their logs. Others return no logs
// for them: one such endpoint would confirm a liar that leaves logs out, and two would confirm each other.
func TestSparseBesideALaggard(t *testing.T) {
	const blocks, ends = 100, 60
	chain := rpctest.NewSparse(7, blocks, 10, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close)
	cut := func(cuts func(param string) bool, headers bool) http.Handler {
		node := rpctest.NewLiar(t, chain.URL, 0)
		node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if logs, byNumber := rpctest.Logs(req, resp); byNumber && cuts(string(req.Params[0])) {
				leaveOut(resp, logs, func(block uint64) bool { return block > ends })
			}
			if h, tag := rpctest.Header(req, resp); h != nil && headers {
				if tag == "latest" {
					resp.Result = json.RawMessage(chain.Answer(rpctest.Message{Method: req.Method, Params: []json.RawMessage{json.RawMessage(fmt.Sprintf("%q", hexutil.EncodeUint64(ends)))}}))
				} else if n, err := hexutil.DecodeUint64(tag); err == nil && n > ends {
					resp.Result = json.RawMessage("null")
				}
			}
			return false
		})
		return node
	}
	all := func(string) bool { return true }
	liar := func() http.Handler {
		return cut(func(param string) bool { return strings.Contains(param, "address") }, false) // it has them indexed
	}
	honest := func() http.Handler { return rpctest.NewLiar(t, chain.URL, 20*time.Millisecond) } // it is asked last
	for name, nodes := range map[string][]http.Handler{
		"a liar, one that is behind, one that is honest":       {liar(), cut(all, true), honest()},
		"a liar, one that has not indexed, one that is honest": {liar(), cut(all, false), honest()},
		"two that have not indexed, two that have":             {cut(all, false), cut(all, false), honest(), honest()},
		"two that have not indexed":                            {cut(all, false), cut(all, false)},
		"one that has not indexed":                             {cut(all, false)},
	} {
		t.Run(name, func(t *testing.T) {
			c := piped(t, func(cfg *Config) { cfg.Proof = ProofSparse }, nodes...)
			for range 3 {
				if err := hasOnly(t, c, chain, blocks); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// leaveOut answers without the logs of some blocks.
func leaveOut(resp *rpctest.Message, logs []map[string]any, out func(block uint64) bool) {
	resp.Say(slices.DeleteFunc(logs, func(l map[string]any) bool { return out(hexutil.MustDecodeUint64(l["blockNumber"].(string))) }))
}

// TestSparseOfOldLogs: nodes that were snap-synced have the newest receipts first, and answer as if older blocks had no logs.
func TestSparseOfOldLogs(t *testing.T) {
	const blocks, begins = 400, 200
	chain := rpctest.NewSparse(7, blocks, 10, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close)
	young := func() http.Handler {
		node := rpctest.NewLiar(t, chain.URL, 0)
		node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if logs, byNumber := rpctest.Logs(req, resp); byNumber {
				leaveOut(resp, logs, func(block uint64) bool { return block < begins })
			}
			return false
		})
		return node
	}
	whole := func() http.Handler { return rpctest.NewLiar(t, chain.URL, 20*time.Millisecond) }
	for name, nodes := range map[string][]http.Handler{
		"two young, two whole": {young(), young(), whole(), whole()},
		"two young":            {young(), young()},
		"one young, one whole": {young(), whole()},
	} {
		t.Run(name, func(t *testing.T) {
			c := piped(t, func(cfg *Config) { cfg.Proof = ProofSparse }, nodes...)
			for _, first := range []uint64{201, 101, 1, 301} {
				got, err := c.Sparse(t.Context(), first, first+99)
				with := 0
				for i := range got {
					with += min(1, len(got[i].Logs))
				}
				if err != nil || with != 10 {
					t.Errorf("from block %d: logs in %d of 10 blocks, %v", first, with, err)
				}
			}
		})
	}
}

// TestSparseBesideALimit: a node that refuses to show all logs of a block, in whatever words, is asked for its history all the same.
func TestSparseBesideALimit(t *testing.T) {
	chain := rpctest.NewSparse(7, 400, 10, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close)
	for name, refusal := range map[string]string{
		"too many results":   `{"code":-32005,"message":"query returned more than 100 results"}`,
		"too big":            `{"code":-32008,"message":"Response is too big"}`,
		"no address":         `{"code":-32701,"message":"Please specify an address in your request"}`,
		"as if it throttled": `{"code":-32005,"message":"limit exceeded"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := func() http.Handler {
				node := rpctest.NewLiar(t, chain.URL, 0)
				node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
					if req.Method == "eth_getLogs" && !strings.Contains(string(req.Params[0]), "address") {
						resp.Result, resp.Error = nil, json.RawMessage(refusal)
					}
					return false
				})
				return node
			}
			c := piped(t, func(cfg *Config) { cfg.Proof = ProofSparse }, node(), node())
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := c.Sparse(ctx, 1, 100); err != nil {
				t.Errorf("its history is not read: %v", err)
			}
		})
	}
}
