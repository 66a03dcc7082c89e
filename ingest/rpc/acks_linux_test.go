package rpc

import (
	"slices"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// TestHeadAfterAnswer: a head that a node sends right after a response is received at once, not once the kernel
// acknowledges the response by itself.
func TestHeadAfterAnswer(t *testing.T) {
	chain := rpctest.NewSparse(7, 16, 1, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close)
	n := &bySocket{answer: chain.Answer, tells: `{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":"0x1","result":{}}}`}
	c := n.client(t, func(*Config) {})
	const rounds, first = 40, 20 // at first a kernel acknowledges at once
	took := make([]time.Duration, rounds)
	for i := range took {
		if _, err := c.endpoints[0].header(t.Context(), `"latest"`); err != nil {
			t.Fatal(err)
		}
		<-c.Heads()
		took[i] = time.Since(time.Unix(0, n.told.Load()))
	}
	if least := slices.Min(took[first:]); least > 20*time.Millisecond {
		t.Errorf("a head is heard %s after it was told, at best", least)
	}
}
