package valuation

import (
	"bytes"
	"context"
	"errors"
	"fmt"

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

// pastKey is a pool and an hour: fees are estimated from the same earlier block for an hour.
type pastKey struct {
	pool common.Hash
	hour uint64
}

// maxPast bounds the cache of earlier blocks.
const maxPast = 1024

// growthBefore is a pool's fee growth this many seconds ago, or at its creation. Nil: unknown, because a node
// no longer has that state.
func (c *chainReader) growthBefore(ctx context.Context, s *state, p *pool, seconds uint64) (*pastGrowth, error) {
	key := pastKey{p.ID, s.at.Timestamp / hour}
	c.mu.Lock()
	known, ok := c.past[key]
	c.mu.Unlock()
	if ok {
		return known, nil
	}
	c.metrics.fees.Inc()
	want := key.hour*hour - min(key.hour*hour, seconds)
	want = max(want, p.InitializedAt)
	if want >= s.at.Timestamp {
		return nil, nil //nolint:nilnil // the pool has no earlier block
	}
	found, err := c.readGrowth(ctx, s, p, want)
	if gone(err) {
		found, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.past == nil || len(c.past) >= maxPast {
		c.past = make(map[pastKey]*pastGrowth)
	}
	c.past[key] = found
	return found, nil
}

// gone reports whether a node does not have the requested state.
func gone(err error) bool {
	_, refused := errors.AsType[*chain.NodeError](err)
	return errors.Is(err, chain.ErrBlockGone) || refused
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

// blockAt finds the first block at or after a time, by bisection.
func (c *chainReader) blockAt(ctx context.Context, s *state, want uint64) (chain.Block, error) {
	low, high := c.cfg.Deployment.StartBlock, s.at.Number
	for low < high {
		middle := low + (high-low)/2
		b, err := c.block(ctx, middle)
		if err != nil {
			return b, fmt.Errorf("read block %d: %w", middle, err)
		}
		if b.Timestamp < want {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return c.block(ctx, low)
}

// block is the block at a height.
func (c *chainReader) block(ctx context.Context, number uint64) (chain.Block, error) {
	return chain.Both(ctx, c.client, "a block", func(ctx context.Context) (chain.Block, error) {
		return c.client.BlockByNumber(ctx, chain.NumberOf(number))
	}, func(one, other chain.Block) bool { return one.Hash == other.Hash && one.Timestamp == other.Timestamp })
}

// callBoth is the result of a call at a block.
func (c *chainReader) callBoth(ctx context.Context, at common.Hash, call chain.Call) ([]byte, error) {
	return chain.Both(ctx, c.client, "the pools", func(ctx context.Context) ([]byte, error) {
		return c.client.Call(ctx, at, call)
	}, bytes.Equal)
}
