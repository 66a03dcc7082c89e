package query

import (
	"context"
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/prices"
	"github.com/lienstream/lienstream/topics"
)

// MaxHeld is how many positions Held reads at most: of each owner an equal part, the oldest.
const MaxHeld = 8 * MaxLimit

// Held implements ExchangeReader.
func (c *Client) Held(ctx context.Context, at topics.BlockRef, pool common.Hash, owners []common.Address) (Answer[[]topics.PositionLiquidity], error) {
	answer := Answer[[]topics.PositionLiquidity]{At: at}
	var keys []common.Hash
	for _, owner := range owners {
		more, err := c.tokensOf(ctx, at, owner, MaxHeld/len(owners))
		if err != nil {
			return answer, err
		}
		keys = append(keys, more...)
	}
	if len(keys) == 0 {
		return answer, nil
	}
	from := c.partitionOf(contracts.PoolEntity(pool)) // where the contents of the pool's positions are
	a, err := c.Read(ctx, read.Request{Operation: opContents, Query: &contentsQuery{keys}, Partitions: from, At: &at})
	if err != nil {
		return answer, err
	}
	all, err := decodeAll[topics.PositionLiquidity](a.Items)
	for i := range all {
		if all[i].PoolID == pool {
			answer.Value = append(answer.Value, all[i])
		}
	}
	return answer, err
}

// tokensOf are the token IDs of an owner's oldest positions as of a block, at most `most`: anyone can send an owner
// more.
func (c *Client) tokensOf(ctx context.Context, at topics.BlockRef, owner common.Address, most int) (keys []common.Hash, err error) {
	for after := []byte(nil); len(keys) < most; {
		limit := min(most-len(keys), MaxLimit)
		q := &positionsQuery{PositionsQuery: PositionsQuery{Owner: owner, After: after, Limit: limit}, Manager: c.manager}
		a, err := c.Read(ctx, read.Request{Operation: opPositions, Query: q, At: &at})
		if err != nil {
			return nil, err
		}
		split, err := inSections(a.Items)
		if err != nil {
			return nil, err
		}
		page, err := read.PageOf(split[sectionOwned], q.Limit, decodeRow[topics.Position])
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			keys = append(keys, page.Items[i].TokenID.Bytes32())
		}
		if after = page.Next; after == nil {
			break
		}
	}
	return keys, nil
}

// addVolume adds up what was traded in a pool in the current hour and the 23 before it.
func addVolume(c *collector, v state.View, pool common.Hash, now uint64) error {
	var (
		sum, hour prices.Volume
		bad       error
	)
	err := v.Scan(prices.Volumes, pool[:], prices.Before(pool, now), func(key, row []byte) bool {
		if prices.At(key)+day <= now {
			return false
		}
		if bad = hour.UnmarshalBinary(row); bad != nil {
			return false
		}
		sum.Add(&hour)
		return true
	})
	if err = errors.Join(err, bad); err != nil {
		return fmt.Errorf("volumes: %w", err)
	}
	row, err := sum.AppendBinary(nil)
	c.add(sectionVolume, pool[:], row)
	return err
}
