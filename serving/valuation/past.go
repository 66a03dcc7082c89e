package valuation

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/serving/chain"
)

// pastGrowth is a pool's fee growth as of an earlier block.
type pastGrowth struct {
	at     uint64 // timestamp of the block
	growth ammv4.FeeGrowth
}

// feeGrowthCache holds what was read of earlier blocks. It is kept for an hour, in which the fees of all pools are
// estimated from the same block, except for younger pools.
//
// Invariant: it has at most as many growths as there are allowed pools, and hardly more blocks.
type feeGrowthCache struct {
	hour    uint64 // since 1970
	reverts uint64 // of the state that it was read for; if there are more now, its blocks may be reverted
	blocks  map[uint64]chain.Block
	growths map[common.Hash]knownGrowth
}

// knownGrowth is a pool's fee growth; nil: no node that was asked has that block's state.
type knownGrowth struct {
	*pastGrowth

	until time.Time // if it is nil: when to ask again
}

// before is the cache for a state. c.mu is held.
func (c *chainReader) before(s *state) *feeGrowthCache {
	if at := s.at.Timestamp / hour; c.past == nil || c.past.hour < at || c.past.reverts != s.reverts {
		c.past = &feeGrowthCache{hour: at, reverts: s.reverts, blocks: map[uint64]chain.Block{}, growths: map[common.Hash]knownGrowth{}}
	}
	return c.past
}

// growthBefore is a pool's fee growth this many seconds ago, or at its creation. Nil: unknown, because no node has that
// state any more, or refused; it is asked again later.
func (c *chainReader) growthBefore(ctx context.Context, s *state, p *pool, seconds uint64, now time.Time) (*pastGrowth, error) {
	want := s.at.Timestamp / hour * hour
	if want = max(want-min(want, seconds), p.InitializedAt); want >= s.at.Timestamp {
		return nil, nil //nolint:nilnil // the pool has no earlier block
	}
	c.mu.Lock()
	known, ok := c.before(s).growths[p.ID]
	c.mu.Unlock()
	if ok && (known.pastGrowth != nil || now.Before(known.until)) {
		return known.pastGrowth, nil
	}
	found, err := chain.Shared(ctx, c.cfg.ReadTimeout, &c.reads, fmt.Sprintf("fees of %s before %s", p.ID, s.at.Hash), func(ctx context.Context) (*pastGrowth, error) {
		c.metrics.fees.Inc()
		found, err := c.readGrowth(ctx, s, p, want)
		if _, refused := errors.AsType[*chain.NodeError](err); refused || errors.Is(err, chain.ErrBlockGone) {
			// A node that has the state's block has pruned what it lacks below. Else the chain is being reorganised.
			if now, lacks := c.blocksOf(ctx, []uint64{s.at.Number}); lacks != nil || now[0].Hash != s.at.Hash {
				return nil, cmp.Or(lacks, err)
			}
			found, err = nil, nil
		}
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.before(s).growths[p.ID] = knownGrowth{found, now.Add(retryAfter)}
		}
		return found, err
	})
	return found, err
}

func (c *chainReader) readGrowth(ctx context.Context, s *state, p *pool, want uint64) (*pastGrowth, error) {
	b, err := c.blockAt(ctx, s, want)
	if err != nil {
		return nil, err
	}
	if b.Timestamp >= s.at.Timestamp {
		return nil, nil //nolint:nilnil // the pool was created in this second
	}
	base := poolSlot(p.ID)
	data, err := c.callBoth(ctx, b.Hash, c.extsload([]*uint256.Int{plus(base, slotGrowth0), plus(base, slotGrowth0+1)}))
	if err != nil {
		return nil, fmt.Errorf("read the fees of pool %s at block %d: %w", p.ID, b.Number, err)
	}
	words, err := loaded(data, 2)
	if err != nil {
		return nil, err
	}
	return &pastGrowth{at: b.Timestamp, growth: ammv4.FeeGrowth(words)}, nil
}

// blockAt finds the first block at or after a time, once for all pools.
func (c *chainReader) blockAt(ctx context.Context, s *state, want uint64) (chain.Block, error) {
	c.mu.Lock()
	known, ok := c.before(s).blocks[want]
	c.mu.Unlock()
	if ok {
		return known, nil
	}
	return chain.Shared(ctx, c.cfg.ReadTimeout, &c.reads, fmt.Sprintf("block at %d before %s", want, s.at.Hash), func(ctx context.Context) (chain.Block, error) {
		found, err := c.findBlock(ctx, s, want)
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.before(s).blocks[want] = found
		}
		return found, err
	})
}

// findBlock divides the blocks into maxPieces pieces at a time, until one block is left.
func (c *chainReader) findBlock(ctx context.Context, s *state, want uint64) (chain.Block, error) {
	for low, high := c.cfg.Deployment.StartBlock, s.at.Number; ; {
		n := max(min(high-low, maxPieces), 1)
		numbers := make([]uint64, n)
		for i := range n {
			numbers[i] = low + (high-low)*(2*i+1)/(2*n)
		}
		blocks, err := c.blocksOf(ctx, numbers)
		if err != nil {
			return chain.Block{}, fmt.Errorf("look for the block at %d: %w", want, err)
		}
		if low >= high {
			return blocks[0], nil
		}
		i := slices.IndexFunc(blocks, func(b chain.Block) bool { return b.Timestamp >= want })
		if i < 0 {
			i = len(numbers)
		} else {
			high = numbers[i]
		}
		if i > 0 {
			low = numbers[i-1] + 1
		}
	}
}

// callBoth is the result of a call at a block.
func (c *chainReader) callBoth(ctx context.Context, at common.Hash, call chain.Call) ([]byte, error) {
	return chain.Both(ctx, c.client, "the pools", func(ctx context.Context) ([]byte, error) {
		return c.client.Call(ctx, at, call)
	}, bytes.Equal)
}
