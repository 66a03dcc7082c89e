package query

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/family"
	"github.com/lienstream/lienstream/processors/market/liquidity"
	"github.com/lienstream/lienstream/processors/market/prices"
	"github.com/lienstream/lienstream/processors/market/stats"
	"github.com/lienstream/lienstream/topics"
)

// The part of a history that one node computes. It goes back from now, and reads nothing that is older than the days
// asked for.

// positionsPerCheck is the number of positions between two checks of the context.
const positionsPerCheck = 64

// positionsPerScan bounds the positions whose past liquidity is in memory at a time.
const positionsPerScan = 1024

// readHistory adds up the collateral of these partitions and the funded deals, with the pools as they were on each day.
func readHistory(ctx context.Context, views *read.Views, q *daysQuery) ([]read.Item, error) {
	var c collector
	held, flows := map[string]amounts{}, map[int]*stats.Flow{}
	for _, v := range views.Of {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p := periodOf(v.At().Timestamp, q.Days)
		err := errors.Join(addHeld(held, v, p), addFlows(flows, v, p), addPoolDays(&c, v, &q.Market, p))
		if err != nil {
			return nil, err
		}
	}
	addAmounts(&c, held)
	for i, f := range flows {
		row, err := f.AppendBinary(nil)
		if err != nil {
			return nil, err
		}
		c.add(sectionDay, place(i), row)
	}
	return c.sorted(), nil
}

func addAmounts(c *collector, held map[string]amounts) {
	for key, of := range held {
		c.add(sectionCollateral, []byte(key), of.steps())
	}
}

// place is the index of a day, as a part of a key.
func place(i int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(i)) }

// addHeld adds a partition's collateral but positions: what it is now, less what changed since.
func addHeld(held map[string]amounts, v state.View, p period) error {
	own := map[string]amounts{}
	fill := func(key []byte, end int, raw *uint256.Int) {
		if own[string(key)] == nil {
			own[string(key)] = make(amounts, p.days)
		}
		for of := own[string(key)]; end > 0; end-- {
			of[end-1] = *raw
		}
	}
	var bad error
	err := stats.ScanCollateral(v, func(key, row []byte) bool {
		var a stats.Amount
		a, bad = stats.Decode[stats.Amount](row)
		fill(key, p.days, &a.Raw)
		return bad == nil
	})
	if err = errors.Join(err, bad); err != nil {
		return err
	}
	// The amount before the first change of a day is that at the end of each day since the previous change.
	from := map[string]int{}
	err = stats.ScanCollateralAfter(v, p.first, func(day uint64, key []byte, raw *uint256.Int) {
		if own[string(key)] == nil {
			own[string(key)] = make(amounts, p.days)
		}
		end := p.at(day)
		for i := from[string(key)]; i < end; i++ {
			own[string(key)][i] = *raw
		}
		from[string(key)] = end
	})
	for key, of := range own {
		if held[key] == nil {
			held[key] = of
			continue
		}
		for i := range of {
			held[key][i].Add(&held[key][i], &of[i])
		}
	}
	return err
}

func addFlows(flows map[int]*stats.Flow, v state.View, p period) (err error) {
	bad := stats.ScanHours(v, p.first*day, func(n uint64, added []byte) {
		i := int(n*prices.Hour/day - p.first)
		f, malformed := stats.Decode[stats.Flow](added)
		if malformed != nil || i >= p.days {
			err = cmp.Or(malformed, read.ErrMalformed)
			return
		}
		if flows[i] == nil {
			flows[i] = new(stats.Flow)
		}
		addFlow(flows[i], &f)
	})
	return errors.Join(err, bad)
}

// addPoolDays adds the pools that define prices, and all pools as they were on the days before.
func addPoolDays(c *collector, v state.View, m *market, p period) error {
	if err := addPools(c, v, m, func(*topics.Pool) {}); err != nil {
		return err
	}
	return liquidity.ScanPoolsAfter(v, p.first, func(day uint64, id common.Hash, row []byte) {
		c.add(sectionPoolDay, append(place(p.at(day)), id[:]...), row)
	})
}

