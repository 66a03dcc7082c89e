package query

import (
	"bytes"
	"context"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/assets"
	"github.com/lienstream/lienstream/processors/market/liquidity"
	"github.com/lienstream/lienstream/processors/market/prices"
	"github.com/lienstream/lienstream/topics"
)

// ExchangeReader reads tradable pools and collateral.
type ExchangeReader interface {
	// Exchange returns every pool that the registry allows (without hooks, with a static fee) and the token
	// layer's pool, with all that a swap in it depends on and its price history; and all assets of the
	// registry.
	Exchange(ctx context.Context, q ExchangeQuery) (Answer[Exchange], error)
	// Collateral returns the collateral of a deal, as of a recent block that Exchange has returned.
	// ErrNotFound: no such deal at that block. ErrUnavailable: also if the block is no longer kept, or was
	// reverted.
	Collateral(ctx context.Context, at topics.BlockRef, deal *uint256.Int) (Answer[Collateral], error)
	// Held returns the positions of some owners in a pool, as of a block as in Collateral. It reads the oldest
	// positions of each owner, in any pool, up to an equal part of MaxHeld. Later ones are missing.
	Held(ctx context.Context, at topics.BlockRef, pool common.Hash, owners []common.Address) (Answer[[]topics.PositionLiquidity], error)
	// HoldersOf returns the holders of a meme token, as of a block as in Collateral. ErrNotFound: the token is unknown.
	HoldersOf(ctx context.Context, at topics.BlockRef, q HoldersQuery) (Answer[TokenHolders], error)
}

// ExchangeQuery sets how far back prices go, in seconds before the answer's block.
type ExchangeQuery struct {
	Seconds uint64 // per-second history
	Hours   uint64 // per-hour history
}

// Exchange is the pools and assets as of a block.
type Exchange struct {
	Pools  []PoolState    // ascending by ID
	Assets []topics.Asset // ascending by token
}

// PoolState is a pool with its ticks and price history. Its protocol fee is missing, because no event reports
// it.
type PoolState struct {
	topics.Pool
	Window            // around its price
	Far     []Window  // around the ends of its MedianTick over Seconds, where that one does not reach as far
	Seconds []PriceAt // ascending; the first is the price at the start of the period, if there was one
	Hours   []PriceAt // ascending: the closes of hours, by their first second. Each holds until the next one

	Volume24h prices.Volume // of the current hour and the 23 before it
}

// Collateral is a deal and, if it holds a position, the position's contents.
type Collateral struct {
	Deal     topics.Deal
	Position *topics.PositionLiquidity
}

// Exchange implements ExchangeReader.
func (c *Client) Exchange(ctx context.Context, q ExchangeQuery) (Answer[Exchange], error) {
	for range maxTurns {
		var had tickWindows
		if last := c.last.windows.Load(); last != nil {
			had = *last
		}
		a, err := c.Read(ctx, read.Request{Operation: opExchange, Query: &exchangeQuery{q, c.market.Pool, c.room, had.known()}})
		if err != nil {
			return Answer[Exchange]{}, err
		}
		v, has, whole, err := decodeExchange(a, had)
		if err != nil {
			return Answer[Exchange]{}, err
		}
		c.last.windows.Store(&has) // kept even if this read is cancelled: the next one continues from here
		if whole {
			return Answer[Exchange]{At: a.Block, Value: v}, nil
		}
	}
	return Answer[Exchange]{}, fmt.Errorf("the ticks of pools are not read yet: %w", ErrUnavailable)
}

// maxTurns bounds the requests in which the windows of all pools are read for the first time.
const maxTurns = 256

// Collateral implements ExchangeReader. Only the deal tells which partition has the position, so both are read
// as of the same block.
func (c *Client) Collateral(ctx context.Context, at topics.BlockRef, deal *uint256.Int) (Answer[Collateral], error) {
	none := Answer[Collateral]{At: at}
	a, err := c.Read(ctx, read.Request{Operation: opDeal, Query: &dealQuery{deal.Bytes32()}, Partitions: c.partitionOf(contracts.DealEntity(deal)), At: &at})
	if err != nil {
		return none, err
	}
	if len(a.Items) == 0 {
		return none, ErrNotFound
	}
	found, err := decodeDeal(a.Items[0])
	v := Collateral{Deal: found.Deal}
	if err != nil || v.Deal.Kind != contracts.KindPosition {
		return Answer[Collateral]{At: a.Block, Value: v}, err
	}
	key := common.Hash(v.Deal.AmountOrTokenID.Bytes32())
	if a, err = c.Read(ctx, read.Request{Operation: opContents, Query: &contentsQuery{[]common.Hash{key}}, At: &at}); err != nil {
		return none, err
	}
	v.Position, err = decodeFirst[topics.PositionLiquidity](a.Items)
	return Answer[Collateral]{At: a.Block, Value: v}, err
}

