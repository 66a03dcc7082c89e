package query

import (
	"context"
	"fmt"
	"slices"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/assets"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/topics"
)

// attempts bounds how often a read is repeated because its answer shows what it should have requested. An
// answer that needs nothing more is consistent at one block; otherwise a new block arrived in between.
const attempts = 5

// DealWithReward implements MarketReader. The deal is in one partition, the drips in those of its parties: once
// these are known, all are read together.
func (c *Client) DealWithReward(ctx context.Context, id *uint256.Int) (Answer[DealWithReward], error) {
	partitions := slices.Clone(c.partitionOf(contracts.DealEntity(id)))
	for range attempts {
		a, err := c.Read(ctx, read.Request{Operation: opDealWithReward, Query: &dealQuery{id.Bytes32()}, Partitions: partitions})
		if err != nil {
			return Answer[DealWithReward]{}, err
		}
		d, err := decodeRewarded(a)
		if err != nil {
			return Answer[DealWithReward]{}, err
		}
		if d == nil {
			return Answer[DealWithReward]{At: a.Block}, ErrNotFound
		}
		known := len(partitions)
		if f := d.Deal.Funding; d.Reward != nil && f != nil {
			for _, p := range []int32{c.accountPartition(d.Deal.Borrower), c.accountPartition(f.Lender)} {
				if !slices.Contains(partitions, p) {
					partitions = append(partitions, p)
				}
			}
		}
		if len(partitions) == known {
			return Answer[DealWithReward]{At: a.Block, Value: *d, From: partitions}, nil
		}
		slices.Sort(partitions)
	}
	return Answer[DealWithReward]{}, fmt.Errorf("deal %s changed its parties between reads: %w", id.Dec(), ErrUnavailable)
}

func decodeRewarded(a *read.Response) (*DealWithReward, error) {
	split, err := inSections(a.Items)
	if err != nil || len(split[sectionDeal]) == 0 {
		return nil, err
	}
	var d DealWithReward
	if d.DealWithBids, err = decodeDeal(split[sectionDeal][0]); err != nil {
		return nil, err
	}
	row, err := decodeFirst[topics.Reward](split[sectionReward])
	if err != nil || row == nil {
		return &d, err
	}
	d.Reward = &Reward{Reward: *row}
	newest := split[sectionDrip]
	if d.Reward.Truncated = len(newest) > MaxDrips; d.Reward.Truncated {
		newest = newest[:MaxDrips]
	}
	if d.Reward.Drips, err = dripsAt(newest, a.Block.Timestamp); err != nil {
		return nil, err
	}
	slices.SortFunc(d.Reward.Drips, func(a, b Drip) int { return a.ID.Cmp(&b.ID) })
	return &d, nil
}

func readDealWithReward(ctx context.Context, views *read.Views, q *dealQuery) ([]read.Item, error) {
	var c collector
	id := new(uint256.Int).SetBytes32(q.ID[:])
	found, err := readDeal(ctx, views, q)
	if err != nil {
		return nil, err
	}
	for _, it := range found {
		it.Key = sectionKey(sectionDeal, it.Key)
		c.items = append(c.items, it)
	}
	granted := len(found) == 0 // otherwise the node with the deal knows: it is the same block
	for _, v := range views.Of {
		reward, err := v.Get(deals.Rewards, deals.Key(id))
		if err != nil {
			return nil, err
		}
		c.add(sectionReward, nil, reward)
		granted = granted || reward != nil
	}
	if !granted {
		return c.sorted(), nil
	}
	all, err := dealDrips(views.Of, id, nil, MaxDrips+1)
	for _, it := range all {
		c.add(sectionDrip, it.Key, it.Row)
	}
	return c.sorted(), err
}

// AssetDeals implements MarketReader.
func (c *Client) AssetDeals(ctx context.Context, q AssetDealsQuery) (Answer[Page[DealWithBids]], error) {
	a, err := c.Read(ctx, read.Request{Operation: opAssetDeals, Query: &q, Limit: q.Limit + 2}) // one item more tells that the list continues
	if err != nil {
		return Answer[Page[DealWithBids]]{}, err
	}
	known := len(a.Items) > 0 && len(a.Items[0].Key) == 0
	if known {
		a.Items = a.Items[1:]
	}
	if !known && len(a.Items) == 0 {
		return Answer[Page[DealWithBids]]{At: a.Block}, ErrNotFound
	}
	p, err := read.PageOf(a.Items, q.Limit, decodeDeal)
	return Answer[Page[DealWithBids]]{At: a.Block, Value: p}, err
}

// readAssetDeals lists the deals on a token by funding time, after an item without a key if the registry knows
// the token.
func readAssetDeals(_ context.Context, views *read.Views, q *AssetDealsQuery) ([]read.Item, error) {
	prefix := deals.AssetPrefix(q.Token)
	after := behind(prefix, q.After)
	found, err := lowest(views.Of, q.Limit+1, func(v state.View, visit visitor) error {
		return v.ScanIndex(deals.IndexFundedAsset, prefix, after, func(entry, _ []byte) bool {
			return visit(entry[len(prefix):], nil, true)
		})
	})
	if err != nil {
		return nil, err
	}
	items, err := withRows(found)
	if err != nil {
		return nil, err
	}
	for _, v := range views.Of {
		row, err := v.Get(assets.Assets, q.Token[:])
		if err != nil {
			return nil, err
		}
		if row != nil {
			return slices.Insert(items, 0, read.Item{}), nil
		}
	}
	return items, nil
}
