package query

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/liquidity"
)

// Window is what is read of a pool's ticks around one: those nearest to it, as many on either side as a quote crosses.
// Anybody may have put dust at every tick. It is read-only: many answers share it.
type Window struct {
	From, To             int32 // Ticks are all that there are between, both included; both zero: all of the pool's
	Below, StandingBelow uint256.Int
	Ticks                []ammv4.Tick // ascending
	Standing             []ammv4.Tick // the same of the liquidity that has stood for half an hour
}

// sideTicks is how many ticks of a window are on either side.
const sideTicks = ammv4.MaxCrossed

// enoughTicks is how far a window has to reach beyond a tick for it to have none of its own: more than depth is
// measured over.
const enoughTicks = 2 * depthTicks

// reach is how far a tick is from the nearer end of a window; negative: it is outside.
func (w *Window) reach(tick int32) int32 {
	if w.From == w.To {
		return ammv4.MaxTick
	}
	return min(tick-w.From, w.To-tick)
}

// Same reports whether two windows come from the same read.
func (w *Window) Same(other *Window) bool {
	one := func(a, b []ammv4.Tick) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }
	return w.From == other.From && w.To == other.To && w.Below == other.Below && w.StandingBelow == other.StandingBelow &&
		one(w.Ticks, other.Ticks) && one(w.Standing, other.Standing)
}

// WindowAt is the window of a pool that reaches farthest on both sides of a tick; nil: none has it.
func (p *PoolState) WindowAt(tick int32) *Window {
	best := &p.Window
	for i := range p.Far {
		if w := &p.Far[i]; w.reach(tick) > best.reach(tick) {
			best = w
		}
	}
	if best.reach(tick) < 0 {
		return nil
	}
	return best
}

// anchorTicks is how far the ticks are apart around which windows are read: a price that moves a little needs no other
// window.
const anchorTicks = 512

// anchor is the tick around which the window of a tick is read.
func anchor(tick int32) int32 {
	return (tick + anchorTicks/2) &^ (anchorTicks - 1)
}

// The ticks of a window come in one row: of thousands a row each would take ten times as long.
const (
	wordBytes   = 32
	windowBytes = common.HashLength + 8 + 1 + 4 + 4 + 4 + 2*wordBytes // of what comes before them
	tickBytes   = 4 + wordBytes                                       // each, and a word more of what of it stands, where not all does
)

// window reads the ticks around one.
func window(v state.View, pool common.Hash, around int32, now uint64) (p placedWindow, err error) {
	var (
		bad  error
		more bool
	)
	w := &p.Window
	side := func(scan func(visit func(key, row []byte) bool) error) (ticks []ammv4.Tick, err error) {
		more = false
		err = scan(func(key, row []byte) bool {
			if more = len(ticks) == sideTicks; more {
				return false
			}
			t, err := liquidity.DecodeTick(row)
			if bad = err; err != nil {
				return false
			}
			ticks = append(ticks, ammv4.Tick{Index: liquidity.TickOf(key), Net: t.Net})
			return true
		})
		return ticks, cmp.Or(err, bad)
	}
	p.around, w.From, w.To = around, ammv4.MinTick-1, ammv4.MaxTick+1
	below, err := side(func(visit func(key, row []byte) bool) error {
		return v.ScanBack(liquidity.Ticks, pool[:], liquidity.TickKey(pool, around+1), visit)
	})
	if err != nil {
		return p, err
	}
	if more {
		w.From = below[len(below)-1].Index
	}
	slices.Reverse(below)
	above, err := side(func(visit func(key, row []byte) bool) error {
		return v.Scan(liquidity.Ticks, pool[:], liquidity.TickKey(pool, around), visit)
	})
	if err != nil {
		return p, err
	}
	if more {
		w.To = above[len(above)-1].Index
	}
	w.Ticks = append(below, above...)
	if w.From >= ammv4.MinTick {
		if w.Below, w.StandingBelow, err = liquidity.Below(v, pool, w.From, now); err != nil {
			return p, err
		}
	}
	w.Standing = w.Ticks
	apart, i := false, 0
	from, to := w.From, w.To
	if w.From < ammv4.MinTick && w.To > ammv4.MaxTick {
		w.From, w.To = 0, 0
	}
	err = liquidity.ScanYoung(v, pool, from, to, now, func(at int32, of *uint256.Int) {
		if !apart {
			w.Standing, apart = slices.Clone(w.Ticks), true
		}
		for i < len(w.Standing) && w.Standing[i].Index < at {
			i++
		}
		if i == len(w.Standing) || w.Standing[i].Index != at {
			bad = fmt.Errorf("%w: recent liquidity at tick %d, which has none", read.ErrMalformed, at)
			return
		}
		w.Standing[i].Net.Sub(&w.Standing[i].Net, of)
	})
	p.period, p.whole = liquidity.Period(now), !apart && w.Below == w.StandingBelow
	return p, cmp.Or(err, bad)
}

