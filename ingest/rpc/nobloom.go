package rpc

import (
	"context"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// Which blocks at the tip may concern us is what the bloom filters of their headers say. A chain may leave these empty, though its hashes
// and roots hold: then the receipts of every block are fetched, as with Config.NoBloom.

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

// bloomless is what Survey says of a chain whose bloom filters turned out to be of no use.
const bloomless = "the bloom filters of the chain's blocks lack their logs: blocks that came in before the ingester knew may lack logs, begin a new topic with --rpc-no-bloom"

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
	if 2*lack <= len(c.endpoints) || c.noBloom.Swap(true) {
		return
	}
	c.metrics.noBloom.Set(1)
	c.log.Warn("the receipts of all blocks are fetched: " + bloomless)
}
