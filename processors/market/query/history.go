package query

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/wire"
	"github.com/lienstream/lienstream/processors/market/stats"
	"github.com/lienstream/lienstream/topics"
)

// MaxDays bounds a history.
const MaxDays = 366

// Day is what was locked at the end of a UTC day of block time, and what was funded in it, in raw USDG. The current day
// is as of the answer's block: it has the TVL of Stats.
type Day struct {
	Start        uint64      // its first second
	TVL          TVL         // at the prices of that moment
	Volume, Fees uint256.Int // as in Windows
}

// daysQuery asks for the last days, and daysQuery.of says which.
type daysQuery struct {
	Market market
	Days   int
}

func (q *daysQuery) Code(c *wire.Coder) {
	q.Market.code(c)
	c.Int(&q.Days)
}

func (q *daysQuery) Validate() error { return checkDays(q.Days) }

func checkDays(days int) error {
	if days < 1 || days > MaxDays {
		return fmt.Errorf("days: %d is not in 1-%d", days, MaxDays)
	}
	return nil
}

// dayAmountsQuery asks for the contents of positions on the days on which they were collateral.
type dayAmountsQuery struct {
	Days int
	Keys []common.Hash // token IDs
	Open [][]byte      // for each key its daySet
}

func (q *dayAmountsQuery) Code(c *wire.Coder) {
	c.Int(&q.Days)
	codeHashes(c, &q.Keys)
	wire.Slice(c, &q.Open, maxOpenPositions, 1, func(set *[]byte) { c.Bytes(set, daySetBytes(MaxDays)) })
}

func (q *dayAmountsQuery) Validate() error {
	if len(q.Keys) > maxOpenPositions || len(q.Open) != len(q.Keys) {
		return fmt.Errorf("keys: %d, open: %d", len(q.Keys), len(q.Open))
	}
	if err := checkDays(q.Days); err != nil {
		return err
	}
	for _, set := range q.Open {
		if len(set) != daySetBytes(q.Days) {
			return fmt.Errorf("open: a set of %d days has %d bytes", q.Days, len(set))
		}
	}
	return nil
}

// period is the days of a history, by their number since 1970.
type period struct {
	first uint64
	days  int
}

// periodOf is the last days before the end of the day of a time. There are none before 1970.
func periodOf(now uint64, days int) period {
	today := now / day
	n := min(uint64(days), today+1)
	return period{first: today + 1 - n, days: int(n)}
}

// at is the place of a day. Later days than the last are at the end.
func (p period) at(day uint64) int { return int(min(day-p.first, uint64(p.days))) }

// lastDays reads the last days: what the partitions have of collateral, prices and funded deals, then the positions
// that were collateral, and what was in these, all as of one block.
func (c *Client) lastDays(ctx context.Context, days int) (at read.Moment, all []Day, err error) {
	for range attempts {
		a, err := c.Read(ctx, read.Request{Operation: opHistory, Query: &daysQuery{c.market, days}})
		if err != nil {
			return at, nil, err
		}
		split, err := inSections(a.Items)
		if err != nil {
			return at, nil, err
		}
		more, err := c.dayAmounts(ctx, a.Block, days)
		if errors.Is(err, ErrUnavailable) {
			continue // the block was left behind
		}
		if err != nil {
			return at, nil, err
		}
		split[sectionCollateral] = append(split[sectionCollateral], more...)
		all, err := decodeHistory(periodOf(a.Block.Timestamp, days), &split, &c.market)
		return a.Moment, all, err
	}
	return at, nil, fmt.Errorf("the market changed between reads: %w", ErrUnavailable)
}

func decodeHistory(p period, split *[sections][]read.Item, m *market) ([]Day, error) {
	all := make([]Day, p.days)
	for i := range all {
		all[i].Start = (p.first + uint64(i)) * day
	}
	for _, it := range split[sectionDay] {
		f, err := stats.Decode[stats.Flow](it.Row)
		if err != nil || len(it.Key) != 2 || int(binary.BigEndian.Uint16(it.Key)) >= p.days {
			return nil, errors.Join(err, read.ErrMalformed)
		}
		d := &all[binary.BigEndian.Uint16(it.Key)]
		d.Volume.Add(&d.Volume, &f.Volume)
		d.Fees.Add(&d.Fees, &f.Fees)
	}
	held := map[assetKey]amounts{}
	for _, it := range split[sectionCollateral] {
		if len(it.Key) != 1+common.AddressLength {
			return nil, read.ErrMalformed
		}
		lane, token := stats.CollateralOf(it.Key)
		k := assetKey{token, lane}
		if held[k] == nil {
			held[k] = make(amounts, p.days)
		}
		if !held[k].addSteps(it.Row) {
			return nil, read.ErrMalformed
		}
	}
	books, err := booksOf(p, split, m)
	if err != nil {
		return nil, err
	}
	for i := range all {
		of := map[assetKey]*uint256.Int{}
		for k, days := range held {
			if !days[i].IsZero() {
				of[k] = &days[i]
			}
		}
		all[i].TVL = valueOf(of, books[i])
	}
	return all, nil
}

// booksOf are the prices at the end of each day, from the last one back: a pool is what it is now, or what it was
// before its first change on a later day.
func booksOf(p period, split *[sections][]read.Item, m *market) ([]*priceBook, error) {
	pools := map[common.Hash]topics.Pool{}
	now, err := decodeAll[topics.Pool](split[sectionPool])
	if err != nil {
		return nil, err
	}
	for _, pool := range now {
		pools[pool.ID] = pool
	}
	books := make([]*priceBook, p.days)
	former := split[sectionPoolDay]
	for i := p.days - 1; i >= 0; i-- {
		changed := i == p.days-1
		for ; len(former) > 0; former = former[:len(former)-1] {
			it := former[len(former)-1]
			if len(it.Key) != 2+common.HashLength {
				return nil, read.ErrMalformed
			}
			if int(binary.BigEndian.Uint16(it.Key)) <= i {
				break
			}
			pool, err := decodeRow[topics.Pool](it)
			if err != nil {
				return nil, err
			}
			pools[common.BytesToHash(it.Key[2:])], changed = pool, true
		}
		if !changed {
			books[i] = books[i+1]
			continue
		}
		books[i] = bookOf(slices.Collect(maps.Values(pools)), m)
	}
	return books, nil
}

// amounts are raw amounts of one asset at the end of each day.
type amounts []uint256.Int

const stepBytes = 2 + 32

// steps are the days from which on there is another amount: the day's place and the amount.
func (a amounts) steps() (row []byte) {
	var last uint256.Int
	for i := range a {
		if a[i] != last {
			last = a[i]
			raw := last.Bytes32()
			row = append(binary.BigEndian.AppendUint16(row, uint16(i)), raw[:]...)
		}
	}
	return row
}

// addSteps adds the amounts of another partition. False: they are malformed.
func (a amounts) addSteps(row []byte) bool {
	if len(row)%stepBytes != 0 {
		return false
	}
	var (
		amount uint256.Int
		i      int
	)
	until := func(end int) {
		for ; i < end; i++ {
			a[i].Add(&a[i], &amount)
		}
	}
	for ; len(row) > 0; row = row[stepBytes:] {
		from := int(binary.BigEndian.Uint16(row))
		if from < i || from >= len(a) {
			return false
		}
		until(from)
		amount.SetBytes32(row[2:stepBytes])
	}
	until(len(a))
	return true
}

// positionKey is the key of a position's contents beside other collateral.
func positionKey(token common.Address) []byte {
	return stats.CollateralKey(contracts.LanePosition, token)
}