// appendWindow appends a window of a pool whose liquidity was last changed by a block.
func appendWindow(row []byte, p *placedWindow, changed common.Hash) []byte {
	w := &p.Window
	row = slices.Grow(row, windowBytes+len(w.Ticks)*(tickBytes+wordBytes))
	row = binary.BigEndian.AppendUint64(append(row, changed[:]...), p.period)
	whole := byte(0)
	if p.whole {
		whole = 1
	}
	row = append(row, whole)
	for _, tick := range []int32{p.around, w.From, w.To} {
		row = binary.BigEndian.AppendUint32(row, uint32(tick))
	}
	word := func(n *uint256.Int) {
		raw := n.Bytes32()
		row = append(row, raw[:]...)
	}
	word(&w.Below)
	word(&w.StandingBelow)
	for i := range w.Ticks {
		row = binary.BigEndian.AppendUint32(row, uint32(w.Ticks[i].Index))
		word(&w.Ticks[i].Net)
		if !p.whole {
			word(&w.Standing[i].Net)
		}
	}
	return row
}

func decodeWindow(row []byte) (p placedWindow, changed common.Hash, err error) {
	if len(row) < windowBytes {
		return p, changed, read.ErrMalformed
	}
	w := &p.Window
	changed, row = common.Hash(row), row[common.HashLength:]
	p.period, row = binary.BigEndian.Uint64(row), row[8:]
	flag := row[0]
	p.whole, row = flag == 1, row[1:]
	for _, tick := range []*int32{&p.around, &w.From, &w.To} {
		*tick, row = int32(binary.BigEndian.Uint32(row)), row[4:]
	}
	w.Below.SetBytes32(row)
	w.StandingBelow.SetBytes32(row[wordBytes:])
	row = row[2*wordBytes:]
	size := tickBytes
	if !p.whole {
		size += wordBytes
	}
	if flag > 1 || len(row)%size != 0 || len(row) > 2*sideTicks*size || p.whole && w.Below != w.StandingBelow {
		return p, changed, read.ErrMalformed
	}
	if n := len(row) / size; n > 0 {
		w.Ticks = make([]ammv4.Tick, 0, n)
		if w.Standing = w.Ticks; !p.whole {
			w.Standing = make([]ammv4.Tick, 0, n)
		}
	}
	var net uint256.Int
	for before := int64(ammv4.MinTick) - 1; len(row) > 0; row = row[size:] {
		tick := int32(binary.BigEndian.Uint32(row))
		t, err := ammv4.NewTick(tick, net.SetBytes32(row[4:]))
		if err != nil || int64(tick) <= before {
			return p, changed, read.ErrMalformed
		}
		before = int64(tick)
		w.Ticks = append(w.Ticks, t)
		if !p.whole {
			t.Net.SetBytes32(row[tickBytes:])
			w.Standing = append(w.Standing, t)
		}
	}
	if p.whole {
		w.Standing = w.Ticks
	}
	return p, changed, nil
}
