package rpc

import (
	"context"
	"slices"
	"sync"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// Which blocks at the tip may concern us, and which of history lack logs that they should have, is what the bloom filters of the headers
// say. A chain may leave these empty, though its hashes and roots hold: then the receipts of every block are fetched, as with
// Config.NoBloom, of history too, where nothing else shows what an answer leaves out. So a head that was made up to
// have us believe that of a chain costs calls, and no log; and it is believed no longer once the chain has final blocks with bloom filters.

// blooms is what a proved block says of the chain's bloom filters.
type blooms uint8

const (
	bloomsUnknown blooms = iota // it has no logs, or is not proved
	bloomsHold
	bloomsLack // they do not have its logs
)

// bloomsOf says whether the bloom filter of a block has its logs, from its receipts.
func (e *endpoint) bloomsOf(ctx context.Context, h *follow.Header) (saw blooms, err error) {
	err = e.receipts(ctx, &filter{all: true}, nil, []follow.Header{*h}, nil, func(_ int, logs []topics.Log, _ int) {
		for i := range logs {
			if b := bitsOf(logs[i].Address[:]); !b.in(&h.Bloom) {
				saw = bloomsLack
				return
			}
			saw = bloomsHold
		}
	})
	return saw, err
}

// bloomless is what Bloomless says.
const bloomless = "the bloom filters of the newest blocks lack their logs, so receipts prove each block: if that is still so when these are final, blocks that came in before may lack logs, begin a new topic with --rpc-no-bloom"

// Bloomless says that the bloom filters of the chain's blocks were found to be of no use; empty: they were not.
func (c *Client) Bloomless() string {
	if c.noBloom.Load() && !c.cfg.NoBloom {
		return bloomless
	}
	return ""
}

// judge has the receipts of all blocks fetched if the newest blocks of most endpoints have logs that their bloom filters lack, and no
// endpoint's has some that its filter has. One alone may have made its block up.
func (c *Client) judge(saw []blooms) {
	lack := 0
	for _, s := range saw {
		switch s {
		case bloomsHold:
			return
		case bloomsLack:
			lack++
		case bloomsUnknown:
		}
	}
	if 2*lack > len(c.endpoints) {
		c.lackBlooms()
	}
}

// lackBlooms has the receipts of all blocks fetched.
func (c *Client) lackBlooms() {
	if c.noBloom.Swap(true) {
		return
	}
	c.bloomed.mu.Lock()
	c.bloomed.blocks = nil // later ones are to show it
	c.bloomed.mu.Unlock()
	c.metrics.noBloom.Set(1)
	c.log.Warn(bloomless)
}

// finalBlooms is how many final blocks with a bloom filter show that the chain has them: whatever made us believe that it has none was made up.
const finalBlooms = 3

// bloomed are blocks of the chain that have a bloom filter.
type bloomed struct {
	mu     sync.Mutex
	blocks []topics.BlockRef // at most finalBlooms, ascending
}

// Followed is told of blocks that are on the followed chain, in order, and of what is final.
func (c *Client) Followed(blocks []follow.Block, final uint64) {
	b := &c.bloomed
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range blocks {
		h := &blocks[i].Header
		b.blocks = slices.DeleteFunc(b.blocks, func(r topics.BlockRef) bool { return r.Number >= h.Number }) // a reorg replaced it
		if h.Bloom != (types.Bloom{}) && len(b.blocks) < finalBlooms {
			b.blocks = append(b.blocks, h.BlockRef)
		}
	}
	if len(b.blocks) < finalBlooms || b.blocks[finalBlooms-1].Number > final || c.cfg.NoBloom || !c.noBloom.Swap(false) {
		return
	}
	c.metrics.noBloom.Set(0)
	c.log.Info("final blocks have bloom filters: a head that had none was made up")
}

// mayHaveLogs reports whether a block without a usable bloom filter may have logs: it has receipts, as far as its header is proved.
func (c *Client) mayHaveLogs(h *follow.Header) bool {
	return h.Receipts != types.EmptyReceiptsHash || c.cfg.Proof == ProofOff
}
