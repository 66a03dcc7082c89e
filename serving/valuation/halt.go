package valuation

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/chain"
)

// While the chain makes no block there are no trades, and no liquidity can leave. So the time of a halt does not make a
// price or liquidity more reliable. A halt is a gap between two blocks of more than Config.MaxGap.

// unhaltedBlocks is a range of blocks without a halt.
type unhaltedBlocks struct {
	since   uint64 // timestamp of its first block
	to      mark
	reverts uint64 // of the state that it was read for; if there are more now, its blocks may be reverted
}

// mark is a block's number and timestamp.
type mark struct {
	number int64
	at     uint64
}

// withoutHalt returns since when the chain has not halted, as of a state's block. It looks back no further than the
// window. Reading states in succession needs no further blocks.
func (c *chainReader) withoutHalt(ctx context.Context, s *state, window uint64) (since uint64, err error) {
	to := mark{int64(s.at.Number), s.at.Timestamp}
	c.mu.Lock()
	known := c.run
	c.mu.Unlock()
	if known.reverts != s.reverts || known.to.number > to.number || known.to.at > to.at {
		known = unhaltedBlocks{to: mark{number: int64(c.cfg.Deployment.StartBlock) - 1}} // with timestamp 0, so the first block counts as the end of a halt
	}
	halted, err := lastHalt(known.to, to, to.at-min(to.at, window), uint64(c.cfg.MaxGap/time.Second), func(numbers []uint64) ([]uint64, error) {
		blocks, err := c.blocksOf(ctx, numbers)
		times := make([]uint64, len(blocks))
		for i := range blocks {
			times[i] = blocks[i].Timestamp
		}
		return times, err
	})
	if err != nil {
		return 0, fmt.Errorf("look for a halt before block %d: %w", s.at.Number, err)
	}
	known = unhaltedBlocks{since: max(known.since, halted), to: to, reverts: s.reverts}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.run = known
	return known.since, nil
}

// blocksOf are the blocks at some heights.
func (c *chainReader) blocksOf(ctx context.Context, numbers []uint64) ([]chain.Block, error) {
	return chain.Both(ctx, c.client, "blocks", func(ctx context.Context) ([]chain.Block, error) {
		return c.client.BlocksByNumber(ctx, numbers)
	}, func(one, other []chain.Block) bool {
		return slices.EqualFunc(one, other, func(a, b chain.Block) bool { return a.Hash == b.Hash && a.Timestamp == b.Timestamp })
	})
}

// maxPieces bounds into how many pieces a range of blocks is divided at once.
const maxPieces = 16

// lastHalt is the timestamp of the block that ends the last gap of more than gap seconds between two blocks of a range,
// if it is later than after; else 0. A range that spans no more than gap seconds contains none. All others are divided,
// with one read of times for all, until they are single gaps.
func lastHalt(from, to mark, after, gap uint64, times func(numbers []uint64) ([]uint64, error)) (halt uint64, err error) {
	stretches := [][2]mark{{from, to}}
	for {
		var whole [][2]mark
		for _, s := range stretches {
			switch first, last := s[0], s[1]; {
			case last.at <= max(after, halt) || last.at-first.at <= gap:
			case last.number-first.number <= 1:
				halt = last.at
			default:
				whole = append(whole, s)
			}
		}
		var ends []int // the stretches that end at numbers
		var numbers []uint64
		stretches = nil
		for _, s := range whole {
			first, last := s[0], s[1]
			if last.at <= halt {
				continue
			}
			blocks := last.number - first.number
			pieces := int64(min((last.at-first.at)/gap*2+2, maxPieces, uint64(blocks)))
			before := first
			for i := int64(1); i < pieces; i++ {
				at := mark{number: first.number + blocks*i/pieces}
				ends, numbers = append(ends, len(stretches)), append(numbers, uint64(at.number))
				stretches = append(stretches, [2]mark{before, at})
				before = at
			}
			stretches = append(stretches, [2]mark{before, last})
		}
		if len(numbers) == 0 {
			return halt, nil
		}
		found, err := times(numbers)
		if err != nil {
			return 0, err
		}
		for i, end := range ends {
			stretches[end][1].at, stretches[end+1][0].at = found[i], found[i]
		}
		if slices.ContainsFunc(stretches, func(s [2]mark) bool { return s[0].at > s[1].at }) {
			return 0, fmt.Errorf("blocks whose times fall: %w", query.ErrUnavailable) // a reorg came between the reads
		}
	}
}