// readOpenChanges lists the openChanges of each partition, up to the limit.
func readOpenChanges(_ context.Context, views *read.Views, q *openChangesQuery) (items []read.Item, err error) {
	after, behind := openChangeOf(q.After)
	for i, v := range views.Of {
		from := openChange{partition: views.Partitions[i], day: periodOf(v.At().Timestamp, q.Days).first, id: lastID}
		if behind && after.partition > from.partition {
			continue
		}
		if behind && after.partition == from.partition {
			from = after
		}
		if items, err = appendOpenChanges(items, v, from, q.Limit); err != nil {
			return nil, err
		}
		if len(items) == q.Limit {
			break
		}
	}
	return items, nil
}

// appendOpenChanges appends the openChanges of a partition after the given one.
func appendOpenChanges(items []read.Item, v state.View, after openChange, limit int) ([]read.Item, error) {
	tell := func(day uint64, id common.Hash, was bool) bool {
		items = append(items, openChange{after.partition, day, id}.item(was))
		return len(items) < limit
	}
	last, told := after.id, after.day == stillOpen
	if !told {
		err := stats.ScanOpenAfter(v, family.DayKey(after.day, after.id[:]...), tell)
		if err != nil || len(items) == limit {
			return items, err
		}
		last = common.Hash{}
	}
	err := v.ScanIndex(deals.IndexOpenPosition, nil, last.Bytes(), func(entry, _ []byte) bool {
		id := common.BytesToHash(entry[:common.HashLength])
		if told && id == last { // of another deal
			return true
		}
		last, told = id, true
		return tell(stillOpen, id, true)
	})
	return items, err
}

// readDayAmounts adds up the contents of positions whose pools are in these partitions, by token and day.
func readDayAmounts(ctx context.Context, views *read.Views, q *dayAmountsQuery) ([]read.Item, error) {
	var c collector
	held, ids := map[string]amounts{}, wantedOf(q.Keys)
	for _, v := range views.Of {
		past := poolsPast{view: v, period: periodOf(v.At().Timestamp, q.Days), of: map[common.Hash][]*topics.Pool{}}
		if past.days != q.Days {
			return nil, fmt.Errorf("%w: %d days", read.ErrBadRequest, q.Days)
		}
		found := 0
		for part := range slices.Chunk(ids, positionsPerScan) {
			if err := past.scanLiquidityBefore(part); err != nil {
				return nil, err
			}
			err := part.in(v, func(place int, _ []byte, now *topics.PositionLiquidity) error {
				if found++; found%positionsPerCheck == 0 && ctx.Err() != nil {
					return ctx.Err()
				}
				return past.addPosition(held, now, q.Open[place])
			})
			if err != nil {
				return nil, err
			}
		}
	}
	addAmounts(&c, held)
	return c.sorted(), nil
}

// poolsPast is the pools of a partition at the end of each day.
type poolsPast struct {
	view state.View
	period
	poolsBefore     map[common.Hash][]poolBefore // by pool; nil: not read yet
	of              map[common.Hash][]*topics.Pool
	liquidityBefore map[common.Hash][]liquidityBefore // of the positions whose liquidity changed
	liquid          []uint256.Int                     // buffer for one position
}

// liquidityBefore is the liquidity of a position before its first change on a day.
type liquidityBefore struct {
	at  int
	was uint256.Int
}

// poolBefore is a pool before its first change on a day.
type poolBefore struct {
	at  int
	row []byte
}

func (p *poolsPast) load() error {
	if p.poolsBefore != nil {
		return nil
	}
	p.poolsBefore = map[common.Hash][]poolBefore{}
	return liquidity.ScanPoolsAfter(p.view, p.first, func(day uint64, id common.Hash, row []byte) {
		p.poolsBefore[id] = append(p.poolsBefore[id], poolBefore{p.at(day), bytes.Clone(row)})
	})
}

