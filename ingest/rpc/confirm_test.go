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
