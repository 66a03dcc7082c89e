package query

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/assets"
	"github.com/lienstream/lienstream/processors/deals"
	"github.com/lienstream/lienstream/processors/drips"
	"github.com/lienstream/lienstream/processors/state"
	"github.com/lienstream/lienstream/topics"
)

// attempts bounds how often a question is asked anew because what it should have asked for only its answer
// says. An answer that needs no more is true as of one block; one that does was outrun by a block.
const attempts = 5

// RewardedDeal implements MarketReader. The deal is in one partition, the drips in those of its parties:
// they are asked all together once it is known who they are.
func (r *Router) RewardedDeal(ctx context.Context, id *uint256.Int) (Answer[RewardedDeal], error) {
	entity := contracts.Entity{Family: contracts.FamilyDeal, ID: id.Bytes32()}
	partitions := slices.Clone(r.partitionOf(entity))
	for range attempts {
		a, err := r.read(ctx, partitions, &request{Op: opRewardedDeal, Deal: entity.ID, Limit: unlimited})
		if err != nil {
			return Answer[RewardedDeal]{}, err
		}
		d, err := decodeRewarded(a)
		if err != nil {
			return Answer[RewardedDeal]{}, err
		}
		if d == nil {
			return Answer[RewardedDeal]{At: a.At}, ErrNotFound
		}
		known := len(partitions)
		if f := d.Deal.Funding; d.Reward != nil && f != nil {
			for _, p := range []int32{r.accountPartition(d.Deal.Borrower), r.accountPartition(f.Lender)} {
				if !slices.Contains(partitions, p) {
					partitions = append(partitions, p)
				}
			}
		}
		if len(partitions) == known {
			return Answer[RewardedDeal]{At: a.At, Value: *d, From: partitions}, nil
		}
		slices.Sort(partitions)
	}
	return Answer[RewardedDeal]{}, fmt.Errorf("deal %s changes its parties: %w", id.Dec(), ErrUnavailable)
}

func decodeRewarded(a *answer) (*RewardedDeal, error) {
	split, err := inSections(a.Items)
	if err != nil || len(split[sectionDeal]) == 0 {
		return nil, err
	}
	var d RewardedDeal
	if d.DealWithBids, err = decodeDeal(split[sectionDeal][0]); err != nil {
		return nil, err
	}
	row, err := decodeFirst[topics.Reward](split[sectionReward])
	if err != nil || row == nil {
		return &d, err
	}
	d.Reward = &Reward{Reward: *row}
	if d.Reward.Drips, err = dripsAt(split[sectionDrip], a.At.Timestamp); err != nil {
		return nil, err
	}
	slices.SortFunc(d.Reward.Drips, func(a, b Drip) int { return a.ID.Cmp(&b.ID) })
	return &d, nil
}

func readRewardedDeal(views []state.View, req *request) ([]item, error) {
	var c collector
	id := new(uint256.Int).SetBytes32(req.Deal[:])
	found, err := readDeal(views, id)
	if err != nil {
		return nil, err
	}
	for _, it := range found {
		it.key = sectionKey(sectionDeal, it.key)
		c.items = append(c.items, it)
	}
	for _, v := range views {
		reward, err := v.Get(deals.Rewards, deals.Key(id))
		if err != nil {
			return nil, err
		}
		c.add(sectionReward, nil, reward)
		if reward == nil && len(views) == 1 {
			continue // drips of no reward are not asked for
		}
		var keys [][]byte
		prefix := drips.DealPrefix(id)
		err = v.ScanIndex(drips.IndexDeal, prefix, nil, func(entry, _ []byte) bool {
			keys = append(keys, bytes.Clone(entry[len(prefix):]))
			return true
		})
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			row, err := v.Get(drips.Drips, key)
			if err != nil {
				return nil, err
			}
			c.add(sectionDrip, key, row)
		}
	}
	return c.sorted(), nil
}

// AssetDeals implements MarketReader.
func (r *Router) AssetDeals(ctx context.Context, q AssetDealsQuery) (Answer[Page[DealWithBids]], error) {
	req := &request{Op: opAssetDeals, Asset: q.Token, After: q.After, Limit: q.Limit + 2} // an item says more
	a, err := r.read(ctx, r.all, req)
	if err != nil {
		return Answer[Page[DealWithBids]]{}, err
	}
	known := len(a.Items) > 0 && len(a.Items[0].key) == 0
	if known {
		a.Items = a.Items[1:]
	}
	if !known && len(a.Items) == 0 {
		return Answer[Page[DealWithBids]]{At: a.At}, ErrNotFound
	}
	p, err := page(a.Items, q.Limit, decodeListedDeal)
	return Answer[Page[DealWithBids]]{At: a.At, Value: p}, err
}

// readAssetDeals lists the deals on a token by when they were funded, behind an item without a key where
// the registry knows the token.
func readAssetDeals(views []state.View, req *request) ([]item, error) {
	prefix := deals.AssetPrefix(req.Asset)
	var after []byte
	if req.After != nil {
		after = slices.Concat(prefix, req.After)
	}
	found, err := lowest(views, req.Limit, func(v state.View, visit visitor) error {
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
	for _, v := range views {
		row, err := v.Get(assets.Assets, req.Asset[:])
		if err != nil {
			return nil, err
		}
		if row != nil {
			return slices.Insert(items, 0, item{}), nil
		}
	}
	return items, nil
}

// Epochs implements MarketReader.
func (r *Router) Epochs(ctx context.Context, q EpochsQuery) (Answer[Page[topics.Epoch]], error) {
	return readPage(ctx, r, &request{Op: opEpochs, After: q.After, Limit: q.Limit + 1}, decodeRow[topics.Epoch])
}
