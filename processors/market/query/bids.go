package query

import (
	"context"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/engine/wire"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/topics"
)

// DealListQuery asks for a list of a deal: its bids, its drips.
type DealListQuery struct {
	Deal  uint256.Int
	After []byte
	Limit int
}

// Code implements wire.Value.
func (q *DealListQuery) Code(c *wire.Coder) {
	id := q.Deal.Bytes32()
	if c.Fixed(id[:]); c.Decoding() {
		q.Deal.SetBytes32(id[:])
	}
	codePage(c, &q.After, &q.Limit)
}

// Validate implements read.Query.
func (q *DealListQuery) Validate() error { return checkPage(q.Limit, q.After) }

// Bids implements MarketReader.
func (c *Client) Bids(ctx context.Context, q DealListQuery) (Answer[Page[topics.Bid]], error) {
	from := c.partitionOf(contracts.DealEntity(&q.Deal))
	a, err := c.Read(ctx, read.Request{Operation: opBids, Query: &q, Partitions: from})
	if err != nil {
		return Answer[Page[topics.Bid]]{}, err
	}
	if len(a.Items) == 0 {
		return Answer[Page[topics.Bid]]{At: a.Block}, ErrNotFound
	}
	p, err := read.PageOf(a.Items[1:], q.Limit, decodeRow[topics.Bid]) // after the item of the deal
	return Answer[Page[topics.Bid]]{At: a.Block, Value: p, From: from}, err
}

// readBids lists the bids of a deal, after an item without a key if the deal exists.
func readBids(_ context.Context, views *read.Views, q *DealListQuery) ([]read.Item, error) {
	prefix := deals.Key(&q.Deal)
	after := behind(prefix, q.After)
	for _, v := range views.Of {
		row, err := v.Get(deals.Deals, prefix)
		if err != nil {
			return nil, err
		}
		if row == nil {
			continue
		}
		found, err := lowest([]state.View{v}, q.Limit+1, func(v state.View, visit visitor) error {
			return v.Scan(deals.Bids, prefix, after, func(key, row []byte) bool { return visit(key[len(prefix):], row, true) })
		})
		items := make([]read.Item, 1, 1+len(found))
		for _, p := range found {
			items = append(items, p.Item)
		}
		return items, err
	}
	return nil, nil
}
