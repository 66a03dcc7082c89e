package query

import (
	"context"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/assets"
	"github.com/lienstream/lienstream/processors/market/liquidity"
	"github.com/lienstream/lienstream/topics"
)

// Stakes implements MarketReader. A stake and its pool are in one partition.
func (c *Client) Stakes(ctx context.Context, q StakesQuery) (Answer[Page[Stake]], error) {
	return readPage(ctx, c, opStakes, &q, q.Limit, func(it read.Item) (Stake, error) { return decodeStake(it, &c.market) })
}

func decodeStake(it read.Item, m *market) (s Stake, err error) {
	if s.Stake, err = decodeRow[topics.Stake](it); err != nil || len(it.Parts) == 0 {
		return s, err
	}
	var pool topics.Pool
	if err := pool.UnmarshalBinary(it.Parts[0]); err != nil || !pool.Initialized {
		return s, err
	}
	s.InRangeNow = s.TickLower <= pool.Tick && pool.Tick < s.TickUpper
	amount0, amount1, err := ammv4.Amounts(&pool.SqrtPriceX96, pool.Tick, s.TickLower, s.TickUpper, &s.Liquidity)
	if err != nil {
		return s, fmt.Errorf("value of position %s: %w", s.TokenID.Dec(), err)
	}
	s.ValueTKN = (&pair{pool: &pool, stkn0: pool.Currency0 == m.STKN}).value(amount0, amount1)
	return s, nil
}

// readStakes lists an owner's stakes, each followed by its pool.
func readStakes(_ context.Context, views *read.Views, q *StakesQuery) ([]read.Item, error) {
	prefix := q.Owner.Bytes()
	var after []byte
	if q.After != nil {
		after = slices.Concat(prefix, q.After)
	}
	found, err := lowest(views.Of, q.Limit+1, func(v state.View, visit visitor) error {
		return v.ScanIndex(liquidity.IndexStakeOwner, prefix, after, func(entry, row []byte) bool {
			return visit(entry[len(prefix):], row, true)
		})
	})
	if err != nil {
		return nil, err
	}
	items := make([]read.Item, len(found))
	for i, p := range found {
		items[i] = p.Item
		pool, err := p.view.Get(liquidity.Pools, p.Key[common.HashLength:])
		if err != nil {
			return nil, err
		}
		if pool != nil {
			items[i].Parts = [][]byte{pool}
		}
	}
	return items, nil
}

// Positions implements MarketReader. The owner of a position is in one partition, its contents in that of its
// pool, which is found only by the token ID. So the wallet's positions are read first, and then again with
// their contents.
func (c *Client) Positions(ctx context.Context, q PositionsQuery) (Answer[Page[Position]], error) {
	full := &positionsQuery{PositionsQuery: q, Manager: c.manager}
	for range attempts {
		a, err := c.Read(ctx, read.Request{Operation: opPositions, Query: full})
		if err != nil {
			return Answer[Page[Position]]{}, err
		}
		split, err := inSections(a.Items)
		if err != nil {
			return Answer[Page[Position]]{}, err
		}
		owned, err := read.PageOf(split[sectionOwned], q.Limit, decodeRow[topics.Position])
		if err != nil {
			return Answer[Page[Position]]{}, err
		}
		keys := make([]common.Hash, len(owned.Items))
		for i := range owned.Items {
			keys[i] = owned.Items[i].TokenID.Bytes32()
		}
		if slices.Equal(keys, full.Keys) {
			positions, err := decodePositions(keys, &split, full.Manager)
			return Answer[Page[Position]]{At: a.Block, Value: Page[Position]{Items: positions, Next: owned.Next}}, err
		}
		full.Keys = keys
	}
	return Answer[Page[Position]]{}, fmt.Errorf("positions changed owners between reads: %w", ErrUnavailable)
}

