package query

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/engine/wire"
	"github.com/lienstream/lienstream/processors/market/assets"
	"github.com/lienstream/lienstream/processors/market/burns"
	"github.com/lienstream/lienstream/processors/market/epochs"
	"github.com/lienstream/lienstream/processors/market/liquidity"
	"github.com/lienstream/lienstream/topics"
)

// The lists of the token layer, the newest first.
var (
	Epochs = newList[topics.Epoch]("epochs", epochs.Epochs)
	Burns  = newList[topics.Burn]("burns", burns.Burns)
)

var opOverview = newOperation("overview", readOverview)

// latestBurns is the number of burns in an overview.
const latestBurns = 20

// Rewards are the drips of a wallet.
type Rewards struct {
	Drips         []Drip      // the newest, ascending by ID
	ClaimableNow  uint256.Int // of all drips
	StillDripping uint256.Int // total minus unlocked, of all drips
	MoreDrips     bool        // there are more than MaxPortfolio drips
	PoolOverview
}

// PoolOverview is the state of the token layer. Without the token layer it is zero.
type PoolOverview struct {
	Pool                   *PoolSummary  // nil: not initialised
	Epoch                  *topics.Epoch // the newest, whether or not it is over; nil: none was opened
	BurnedThisWeek         *uint256.Int  // wei of sTKN since Epoch started; nil if Epoch is nil
	Burns                  []topics.Burn // the latest, the newest first, latestBurns at the most
	Truncated              bool          // there are more burns
	EmissionsRatePerSecond *uint256.Int  // wei of sTKN, 0 once the period is over; nil: never notified
	Floor                  *Floor        // nil: no seed position
}

// PoolSummary is the pool of sTKN and TKN.
type PoolSummary struct {
	topics.Pool
	PriceSTKNinTKN Price
	TotalWeight    uint256.Int // of all stakes
	DepthTKN       uint256.Int // wei of TKN that a sale takes out of the pool until the price of sTKN has fallen by 2 %
}

// Floor is the lowest price of sTKN at which a seed position still has liquidity.
type Floor struct {
	Tick           int32
	PriceSTKNinTKN Price // at the tick
}

// Code implements wire.Value: it is how the hot cache keeps an overview.
func (v *PoolOverview) Code(c *wire.Coder) {
	wire.Optional(c, &v.Pool, func(p *PoolSummary) {
		codeRow(c, &p.Pool)
		p.PriceSTKNinTKN.code(c)
		codeWord(c, &p.TotalWeight)
		codeWord(c, &p.DepthTKN)
	})
	wire.Optional(c, &v.Epoch, func(e *topics.Epoch) { codeRow(c, e) })
	wire.Optional(c, &v.BurnedThisWeek, func(n *uint256.Int) { codeWord(c, n) })
	wire.Slice(c, &v.Burns, latestBurns, 1, func(b *topics.Burn) { codeRow(c, b) })
	wire.Optional(c, &v.EmissionsRatePerSecond, func(n *uint256.Int) { codeWord(c, n) })
	wire.Optional(c, &v.Floor, func(f *Floor) {
		c.Int32(&f.Tick)
		f.PriceSTKNinTKN.code(c)
	})
	c.Bool(&v.Truncated)
}

// overviewQuery asks for the token layer and, with a wallet, for its drips.
type overviewQuery struct {
	Market     market
	Wallet     *portfolioQuery
	EpochStart uint64 // burns are summed up from then on
}

func (q *overviewQuery) Code(c *wire.Coder) {
	q.Market.code(c)
	wire.Optional(c, &q.Wallet, func(w *portfolioQuery) { w.Code(c) })
	c.Uint64(&q.EpochStart)
}

func (q *overviewQuery) Validate() error { return nil }

// lastParams remembers which parameters the last answers needed: the next ones probably need the same.
type lastParams struct {
	epochStart atomic.Uint64
	followUps  atomic.Pointer[followUps]
	closedDays atomic.Pointer[closedDays]
	windows    atomic.Pointer[tickWindows]
}

