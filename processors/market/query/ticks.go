package query

import (
	"bytes"
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

// Window is what is read of a pool's ticks around one: those nearest to it, as many on either side as a quote crosses. Anybody
// may have put dust at every tick.
type Window struct {
	From, To             int32 // Ticks are all that there are between, both included; both zero: all of the pool's
	Below, StandingBelow uint256.Int
	Ticks                []ammv4.Tick // ascending
	Standing             []ammv4.Tick // the same of the liquidity that has stood for half an hour
}

// sideTicks is how many ticks of a window are on either side.
const sideTicks = ammv4.MaxCrossed

// enoughTicks is how far a window has to reach beyond a tick for it to have none of its own: more than depth is measured over.
const enoughTicks = 2 * depthTicks

// reach is how far a tick is from the nearer end of a window; negative: it is outside.
func (w *Window) reach(tick int32) int32 {
	if w.From == w.To {
		return ammv4.MaxTick
	}
	return min(tick-w.From, w.To-tick)
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

// The ticks of a window come in one row: of thousands a row each would take ten times as long.
const (
	wordBytes   = 32
	windowBytes = 4 + 4 + 2*wordBytes // of what comes before them
	tickBytes   = 4 + 2*wordBytes     // each with what of it stands
)

// addTicks adds a window around the first of some ticks, and one around each of the others that it does not reach.
func addTicks(c *collector, v state.View, pool common.Hash, around []int32, now uint64) error {
	var read []Window
	for _, tick := range around {
		if slices.ContainsFunc(read, func(w Window) bool { return w.reach(tick) >= enoughTicks }) {
			continue
		}
		w, row, err := window(v, pool, tick, now)
		if err != nil {
			return fmt.Errorf("ticks: %w", err)
		}
		c.add(sectionTick, append(bytes.Clone(pool[:]), byte(len(read))), row)
		read = append(read, w)
	}
	return nil
}

// window reads the ticks around one, and encodes them.
func window(v state.View, pool common.Hash, around int32, now uint64) (w Window, row []byte, err error) {
	type tick struct {
		index       int32
		net, stands uint256.Int
	}
	var (
		ticks []tick
		bad   error
		more  bool
	)
	visit := func(key, row []byte) bool {
		if more = len(ticks) == sideTicks; more {
			return false
		}
		t, err := liquidity.DecodeTick(row)
		if bad = err; err != nil {
			return false
		}
		ticks = append(ticks, tick{liquidity.TickOf(key), t.Net, t.Net})
		return true
	}
	w = Window{From: ammv4.MinTick - 1, To: ammv4.MaxTick + 1}
	err = v.ScanBack(liquidity.Ticks, pool[:], liquidity.TickKey(pool, around+1), visit)
	if more {
		w.From = ticks[len(ticks)-1].index
	}
	slices.Reverse(ticks)
	all := ticks
	if err = cmp.Or(err, bad); err == nil {
		ticks, more = nil, false
		err = cmp.Or(v.Scan(liquidity.Ticks, pool[:], liquidity.TickKey(pool, around), visit), bad)
	}
	if err != nil {
		return w, nil, err
	}
	if more {
		w.To = ticks[len(ticks)-1].index
	}
	all = append(all, ticks...)
	if w.From >= ammv4.MinTick {
		if w.Below, w.StandingBelow, err = liquidity.Below(v, pool, w.From, now); err != nil {
			return w, nil, err
		}
	}
	from, to, i := w.From, w.To, 0
	if w.From < ammv4.MinTick && w.To > ammv4.MaxTick {
		w.From, w.To = 0, 0
	}
	if err = liquidity.ScanYoung(v, pool, from, to, now, func(at int32, young *uint256.Int) {
		for i < len(all) && all[i].index < at {
			i++
		}
		if i == len(all) || all[i].index != at {
			bad = fmt.Errorf("%w: young liquidity at tick %d, where there is none", read.ErrMalformed, at)
			return
		}
		all[i].stands.Sub(&all[i].stands, young)
	}); err == nil {
		err = bad
	}
	row = make([]byte, 0, windowBytes+len(all)*tickBytes)
	row = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(row, uint32(w.From)), uint32(w.To))
	word := func(n *uint256.Int) {
		raw := n.Bytes32()
		row = append(row, raw[:]...)
	}
	word(&w.Below)
	word(&w.StandingBelow)
	for i := range all {
		row = binary.BigEndian.AppendUint32(row, uint32(all[i].index))
		word(&all[i].net)
		word(&all[i].stands)
	}
	return w, row, err
}

// decodeTicks takes a pool's windows from an answer.
func (p *PoolState) decodeTicks(items []read.Item) error {
	first := true
	for _, it := range items {
		if !bytes.HasPrefix(it.Key, p.ID[:]) {
			continue
		}
		w, err := decodeWindow(it.Row)
		if err != nil {
			return err
		}
		if first {
			p.Window, first = w, false
		} else {
			p.Far = append(p.Far, w)
		}
	}
	return nil
}

func decodeWindow(row []byte) (w Window, err error) {
	if len(row) < windowBytes || (len(row)-windowBytes)%tickBytes != 0 || len(row) > windowBytes+2*sideTicks*tickBytes {
		return w, read.ErrMalformed
	}
	w.From, w.To = int32(binary.BigEndian.Uint32(row)), int32(binary.BigEndian.Uint32(row[4:]))
	w.Below.SetBytes32(row[8:])
	w.StandingBelow.SetBytes32(row[8+wordBytes:])
	row = row[windowBytes:]
	if n := len(row) / tickBytes; n > 0 {
		w.Ticks = make([]ammv4.Tick, 0, n)
		w.Standing = make([]ammv4.Tick, 0, n)
	}
	var net uint256.Int
	for before := int64(ammv4.MinTick) - 1; len(row) > 0; row = row[tickBytes:] {
		tick := int32(binary.BigEndian.Uint32(row))
		t, err := ammv4.NewTick(tick, net.SetBytes32(row[4:]))
		if err != nil || int64(tick) <= before {
			return w, read.ErrMalformed
		}
		before = int64(tick)
		w.Ticks = append(w.Ticks, t)
		t.Net.SetBytes32(row[4+wordBytes:])
		w.Standing = append(w.Standing, t)
	}
	return w, nil
}
