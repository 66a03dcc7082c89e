package rpc

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics"
)

// TestChainWithoutBlooms: hashes and roots of a chain hold, and its bloom filters are empty. The survey of the
// endpoints detects and reports that; from then on the logs of every block come in. One endpoint alone cannot cause
// it.
func TestChainWithoutBlooms(t *testing.T) {
	newChain := func(noBloom bool) *rpctest.Sparse {
		chain := rpctest.NewSparse(7, 20, 2, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
		t.Cleanup(chain.Close)
		if noBloom {
			chain.NoBloom()
		}
		return chain
	}
	chain, without := newChain(false), newChain(true)
	for _, test := range []struct {
		name          string
		nodes         []*rpctest.Sparse
		set           bool // by the operator
		before, after int  // logs of a block
		says          bool
	}{
		{"with", []*rpctest.Sparse{chain}, false, 1, 1, false},
		{"without", []*rpctest.Sparse{without}, false, 1, 1, true},
		{"without, two", []*rpctest.Sparse{without, without}, false, 1, 1, true},
		{"without, as is known", []*rpctest.Sparse{without}, true, 1, 1, false},
		{"beside one who makes blocks up", []*rpctest.Sparse{chain, without}, false, 1, 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.ChainID, cfg.Addresses, cfg.NoBloom = 7, []common.Address{{1}}, test.set
			for i, node := range test.nodes {
				cfg.Endpoints = append(cfg.Endpoints, Endpoint{URL: node.URL + "/" + string(rune('a'+i))})
			}
			c, err := New(cfg, zap.NewNop(), prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			logs := func() int {
				t.Helper()
				h, err := c.endpoints[0].header(t.Context(), `"0x4"`)
				if err != nil {
					t.Fatal(err)
				}
				got, err := c.proved(t.Context(), c.wanted([]follow.Header{h}))
				if err != nil {
					t.Fatal(err)
				}
				return len(got)
			}
			if n := logs(); n != test.before {
				t.Errorf("%d logs, want %d", n, test.before)
			}
			for range 2 { // sessions
				c.Survey(t.Context())
				if said := c.Bloomless(); strings.Contains(said, "--rpc-no-bloom") != test.says {
					t.Errorf("it says %q", said)
				}
			}
			if n := logs(); n != test.after {
				t.Errorf("%d logs after the survey, want %d", n, test.after)
			}
			want := 0.0
			if test.set || test.says {
				want = 1
			}
			if got := testutil.ToFloat64(c.metrics.noBloom); got != want {
				t.Errorf("the gauge is %v, want %v", got, want)
			}
		})
	}
}

// TestNoBloomUnknown: a chain has no bloom filters, and its newest block no log, when a session begins. The survey finds it out by the blocks below; where
// these have none either, the first block with a log does, at the tip and in history, also where the only node leaves its logs out there.
func TestNoBloomUnknown(t *testing.T) {
	log := types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}}
	recent, before := rpctest.NewSparse(7, 21, 2, log), rpctest.NewSparse(7, 31, 20, log)
	for _, chain := range []*rpctest.Sparse{recent, before} {
		t.Cleanup(chain.Close)
		chain.NoBloom()
	}
	omits := rpctest.NewLiar(t, before.URL, 0)
	omits.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if _, byNumber := rpctest.Logs(req, resp); byNumber {
			resp.Say([]any{})
		}
		return false
	})
	history := func(t *testing.T, c *Client) ([]follow.Block, error) { return c.Blocks(t.Context(), 1, 31, 31) }
	for name, test := range map[string]struct {
		node  http.Handler
		knows bool // after the survey
		fetch func(*testing.T, *Client) ([]follow.Block, error)
		want  int // logs
	}{
		"a block below the newest one has a log": {recent, true, func(t *testing.T, c *Client) ([]follow.Block, error) { return c.Blocks(t.Context(), 1, 21, 21) }, 10},
		"at the tip": {before, false, func(t *testing.T, c *Client) ([]follow.Block, error) {
			headers, err := c.Headers(t.Context(), 18, 22, common.Hash{})
			if err != nil {
				return nil, err
			}
			return c.Logs(t.Context(), headers)
		}, 1},
		"history":            {before, false, history, 1},
		"history, by a liar": {omits, false, history, 1},
		"history, all of it": {before, false, func(t *testing.T, c *Client) ([]follow.Block, error) { return c.Blocks(t.Context(), 1, 31, 0) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := piped(t, func(*Config) {}, test.node)
			c.Survey(t.Context())
			if knows := c.Bloomless() != ""; knows != test.knows {
				t.Errorf("after the survey it says %q", c.Bloomless())
			}
			blocks, err := test.fetch(t, c)
			if err != nil {
				t.Fatal(err)
			}
			logs := 0
			for i := range blocks {
				logs += len(blocks[i].Logs)
			}
			if logs != test.want {
				t.Errorf("%d logs, want %d", logs, test.want)
			}
			if c.Bloomless() == "" {
				t.Error("nothing is said of it")
			}
		})
	}
}

// TestBloomsKnown: once three final blocks have bloom filters, a block without one, whose receipts have no log, costs no call.
func TestBloomsKnown(t *testing.T) {
	c := piped(t, func(*Config) {}, http.NotFoundHandler())
	block := func(number uint64, bloom byte) follow.Block {
		return follow.Block{Header: follow.Header{BlockRef: topics.BlockRef{Number: number, Hash: common.Hash{byte(number), bloom}}, Bloom: types.Bloom{bloom}, Receipts: common.Hash{1}}}
	}
	odd := []follow.Header{block(9, 0).Header}
	for _, step := range []struct {
		what  string
		came  []follow.Block
		final uint64
		knows bool
	}{
		{"none is final", []follow.Block{block(1, 1), block(2, 1), block(3, 1)}, 0, false},
		{"a reorg replaces the third", []follow.Block{block(3, 0), block(4, 0)}, 4, false},
		{"the third is not final", []follow.Block{block(5, 1)}, 4, false},
		{"three are final", []follow.Block{block(6, 0)}, 5, true},
	} {
		c.Followed(step.came, step.final)
		if asks := len(c.wanted(odd)) > 0; asks == step.knows {
			t.Errorf("%s: it asks for the receipts of others: %v", step.what, asks)
		}
	}
}