// Pool implements MarketReader.
func (c *Client) Pool(ctx context.Context) (Answer[PoolOverview], error) {
	a, err := c.overview(ctx, nil)
	return Answer[PoolOverview]{At: a.At, Value: a.Value.PoolOverview}, err
}

// Rewards implements MarketReader.
func (c *Client) Rewards(ctx context.Context, wallet common.Address) (Answer[Rewards], error) {
	return c.overview(ctx, &wallet)
}

// overview sends the last epoch's start, and repeats the read if a new epoch has begun: the burns since its
// start are in other partitions than the epoch.
func (c *Client) overview(ctx context.Context, wallet *common.Address) (Answer[Rewards], error) {
	q := &overviewQuery{Market: c.market, EpochStart: c.last.epochStart.Load()}
	if wallet != nil {
		q.Wallet = &portfolioQuery{*wallet, c.accountPartition(*wallet)}
	}
	for range attempts {
		a, err := c.Read(ctx, read.Request{Operation: opOverview, Query: q})
		if err != nil {
			return Answer[Rewards]{}, err
		}
		v, err := decodeOverview(a, q)
		if err != nil {
			return Answer[Rewards]{}, err
		}
		if v.Epoch == nil || v.Epoch.StartsAt == q.EpochStart {
			return Answer[Rewards]{At: a.Block, Value: v}, nil
		}
		q.EpochStart = v.Epoch.StartsAt
		c.last.epochStart.Store(q.EpochStart)
	}
	return Answer[Rewards]{}, fmt.Errorf("epochs changed between reads: %w", ErrUnavailable)
}

func decodeOverview(a *read.Response, q *overviewQuery) (v Rewards, err error) {
	split, err := inSections(a.Items)
	if err != nil {
		return v, err
	}
	if v.Drips, err = dripsAt(clipNewest(split[sectionDrip], &v.MoreDrips), a.Block.Timestamp); err != nil {
		return v, err
	}
	var sums dripSums
	if err := sums.decode(split[sectionDripSum]); err != nil {
		return v, err
	}
	v.ClaimableNow, v.StillDripping = sums.claimable, sums.dripping
	if q.Market.Pool == (common.Hash{}) {
		return v, nil
	}
	if v.Epoch, err = decodeFirst[topics.Epoch](split[sectionEpoch]); err != nil {
		return v, err
	}
	latest := split[sectionBurn]
	if v.Truncated = len(latest) > latestBurns; v.Truncated {
		latest = latest[:latestBurns]
	}
	if v.Burns, err = decodeAll[topics.Burn](latest); err != nil {
		return v, err
	}
	if v.Epoch != nil {
		burned := sumWords(split[sectionBurned])
		v.BurnedThisWeek = &burned
	}
	pool, err := decodeFirst[topics.Pool](split[sectionPool])
	if err != nil {
		return v, err
	}
	staking, err := decodeFirst[topics.Staking](split[sectionStaking])
	if err != nil {
		return v, err
	}
	v.EmissionsRatePerSecond = emissions(staking, a.Block.Timestamp)
	if pool == nil || !pool.Initialized {
		return v, nil
	}
	pair, err := pairOf(pool, &q.Market, split[sectionAsset])
	if err != nil {
		return v, err
	}
	v.Pool = &PoolSummary{Pool: *pool, PriceSTKNinTKN: pair.price(&pool.SqrtPriceX96)}
	if staking != nil {
		v.Pool.TotalWeight = staking.TotalWeight
	}
	if v.Pool.DepthTKN, err = pair.depth(split[sectionTick]); err != nil {
		return v, err
	}
	v.Floor, err = pair.floor(split[sectionSeed])
	return v, err
}

