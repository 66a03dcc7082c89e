package liquidity

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/family"
)

// Liquidity counts as standing once it has been in its range for StandingSeconds: liquidity that is added for one block
// does not show how much money moves a pool. The lowest amount in a range since then is standing, and the rest is
// young.
//
// Only ranges and ticks with young liquidity have a row, one each. It says for each of the last periods how far the
// liquidity is above the lowest since that period began. So liquidity added in a period is young until standingPeriods
// more have begun: for StandingSeconds at least, and for a period more at most.
const (
	StandingSeconds = 30 * 60
	standingPeriods = 3
	periodSeconds   = StandingSeconds / standingPeriods
)

// Period numbers the period that a time is in. Within one nothing becomes standing that was not.
func Period(now uint64) uint64 { return now / periodSeconds }

// Tables of what is young.
var (
	// youngRanges has a recentLiquidity for each range under rangeKey, over all providers.
	youngRanges = &state.Table{ID: tableYoungRanges, Name: "young ranges"}
	// youngTicks has the sum of these under TickKey, as Ticks has that of liquidity: added at the lower tick of a
	// range, subtracted at the upper one.
	youngTicks = &state.Table{ID: tableYoungTicks, Name: "young ticks"}
)

// rangeKey is the key of a range: the pool, then both ticks.
func rangeKey(pool common.Hash, lower, upper int32) []byte {
	return binary.BigEndian.AppendUint32(TickKey(pool, lower), uint32(upper)^1<<31)
}

// recentLiquidity is how far liquidity is above the lowest since a period began: for this period and each of those
// before it, from the last one back. For ticks the amounts are in two's complement.
type recentLiquidity struct {
	period uint64 // of the last change, since 1970
	above  [standingPeriods + 1]uint256.Int
}

const (
	periodBytes          = 4
	aboveBytes           = 32
	recentLiquidityBytes = periodBytes + aboveBytes*(standingPeriods+1)
)

var errRecent = errors.New("recent liquidity: wrong row length")

// AppendBinary appends the row. The error is always nil.
func (y *recentLiquidity) AppendBinary(b []byte) ([]byte, error) {
	b = binary.BigEndian.AppendUint32(b, uint32(y.period))
	for i := range y.above {
		raw := y.above[i].Bytes32()
		b = append(b, raw[:]...)
	}
	return b, nil
}

// UnmarshalBinary reads a row.
func (y *recentLiquidity) UnmarshalBinary(data []byte) error {
	if len(data) != recentLiquidityBytes {
		return fmt.Errorf("%w: %d bytes", errRecent, len(data))
	}
	y.period, data = uint64(binary.BigEndian.Uint32(data)), data[periodBytes:]
	for i := range y.above {
		y.above[i].SetBytes(data[i*aboveBytes : (i+1)*aboveBytes])
	}
	return nil
}

// at goes on to a period, in which nothing has changed yet.
func (y *recentLiquidity) at(period uint64) {
	for ; y.period < period; y.period++ {
		if y.zero() {
			y.period = period
			return
		}
		copy(y.above[1:], y.above[:standingPeriods])
		y.above[0].Clear()
	}
}

// young is what has not stood for long enough.
func (y *recentLiquidity) young() *uint256.Int { return &y.above[standingPeriods] }

// zero reports whether there is nothing to keep.
func (y *recentLiquidity) zero() bool { return y.above == [standingPeriods + 1]uint256.Int{} }

// change is a change of the range's liquidity, a two's complement number: what goes, goes from what came last.
func (y *recentLiquidity) change(delta *uint256.Int) {
	for i := range y.above {
		a := &y.above[i]
		if gone := new(uint256.Int).Neg(delta); delta.Sign() < 0 && a.Lt(gone) {
			a.Clear()
		} else {
			a.Add(a, delta)
		}
	}
}

// add adds what a range has become younger by, or subtracts it.
func (y *recentLiquidity) add(before, after *recentLiquidity, subtract bool) {
	for i := range y.above {
		var by uint256.Int
		by.Sub(&after.above[i], &before.above[i])
		if subtract {
			by.Neg(&by)
		}
		y.above[i].Add(&y.above[i], &by)
	}
}

// age keeps how much of a range is young after a change of its liquidity.
func age(w state.Writer, e *contracts.LiquidityModified) error {
	before, err := putYoung(w, youngRanges, rangeKey(e.PoolID, e.TickLower, e.TickUpper), func(y *recentLiquidity) { y.change(&e.LiquidityDelta) })
	if err != nil {
		return err
	}
	after := before
	after.change(&e.LiquidityDelta)
	for _, end := range endsOf(e) {
		older := func(y *recentLiquidity) { y.add(&before, &after, end.upper) }
		if _, err := putYoung(w, youngTicks, TickKey(e.PoolID, end.tick), older); err != nil {
			return err
		}
		if _, err := putYoung(w, youngSums, sumKey(e.PoolID, end.tick), older); err != nil {
			return err
		}
	}
	return nil
}

// putYoung edits a row as of now, and returns what it was as of now.
func putYoung(w state.Writer, t *state.Table, key []byte, edit func(*recentLiquidity)) (before recentLiquidity, err error) {
	found, err := family.Get(w, t, key, &before)
	if err != nil {
		return before, err
	}
	before.at(Period(w.Block().Timestamp))
	after := before
	edit(&after)
	switch {
	case !after.zero():
		return before, family.Put(w, t, key, &after)
	case found:
		w.Delete(t, key)
	}
	return before, nil
}

// ScanYoung calls fn for the ticks of a pool from one to another at which young liquidity begins or ends at a time,
// ascending, with what has to be subtracted from their net liquidity for that which stands.
func ScanYoung(v state.Reader, pool common.Hash, from, to int32, now uint64, fn func(tick int32, young *uint256.Int)) error {
	return scanYoung(v, youngTicks, pool, TickKey(pool, from-1), TickKey(pool, to), now, func(key []byte, young *uint256.Int) {
		fn(TickOf(key), young)
	})
}

func scanYoung(v state.Reader, t *state.Table, pool common.Hash, after, last []byte, now uint64, fn func(key []byte, young *uint256.Int)) error {
	return scanRows(v, t, pool[:], after, last, func(key, row []byte) error {
		var y recentLiquidity
		if err := y.UnmarshalBinary(row); err != nil {
			return err
		}
		if y.at(Period(now)); !y.young().IsZero() {
			fn(key, y.young())
		}
		return nil
	})
}
