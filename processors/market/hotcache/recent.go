package hotcache

import (
	"slices"
	"sync"
	"time"

	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// recentBlocksMax is enough for 100 ms blocks and any sensible MaxLag.
const recentBlocksMax = 128

// recentBlocks remembers which blocks were the lowest watermark, and since when.
//
// Invariants:
//  1. All of them have the same number of reverts and ascend by number: they are one chain.
//  2. The last block is the current lowest watermark.
type recentBlocks struct {
	mu      sync.Mutex
	reverts uint64
	seen    []seenBlock // ascending, at most recentBlocksMax
}

type seenBlock struct {
	block topics.BlockRef
	at    time.Time
}

// observe adds a lowest watermark. If it is earlier than the last one, as another node may report it, the later
// ones are dropped.
func (t *recentBlocks) observe(wm query.Watermark, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if wm.Reverts != t.reverts {
		t.reverts, t.seen = wm.Reverts, t.seen[:0]
	}
	n := len(t.seen)
	for n > 0 && (t.seen[n-1].block.Number > wm.At.Number ||
		t.seen[n-1].block.Number == wm.At.Number && t.seen[n-1].block.Hash != wm.At.Hash) {
		n--
	}
	t.seen = t.seen[:n]
	if n > 0 && t.seen[n-1].block.Number == wm.At.Number {
		return
	}
	if n == recentBlocksMax {
		copy(t.seen, t.seen[1:])
		t.seen = t.seen[:n-1]
	}
	t.seen = append(t.seen, seenBlock{wm.At, now})
}

// overtaken returns how long ago a block ceased to be the lowest watermark, if it was one on this chain.
func (t *recentBlocks) overtaken(number uint64, hash [32]byte, now time.Time) (time.Duration, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := len(t.seen) - 1; i >= 0; i-- {
		s := &t.seen[i]
		if s.block.Number < number {
			break
		}
		if s.block.Number != number || s.block.Hash != hash {
			continue
		}
		if i == len(t.seen)-1 {
			return 0, true
		}
		return now.Sub(t.seen[i+1].at), true
	}
	return 0, false
}

// before lists the blocks before one of them.
func (t *recentBlocks) before(at topics.BlockRef) []seenBlock {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.seen {
		if t.seen[i].block.Number >= at.Number {
			return slices.Clone(t.seen[:i])
		}
	}
	return nil
}