// emissions is the rate at a time: 0 after the period. Nil: never notified.
func emissions(s *topics.Staking, now uint64) *uint256.Int {
	switch {
	case s == nil || s.Epoch == 0:
		return nil
	case now >= s.PeriodFinish:
		return new(uint256.Int)
	}
	return s.RatePerSecond.Clone()
}

func readOverview(_ context.Context, views *read.Views, q *overviewQuery) ([]read.Item, error) {
	var c collector
	for i, v := range views.Of {
		if err := addTokenLayer(&c, v, q); err != nil {
			return nil, err
		}
		if q.Wallet != nil && views.Partitions[i] == q.Wallet.Home {
			if err := addDrips(&c, v, q.Wallet.Wallet); err != nil {
				return nil, err
			}
		}
	}
	return c.sorted(), nil
}

func addTokenLayer(c *collector, v state.View, q *overviewQuery) error {
	m := &q.Market
	if m.Pool == (common.Hash{}) {
		return nil
	}
	if err := addDecimals(c, v, m); err != nil {
		return err
	}
	if err := addEpochAndBurns(c, v, q.EpochStart); err != nil {
		return err
	}
	row, err := v.Get(liquidity.Pools, m.Pool[:])
	if err != nil || row == nil {
		return err
	}
	c.add(sectionPool, m.Pool[:], row)
	var pool topics.Pool
	if err := pool.UnmarshalBinary(row); err != nil {
		return fmt.Errorf("decode pool: %w", err)
	}
	staking, err := v.Get(liquidity.Stakings, m.Pool[:])
	if err != nil {
		return err
	}
	c.add(sectionStaking, m.Pool[:], staking)
	if err := v.ScanIndex(liquidity.IndexSeed, m.Pool[:], nil, c.addAll(sectionSeed)); err != nil {
		return err
	}
	// Two per cent of the price are 202 ticks; the pool's tick may be one below that of its price.
	from, to := pool.Tick-depthTicks, pool.Tick+depthTicks
	after := liquidity.TickKey(m.Pool, max(from, ammv4.MinTick)-1)
	return v.Scan(liquidity.Ticks, m.Pool[:], after, func(key, row []byte) bool {
		if liquidity.TickOf(key) > to {
			return false
		}
		c.add(sectionTick, key, row)
		return true
	})
}

// addDecimals adds the registry's entries of tokens whose decimals a price needs.
func addDecimals(c *collector, v state.View, m *market) error {
	for _, token := range []common.Address{m.STKN, m.TKN, m.USDG} {
		row, err := v.Get(assets.Assets, token[:])
		if err != nil {
			return err
		}
		c.add(sectionAsset, token[:], row)
	}
	return nil
}

// addEpochAndBurns adds the newest epoch, the latest burns, and the sum burned since a time.
func addEpochAndBurns(c *collector, v state.View, since uint64) error {
	err := v.Scan(epochs.Epochs, nil, nil, func(key, row []byte) bool {
		c.add(sectionEpoch, key, row)
		return false
	})
	if err != nil {
		return err
	}
	var all, before []byte
	left := latestBurns + 1 // one more tells that there are more
	err = v.Scan(burns.Burns, nil, nil, func(key, row []byte) bool {
		if all == nil {
			all = append(all, row...)
		}
		c.add(sectionBurn, key, row)
		left--
		return left > 0
	})
	if err != nil || all == nil {
		return err
	}
	err = v.Scan(burns.Burns, nil, burns.Since(since), func(_, row []byte) bool {
		before = append(before, row...)
		return false
	})
	if err != nil {
		return err
	}
	var newest, oldest topics.Burn
	if err := newest.UnmarshalBinary(all); err != nil {
		return fmt.Errorf("decode burn: %w", err)
	}
	if before != nil {
		if err := oldest.UnmarshalBinary(before); err != nil {
			return fmt.Errorf("decode burn: %w", err)
		}
	}
	sum := new(uint256.Int).Sub(&newest.BurnedAfter, &oldest.BurnedAfter).Bytes32()
	c.add(sectionBurned, nil, sum[:])
	return nil
}
