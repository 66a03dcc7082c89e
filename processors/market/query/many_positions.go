package query

import (
	"bytes"
	"context"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/engine/wire"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/liquidity"
	"github.com/lienstream/lienstream/processors/market/stats"
	"github.com/lienstream/lienstream/topics"
)

// maxOpenPositions is how many open positions one request may have. More are added up page by page, by the
// partitions of their pools, as of the same block.
const maxOpenPositions = 8192

// openPositionsQuery asks for a page of the positions that are collateral.
type openPositionsQuery struct {
	After []byte
	Limit int
}

func (q *openPositionsQuery) Code(c *wire.Coder) { codePage(c, &q.After, &q.Limit) }

func (q *openPositionsQuery) Validate() error {
	if q.Limit < 1 || q.Limit > maxOpenPositions {
		return fmt.Errorf("limit: %d is not in 1-%d", q.Limit, maxOpenPositions)
	}
	return checkPage(1, q.After)
}

// readOpenPositions lists positions, each with its deal, ascending.
func readOpenPositions(_ context.Context, views *read.Views, q *openPositionsQuery) ([]read.Item, error) {
	return items(lowestOpen(views.Of, q.After, q.Limit))
}

func lowestOpen(views []state.View, after []byte, limit int) ([]position, error) {
	return lowest(views, limit, func(v state.View, visit visitor) error {
		return v.ScanIndex(deals.IndexOpenPosition, nil, after, func(entry, _ []byte) bool { return visit(entry, nil, true) })
	})
}

// readAmounts adds up the contents of positions whose pools are in these partitions, by token.
func readAmounts(_ context.Context, views *read.Views, q *contentsQuery) ([]read.Item, error) {
	sums := map[common.Address]*uint256.Int{}
	add := func(token common.Address, amount *uint256.Int) {
		if sums[token] == nil {
			sums[token] = new(uint256.Int)
		}
		sums[token].Add(sums[token], amount)
	}
	ids := wantedOf(q.Keys)
	for _, v := range views.Of {
		pools := map[common.Hash]*topics.Pool{}
		err := ids.in(v, func(_ int, _ []byte, p *topics.PositionLiquidity) error {
			pool, known := pools[p.PoolID]
			if !known {
				row, err := v.Get(liquidity.Pools, p.PoolID[:])
				if err != nil {
					return err
				}
				if row != nil {
					pool = new(topics.Pool)
					if err := pool.UnmarshalBinary(row); err != nil {
						return fmt.Errorf("decode pool: %w", err)
					}
				}
				pools[p.PoolID] = pool
			}
			if pool == nil {
				return nil
			}
			amount0, amount1, err := ammv4.Amounts(&pool.SqrtPriceX96, pool.Tick, p.TickLower, p.TickUpper, &p.Liquidity)
			if err != nil {
				return fmt.Errorf("amounts of position %s: %w", p.TokenID.Dec(), err)
			}
			add(pool.Currency0, amount0)
			add(pool.Currency1, amount1)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	var c collector
	for token, sum := range sums {
		word := sum.Bytes32()
		c.add(sectionCollateral, stats.CollateralKey(contracts.LanePosition, token), word[:])
	}
	return c.sorted(), nil
}

// amountsOf adds up the contents of all positions that are collateral as of a block, in the form of other
// collateral.
func (c *Client) amountsOf(ctx context.Context, at topics.BlockRef) (all []read.Item, err error) {
	var last common.Hash
	for after := []byte(nil); ; {
		q := &openPositionsQuery{After: after, Limit: maxOpenPositions}
		page, err := c.Read(ctx, read.Request{Operation: opOpenPositions, Query: q, At: &at, Limit: q.Limit})
		if err != nil {
			return nil, err
		}
		keys := make([]common.Hash, 0, len(page.Items))
		for _, it := range page.Items {
			if id := common.BytesToHash(it.Key[:min(len(it.Key), common.HashLength)]); id != last || after == nil && len(keys) == 0 {
				keys, last = append(keys, id), id
			}
		}
		if len(keys) > 0 {
			sums, err := c.Read(ctx, read.Request{Operation: opAmounts, Query: &contentsQuery{keys}, At: &at})
			if err != nil {
				return nil, err
			}
			split, err := inSections(sums.Items)
			if err != nil {
				return nil, err
			}
			all = append(all, split[sectionCollateral]...)
		}
		if len(page.Items) < q.Limit {
			return all, nil
		}
		after = bytes.Clone(page.Items[len(page.Items)-1].Key)
	}
}
