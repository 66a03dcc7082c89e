package rpc

import (
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// TestChainWithoutBlooms: hashes and roots of a chain hold, and its bloom filters are empty. The survey of the endpoints finds that out, and says so: from then on
// the logs of every block come in. One endpoint alone cannot bring it about.
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
		{"without", []*rpctest.Sparse{without}, false, 0, 1, true},
		{"without, two", []*rpctest.Sparse{without, without}, false, 0, 1, true},
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
