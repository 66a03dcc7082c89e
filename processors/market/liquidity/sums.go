package liquidity

import (
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/family"
)

// Anyone can add tiny positions at every tick of a pool, and the liquidity at a price is the sum of all ticks below it.
// So ticks are also summed up by stretches: a read of the ticks around a price need not read the others.
var (
	// tickSums has the sum of the net liquidity of the ticks of a stretch, two's complement, under sumKey.
	tickSums = &state.Table{ID: tableTickSums, Name: "tick sums"}
	// youngSums has the sum of youngTicks, under sumKey.
	youngSums = &state.Table{ID: tableYoungSums, Name: "young sums"}
)

// sumBits is the logarithm of a stretch's length, to the base of 2: a stretch is about the root of how many ticks there
// may be.
const sumBits = 10

// sumKey is the key of the stretch that a tick is in.
func sumKey(pool common.Hash, tick int32) []byte { return TickKey(pool, tick>>sumBits) }

// rangeEnd is an end of a range: below the upper one its liquidity is subtracted.
type rangeEnd struct {
	tick  int32
	upper bool
}

func endsOf(e *contracts.LiquidityModified) [2]rangeEnd {
	return [2]rangeEnd{{e.TickLower, false}, {e.TickUpper, true}}
}

// addSums adds a change of liquidity to the sums of both ends of its range.
func addSums(w state.Writer, e *contracts.LiquidityModified) error {
	for _, end := range endsOf(e) {
		key := sumKey(e.PoolID, end.tick)
		var sum netSum
		if _, err := family.Get(w, tickSums, key, &sum); err != nil {
			return err
		}
		if end.upper {
			sum.net.Sub(&sum.net, &e.LiquidityDelta)
		} else {
			sum.net.Add(&sum.net, &e.LiquidityDelta)
		}
		if sum.net.IsZero() {
			w.Delete(tickSums, key)
		} else if err := family.Put(w, tickSums, key, &sum); err != nil {
			return err
		}
	}
	return nil
}

// netSum is a row of tickSums.
type netSum struct{ net uint256.Int }

// AppendBinary appends the row. The error is always nil.
func (s *netSum) AppendBinary(b []byte) ([]byte, error) {
	raw := s.net.Bytes32()
	return append(b, raw[:]...), nil
}

// UnmarshalBinary reads a row.
func (s *netSum) UnmarshalBinary(data []byte) error {
	if len(data) != aboveBytes {
		return fmt.Errorf("%w: %d bytes", errSum, len(data))
	}
	s.net.SetBytes32(data)
	return nil
}

var errSum = errors.New("tick sum: wrong row length")

// Below is the liquidity of a pool below a tick, and what of it stands at a time. It reads no more rows than there are
// stretches and ticks in one.
func Below(v state.Reader, pool common.Hash, tick int32, now uint64) (all, standing uint256.Int, err error) {
	var young uint256.Int
	begin := tick >> sumBits << sumBits // of the stretch that the tick is in
	lastSum, lastTick := sumKey(pool, begin-1), TickKey(pool, tick-1)
	if err = scanRows(v, tickSums, pool[:], nil, lastSum, func(_, row []byte) error {
		var sum netSum
		err := sum.UnmarshalBinary(row)
		all.Add(&all, &sum.net)
		return err
	}); err != nil {
		return all, standing, err
	}
	if err = scanRows(v, Ticks, pool[:], TickKey(pool, begin-1), lastTick, func(_, row []byte) error {
		t, err := DecodeTick(row)
		all.Add(&all, &t.Net)
		return err
	}); err != nil {
		return all, standing, err
	}
	add := func(_ []byte, of *uint256.Int) { young.Add(&young, of) }
	if err = scanYoung(v, youngSums, pool, nil, lastSum, now, add); err != nil {
		return all, standing, err
	}
	err = scanYoung(v, youngTicks, pool, TickKey(pool, begin-1), lastTick, now, add)
	standing.Sub(&all, &young)
	return all, standing, err
}
