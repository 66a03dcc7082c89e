package rpc

import (
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// TestConfirmingProvesNothingAgain: several endpoints say the same of a range of history. Its last block with logs is proved, once.
func TestConfirmingProvesNothingAgain(t *testing.T) {
	const blocks = 64
	chain := rpctest.NewSparse(7, blocks, blocks, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close)
	for _, confirm := range []int{1, 2, 3} {
		c := piped(t, func(cfg *Config) { cfg.Confirm = confirm }, chain, chain, chain)
		got, err := c.Blocks(t.Context(), 1, blocks, blocks)
		if err != nil || len(got[blocks-1].Logs) != 1 {
			t.Fatalf("%d answers: %v", confirm, err)
		}
		if proved := testutil.ToFloat64(c.metrics.proved); proved != 1 {
			t.Errorf("%d answers: %v blocks are proved", confirm, proved)
		}
	}
}

// TestConfirmedByAnother: what one node says by HTTP and by WebSocket is one answer. A second one is of another URL.
func TestConfirmedByAnother(t *testing.T) {
	for _, test := range []struct {
		urls []string
		want int
	}{
		{[]string{"http://a:8545"}, 1},
		{[]string{"ws://a:8545", "http://a:8545/"}, 1},
		{[]string{"wss://a/v2/key", "https://a/v2/key"}, 1},
		{[]string{"https://a/one", "https://a/two"}, 2},
		{[]string{"http://a:8545", "http://a:8546"}, 2},
		{[]string{"wss://a/v2/key", "https://a/v2/key", "https://b/v2/key"}, 2},
	} {
		cfg := DefaultConfig()
		for _, u := range test.urls {
			cfg.Endpoints = append(cfg.Endpoints, Endpoint{URL: u})
		}
		if got := cfg.confirm(); got != test.want {
			t.Errorf("%v: %d answers, want %d", test.urls, got, test.want)
		}
	}
}