// pool is a pool at the end of each day; nil: there was none.
func (p *poolsPast) pool(id common.Hash) ([]*topics.Pool, error) {
	if all := p.of[id]; all != nil {
		return all, nil
	}
	if err := p.load(); err != nil {
		return nil, err
	}
	row, err := p.view.Get(liquidity.Pools, id[:])
	if err != nil {
		return nil, err
	}
	all, from := make([]*topics.Pool, p.days), 0
	for _, f := range append(slices.Clip(p.poolsBefore[id]), poolBefore{p.days, row}) {
		if f.row == nil {
			continue
		}
		pool := new(topics.Pool)
		if err := pool.UnmarshalBinary(f.row); err != nil {
			return nil, fmt.Errorf("decode pool: %w", err)
		}
		for ; from < f.at; from++ {
			if pool.Initialized {
				all[from] = pool
			}
		}
	}
	p.of[id] = all
	return all, nil
}

// scanLiquidityBefore reads the past liquidity of positions in one scan: it changed for few of them, and a seek for
// each would take most of the time of a history.
func (p *poolsPast) scanLiquidityBefore(w wanted) error {
	p.liquidityBefore = map[common.Hash][]liquidityBefore{}
	if p.days == 1 {
		return nil // only the present liquidity counts
	}
	for ended := false; len(w) > 0 && !ended; {
		ended = true // unless the scan gives up before the last row
		passed, bad := 0, error(nil)
		err := liquidity.ScanLiquidityAfter(p.view, w[0].id, p.first, func(id common.Hash, day uint64, row []byte) bool {
			for len(w) > 0 && w[0].id.Cmp(id) < 0 {
				w = w[1:]
			}
			switch {
			case len(w) == 0:
				return false
			case w[0].id != id || day <= p.first:
				passed++
				ended = passed < maxPassed
				return ended
			}
			var was topics.PositionLiquidity
			if bad = was.UnmarshalBinary(row); bad != nil {
				bad = fmt.Errorf("decode position: %w", bad)
				return false
			}
			passed, p.liquidityBefore[id] = 0, append(p.liquidityBefore[id], liquidityBefore{p.at(day), was.Liquidity})
			return true
		})
		if err = errors.Join(bad, err); err != nil {
			return err
		}
	}
	return nil
}

// addPosition adds what was in a position on each day on which it was collateral.
func (p *poolsPast) addPosition(held map[string]amounts, now *topics.PositionLiquidity, open daySet) error {
	pools, err := p.pool(now.PoolID)
	if err != nil {
		return err
	}
	if p.liquid == nil {
		p.liquid = make([]uint256.Int, p.days)
	}
	liquid, from := p.liquid, 0
	until := func(end int, was *uint256.Int) {
		for ; from < end; from++ {
			liquid[from] = *was
		}
	}
	for _, d := range p.liquidityBefore[now.TokenID.Bytes32()] {
		until(d.at, &d.was)
	}
	until(p.days, &now.Liquidity)
	return p.addContents(held, now, pools, liquid, open)
}

func (p *poolsPast) addContents(held map[string]amounts, of *topics.PositionLiquidity, pools []*topics.Pool, liquid []uint256.Int, open daySet) (err error) {
	var (
		amount0, amount1 *uint256.Int
		sums0, sums1     amounts
		pool             *topics.Pool
		ticks            ammv4.Range
		last             uint256.Int
	)
	sumsOf := func(token common.Address) amounts {
		key := string(positionKey(token))
		if held[key] == nil {
			held[key] = make(amounts, p.days)
		}
		return held[key]
	}
	for i := range p.days {
		if !open.has(i) || pools[i] == nil {
			continue
		}
		if pools[i] != pool || liquid[i] != last {
			if pool == nil {
				sums0, sums1 = sumsOf(pools[i].Currency0), sumsOf(pools[i].Currency1)
				if ticks, err = ammv4.RangeOf(of.TickLower, of.TickUpper); err != nil {
					return fmt.Errorf("range of position %s: %w", of.TokenID.Dec(), err)
				}
			}
			pool, last = pools[i], liquid[i]
			amount0, amount1, err = ticks.Amounts(&pool.SqrtPriceX96, pool.Tick, &last)
			if err != nil {
				return fmt.Errorf("amounts of position %s: %w", of.TokenID.Dec(), err)
			}
		}
		sums0[i].Add(&sums0[i], amount0)
		sums1[i].Add(&sums1[i], amount1)
	}
	return nil
}