// readContents reads the contents of positions.
func readContents(_ context.Context, views *read.Views, q *contentsQuery) (items []read.Item, err error) {
	ids := wantedOf(q.Keys)
	for _, v := range views.Of {
		err := ids.in(v, func(place int, row []byte, _ *topics.PositionLiquidity) error {
			items = append(items, read.Item{Key: q.Keys[place][:], Row: bytes.Clone(row)})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return items, nil
}

func readExchange(_ context.Context, views *read.Views, q *exchangeQuery) ([]read.Item, error) {
	var c collector
	room := q.Room
	for _, v := range views.Of {
		if err := v.Scan(assets.Assets, nil, nil, c.addAll(sectionAsset)); err != nil {
			return nil, err
		}
		ticks, err := tradable(&c, v, q.Pool)
		if err != nil {
			return nil, err
		}
		now := v.At().Timestamp
		for id, tick := range ticks {
			low, high, err := addSeconds(&c, v, id, now, q.Seconds)
			if err != nil {
				return nil, err
			}
			if room, err = q.addTicks(&c, v, id, []int32{tick, low, high}, room); err != nil {
				return nil, err
			}
			if err := addCloses(&c, v, id, now, q.Hours); err != nil {
				return nil, err
			}
			if err := addVolume(&c, v, id, now); err != nil {
				return nil, err
			}
		}
	}
	return c.sorted(), nil
}

// tradable adds the tradable pools, and returns their ticks by ID.
func tradable(c *collector, v state.View, own common.Hash) (ticks map[common.Hash]int32, err error) {
	ticks = map[common.Hash]int32{}
	var bad error
	visit := func(_, row []byte) bool {
		var p topics.Pool
		if bad = p.UnmarshalBinary(row); bad != nil {
			return false
		}
		if _, twice := ticks[p.ID]; p.Initialized && (p.Hooks == (common.Address{}) || p.ID == own) && p.Fee != dynamicFee && !twice {
			c.add(sectionPool, p.ID[:], row)
			ticks[p.ID] = p.Tick
		}
		return true
	}
	if err = v.ScanIndex(liquidity.IndexAllowedPool, nil, nil, visit); err == nil && bad == nil && own != (common.Hash{}) {
		var row []byte
		if row, err = v.Get(liquidity.Pools, own[:]); err == nil && row != nil {
			visit(nil, row)
		}
	}
	if err == nil {
		err = bad
	}
	if err != nil {
		return nil, fmt.Errorf("pools: %w", err)
	}
	return ticks, nil
}

// decodeExchange decodes an answer to a client that had some windows already.
func decodeExchange(a *read.Response, had tickWindows) (x Exchange, has tickWindows, whole bool, err error) {
	split, err := inSections(a.Items)
	if err != nil {
		return x, nil, false, err
	}
	if x.Assets, err = decodeAll[topics.Asset](split[sectionAsset]); err != nil {
		return x, nil, false, err
	}
	pools, err := decodeAll[topics.Pool](split[sectionPool])
	if err != nil {
		return x, nil, false, err
	}
	x.Pools = make([]PoolState, len(pools))
	places := make(map[common.Hash]*PoolState, len(pools))
	for i := range pools {
		x.Pools[i].Pool = pools[i]
		places[pools[i].ID] = &x.Pools[i]
	}
	if has, whole, err = decodeTicks(split[sectionTick], places, had); err != nil {
		return x, nil, false, err
	}
	for _, it := range split[sectionVolume] {
		p := places[common.BytesToHash(it.Key)]
		if p == nil || p.Volume24h.UnmarshalBinary(it.Row) != nil {
			return x, nil, false, read.ErrMalformed
		}
	}
	seconds, hours := byPool(split[sectionSecond]), byPool(split[sectionHour])
	for i := range x.Pools {
		p := &x.Pools[i]
		if p.Seconds, err = decodePrices(seconds[p.ID], priceBytes, decodePrice); err != nil {
			return x, nil, false, err
		}
		if p.Hours, err = decodePrices(hours[p.ID], prices.CloseBytes, prices.DecodeClose); err != nil {
			return x, nil, false, err
		}
	}
	return x, has, whole, nil
}