// decodePositions combines what the partitions know of the positions.
func decodePositions(keys []common.Hash, split *[sections][]read.Item, manager common.Address) ([]Position, error) {
	pools, err := poolsOf(split[sectionPool])
	if err != nil {
		return nil, err
	}
	contents, err := liquidityOf(split[sectionLiquidity])
	if err != nil {
		return nil, err
	}
	registered := false
	for _, it := range split[sectionAsset] {
		a, err := decodeAsset(it)
		if err != nil {
			return nil, err
		}
		registered = registered || a.Token == manager && a.Allowed && a.Kind == contracts.KindPosition
	}
	all := make([]Position, 0, len(keys))
	for _, key := range keys {
		content, pool := contents[key], (*topics.Pool)(nil)
		if content != nil {
			pool = pools[content.PoolID]
		}
		if pool == nil {
			continue // minted without liquidity: the manager does not do so
		}
		p := Position{
			PositionLiquidity: *content, Currency0: pool.Currency0, Currency1: pool.Currency1, Fee: pool.Fee,
			InRange: content.TickLower <= pool.Tick && pool.Tick < content.TickUpper,
			Refusal: refusal(registered, pool, content),
		}
		amount0, amount1, err := ammv4.Amounts(&pool.SqrtPriceX96, pool.Tick, p.TickLower, p.TickUpper, &p.Liquidity)
		if err != nil {
			return nil, fmt.Errorf("amounts of position %s: %w", p.TokenID.Dec(), err)
		}
		p.Amount0, p.Amount1 = *amount0, *amount1
		all = append(all, p)
	}
	return all, nil
}

// dynamicFee is the fee of a pool whose hooks set the fee.
const dynamicFee = 1 << 23

// refusal checks a position as AssetRegistry.onList does.
func refusal(registered bool, pool *topics.Pool, p *topics.PositionLiquidity) Refusal {
	switch {
	case !registered:
		return RefusalAsset
	case pool.Limits == nil || !pool.Limits.Allowed:
		return RefusalPool
	case pool.Fee == dynamicFee:
		return RefusalFee
	case pool.Hooks != (common.Address{}):
		return RefusalHooks
	case p.Liquidity.Lt(&pool.Limits.MinLiquidity) || p.Liquidity.Gt(&pool.Limits.MaxLiquidity):
		return RefusalLiquidity
	}
	return RefusalNone
}

func poolsOf(items []read.Item) (map[common.Hash]*topics.Pool, error) {
	rows, err := decodeAll[topics.Pool](items)
	pools := make(map[common.Hash]*topics.Pool, len(rows))
	for i := range rows {
		pools[rows[i].ID] = &rows[i]
	}
	return pools, err
}

func liquidityOf(items []read.Item) (map[common.Hash]*topics.PositionLiquidity, error) {
	rows, err := decodeAll[topics.PositionLiquidity](items)
	contents := make(map[common.Hash]*topics.PositionLiquidity, len(rows))
	for i := range rows {
		contents[rows[i].TokenID.Bytes32()] = &rows[i]
	}
	return contents, err
}

// readPositions reads a page of an owner's positions, and the contents of the given ones.
func readPositions(_ context.Context, views *read.Views, q *positionsQuery) ([]read.Item, error) {
	var c collector
	prefix := q.Owner.Bytes()
	var after []byte
	if q.After != nil {
		after = slices.Concat(prefix, q.After)
	}
	found, err := lowest(views.Of, q.Limit+1, func(v state.View, visit visitor) error {
		return v.ScanIndex(liquidity.IndexPositionOwner, prefix, after, func(entry, _ []byte) bool {
			return visit(entry[len(prefix):], nil, true)
		})
	})
	if err != nil {
		return nil, err
	}
	for _, p := range found {
		row, err := p.view.Get(liquidity.Positions, p.Key)
		if err != nil {
			return nil, err
		}
		c.add(sectionOwned, p.Key, row)
	}
	for _, v := range views.Of {
		if err := addContents(&c, v, q.Keys); err != nil {
			return nil, err
		}
		row, err := v.Get(assets.Assets, q.Manager[:])
		if err != nil {
			return nil, err
		}
		c.add(sectionAsset, nil, row)
	}
	return c.sorted(), nil
}

// addContents adds the contents of positions whose pools are in the partition, and these pools.
func addContents(c *collector, v state.View, keys []common.Hash) error {
	seen := map[common.Hash]bool{}
	return wantedOf(keys).in(v, func(place int, row []byte, p *topics.PositionLiquidity) error {
		c.add(sectionLiquidity, keys[place][:], row)
		if seen[p.PoolID] {
			return nil
		}
		seen[p.PoolID] = true
		pool, err := v.Get(liquidity.Pools, p.PoolID[:])
		c.add(sectionPool, p.PoolID[:], pool)
		return err
	})
}
