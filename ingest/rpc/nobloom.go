package rpc

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// The bloom filters of headers tell which blocks at the tip may concern us, and which of history lack logs that they
// should have. Some chains leave them empty, although their hashes and roots hold: then the receipts of every block are
// fetched, as with Config.NoBloom, also of history, where nothing else shows omitted logs. So a made-up head that makes
// us believe this of a chain costs calls, and no log; it is believed no longer once the chain has final blocks with
// bloom filters. Until then the receipts of blocks at the tip that have some, and no bloom filter, are fetched as well:
// one with a log shows that the chain has none.

// blooms is what a proved block shows about the chain's bloom filters.
type blooms uint8

const (
	bloomsUnknown blooms = iota // the block has no logs, or is not proved
	bloomsHold
	bloomsLack // the block's filter lacks its logs
)

// surveyed is how many of the newest blocks a survey looks at.
const surveyed = 8

// bloomsOf reports whether bloom filters hold their block's logs, by the receipts of a block, or if it has no logs, of the blocks below it.
func (e *endpoint) bloomsOf(ctx context.Context, head *follow.Header) (saw blooms, err error) {
	if saw, err = e.bloomsIn(ctx, []follow.Header{*head}); err != nil || saw != bloomsUnknown {
		return saw, err
	}
	below := make([]follow.Header, min(head.Number, surveyed-1))
	if len(below) == 0 {
		return saw, nil
	}
	if err := e.headers(ctx, consecutive(head.Number-uint64(len(below)), len(below)), below); err == nil && below[len(below)-1].Hash == head.Parent { // else the head's receipts are enough
		below = slices.DeleteFunc(below, func(h follow.Header) bool { return !e.client.mayHaveLogs(&h) })
		if len(below) > 0 {
			saw, _ = e.bloomsIn(ctx, below)
		}
	}
	return saw, nil
}

func (e *endpoint) bloomsIn(ctx context.Context, headers []follow.Header) (saw blooms, err error) {
	err = e.receipts(ctx, &filter{all: true}, nil, headers, nil, func(i int, logs []topics.Log, _ int) {
		for k := range logs {
			if b := bitsOf(logs[k].Address[:]); !b.in(&headers[i].Bloom) {
				saw = bloomsLack
				return
			}
			saw = max(saw, bloomsHold)
		}
	})
	return saw, err
}

// unsure reports whether it is not known yet if the chain has bloom filters. Until then a block without one may be one that lacks its logs.
func (c *Client) unsure() bool {
	return c.cfg.Proof != ProofOff && !c.noBloom.Load() && !c.bloomed.known.Load()
}

// odd reports whether a block has receipts and no bloom filter: none of them has a log, or the chain has no bloom filters.
func (c *Client) odd(h *follow.Header) bool { return h.Bloom == (types.Bloom{}) && c.mayHaveLogs(h) }

// oddBlocks is how many blocks of a range are proved while it is not known whether the chain has bloom filters, and none of them has one.
const oddBlocks = 4

// oddOf returns some blocks of a range without bloom filters.
func (c *Client) oddOf(headers []follow.Header) (odd []follow.Header) {
	if !c.unsure() || slices.ContainsFunc(headers, func(h follow.Header) bool { return h.Bloom != (types.Bloom{}) }) {
		return nil
	}
	for i := range headers {
		if c.odd(&headers[i]) {
			odd = append(odd, headers[i])
		}
	}
	return odd[max(0, len(odd)-oddBlocks):]
}

// learn looks at the proved logs of a block.
func (c *Client) learn(h *follow.Header, logs []topics.Log) {
	if len(logs) > 0 && c.odd(h) && c.unsure() {
		c.lackBlooms()
	}
}

// matches checks logs against headers as the filter does. Where a log is not in a bloom filter that is empty, the block is proved first: perhaps
// the chain has no bloom filters.
func (c *Client) matches(ctx context.Context, headers []follow.Header, logs []topics.Log) error {
	err := c.filter.match(headers, logs)
	if l, ok := errors.AsType[*lie](err); !ok || l.kind != "bloom" || !c.unsure() {
		return err
	}
	for i := range logs {
		k, found := slices.BinarySearchFunc(headers, logs[i].Block.Number, byNumber)
		if !found || !c.odd(&headers[k]) {
			continue
		}
		if c.eachProved(ctx, headers[k:k+1], false, func(int, []topics.Log) {}) == nil && c.noBloom.Load() {
			err = c.filter.match(headers, logs)
		}
		break
	}
	return err
}

// bloomless is the text of Bloomless.
const bloomless = "the bloom filters of the newest blocks lack their logs, so receipts prove each block: if that is still so when these are final, blocks that came in before may lack logs, begin a new topic with --rpc-no-bloom"

// Bloomless reports that the bloom filters of the chain's blocks turned out to be of no use; empty: they did not.
func (c *Client) Bloomless() string {
	if c.noBloom.Load() && !c.cfg.NoBloom {
		return bloomless
	}
	return ""
}

// judge makes the receipts of all blocks be fetched if the newest blocks of most endpoints have logs that their bloom
// filters lack, and no endpoint's filter has any. A single endpoint may have made its block up.
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
	c.bloomed.forget()
	c.metrics.noBloom.Set(1)
	c.log.Warn(bloomless)
}

// finalBlooms is how many final blocks with a bloom filter show that the chain has them, and that a head without was
// made up.
const finalBlooms = 3

// bloomed are blocks of the chain that have a bloom filter.
type bloomed struct {
	mu     sync.Mutex
	blocks []topics.BlockRef // at most finalBlooms, ascending
	known  atomic.Bool       // so many are final
}

// forget has later blocks show it again: a chain may do without bloom filters one day.
func (b *bloomed) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.blocks = nil
	b.known.Store(false)
}

// Followed takes blocks of the followed chain, in order, and the number of the final block.
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
	if len(b.blocks) < finalBlooms || b.blocks[finalBlooms-1].Number > final || c.cfg.NoBloom {
		return
	}
	if b.known.Store(true); !c.noBloom.Swap(false) {
		return
	}
	c.metrics.noBloom.Set(0)
	c.log.Info("final blocks have bloom filters: a head that had none was made up")
}

// mayHaveLogs reports whether a block without a usable bloom filter may have logs: it has receipts, or its header is not
// proved.
func (c *Client) mayHaveLogs(h *follow.Header) bool {
	return h.Receipts != types.EmptyReceiptsHash || c.cfg.Proof == ProofOff
}
