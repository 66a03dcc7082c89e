package rpc

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// TestHeldIsBounded: the blocks of a range are full of long logs. However they are fetched, the client refuses to hold
// them at once; fewer blocks, or a single one of any size, come in.
func TestHeldIsBounded(t *testing.T) {
	const blocks, data = 64, 8 << 10
	chain := rpctest.NewSparse(7, blocks, 1, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}, Data: make([]byte, data)})
	t.Cleanup(chain.Close)
	for _, proof := range []Proof{ProofTip, ProofAll, ProofSparse} {
		for _, final := range []uint64{0, blocks} {
			inBubble(t, fmt.Sprintf("%s, final up to %d", proof, final), func(t *testing.T) {
				c := piped(t, func(cfg *Config) { cfg.Proof, cfg.MaxHeld = proof, data*blocks/2 }, chain)
				for _, test := range []struct {
					most int
					last uint64
					want error
				}{{data * blocks / 2, blocks, ErrDense}, {data * blocks / 2, blocks / 4, nil}, {data / 2, 1, nil}} {
					c.cfg.MaxHeld = test.most
					got, err := c.Blocks(t.Context(), 1, test.last, final)
					if !errors.Is(err, test.want) || err == nil && len(got) != int(test.last) { //nolint:gosec // of a few
						t.Errorf("%d blocks: %d of them: %v", test.last, len(got), err)
					}
				}
			})
		}
	}
}
