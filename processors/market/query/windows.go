package query

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/engine/wire"
	"github.com/lienstream/lienstream/processors/market/liquidity"
)

// Every tick of every pool may be initialised: anyone can add tiny positions. So a query names the windows that the
// client has, and as of which block: the node reads those that have changed, as many as one answer has room for. Then
// the cost of a block is bounded by its changes, and so by its gas, and not by the number of ticks.

// placedWindow is a window, and what it depends on besides the liquidity of its pool.
type placedWindow struct {
	around int32  // an anchor
	period uint64 // for which its standing liquidity holds
	whole  bool   // all of its liquidity stands, in later periods too
	Window
}

// poolWindows are the windows that were read of a pool.
type poolWindows struct {
	changed common.Hash // the block that last changed its liquidity
	all     []placedWindow
}

// keptWindows bounds the windows of a pool that are kept. It is more than the price and both ends of the reference
// need, because they may alternate between two windows.
const keptWindows = 4

// maxKnown bounds the pools whose windows are named in a query.
const maxKnown = 16 << 10

// maxRoom is how many bytes of windows a node reads for one answer: less than an answer may have.
const maxRoom = 16 << 20

// knownPool names the windows of a pool that the client has.
type knownPool struct {
	ID, Changed common.Hash
	Windows     []knownWindow
}

type knownWindow struct {
	Around, From, To int32
	Period           uint64
	Whole            bool
}

func (k *knownPool) code(c *wire.Coder) {
	c.Fixed(k.ID[:])
	c.Fixed(k.Changed[:])
	wire.Slice(c, &k.Windows, keptWindows, 4, func(w *knownWindow) {
		c.Int32(&w.Around)
		c.Int32(&w.From)
		c.Int32(&w.To)
		c.Uint64(&w.Period)
		c.Bool(&w.Whole)
	})
}

// What a row of a pool's window is.
const (
	windowSame   byte = iota // the anchor of one that the client has
	windowRead               // all of it
	windowNoRoom             // nothing: there was no room for it, nor for those after it
)

// addTicks adds a window around the first of some ticks, and one around each of the others that it does not reach. It
// returns how much room is left.
func (q *exchangeQuery) addTicks(c *collector, v state.View, pool common.Hash, around []int32, room int) (int, error) {
	changed, err := liquidity.Changed(v, pool)
	if err != nil {
		return room, fmt.Errorf("ticks: %w", err)
	}
	now := v.At().Timestamp
	known := q.knownOf(pool, changed, liquidity.Period(now))
	var chosen []Window
	for _, tick := range around {
		if slices.ContainsFunc(chosen, func(w Window) bool { return w.reach(tick) >= enoughTicks }) {
			continue
		}
		place, at := append(bytes.Clone(pool[:]), byte(len(chosen))), anchor(tick)
		if i := slices.IndexFunc(known, func(w knownWindow) bool { return w.Around == at }); i >= 0 {
			c.add(sectionTick, place, binary.BigEndian.AppendUint32([]byte{windowSame}, uint32(at)))
			chosen = append(chosen, Window{From: known[i].From, To: known[i].To})
			continue
		}
		if room <= 0 {
			c.add(sectionTick, place, []byte{windowNoRoom})
			break
		}
		p, err := window(v, pool, at, now)
		if err != nil {
			return room, fmt.Errorf("ticks: %w", err)
		}
		row := appendWindow([]byte{windowRead}, &p, changed)
		room -= len(row)
		c.add(sectionTick, place, row)
		chosen = append(chosen, p.Window)
	}
	return room, nil
}

// knownOf are the windows of a pool that the client has and that are still current.
func (q *exchangeQuery) knownOf(pool, changed common.Hash, period uint64) (all []knownWindow) {
	i, found := sort.Find(len(q.Known), func(i int) int { return bytes.Compare(pool[:], q.Known[i].ID[:]) })
	if !found || q.Known[i].Changed != changed {
		return nil
	}
	for _, w := range q.Known[i].Windows {
		if w.Period == period || w.Whole && w.Period < period { // less may have stood in an earlier period, which another node or branch may be in
			all = append(all, w)
		}
	}
	return all
}

// tickWindows are what was read of pools' ticks, by pool. It is read-only.
type tickWindows map[common.Hash]*poolWindows

// known names them, ascending by pool.
func (w tickWindows) known() []knownPool {
	all := make([]knownPool, 0, len(w))
	for id, of := range w {
		p := knownPool{ID: id, Changed: of.changed, Windows: make([]knownWindow, len(of.all))}
		for i := range of.all {
			a := &of.all[i]
			p.Windows[i] = knownWindow{a.around, a.From, a.To, a.period, a.whole}
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b knownPool) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return all[:min(len(all), maxKnown)]
}

// decodeTicks adds the windows of an answer to those that the client had. whole: the answer had room for all of them.
func decodeTicks(items []read.Item, places map[common.Hash]*PoolState, had tickWindows) (has tickWindows, whole bool, err error) {
	has, whole = make(tickWindows, len(places)), true
	for _, it := range items {
		if len(it.Key) <= common.HashLength || len(it.Row) == 0 {
			return nil, false, read.ErrMalformed
		}
		id := common.Hash(it.Key)
		p, before := places[id], had[id]
		if p == nil {
			return nil, false, read.ErrMalformed
		}
		var w placedWindow
		var changed common.Hash
		switch kind, row := it.Row[0], it.Row[1:]; kind {
		case windowNoRoom:
			whole = false
			continue
		case windowSame:
			if before == nil || len(row) != 4 {
				return nil, false, read.ErrMalformed
			}
			i := slices.IndexFunc(before.all, func(w placedWindow) bool { return w.around == int32(binary.BigEndian.Uint32(row)) })
			if i < 0 {
				return nil, false, read.ErrMalformed
			}
			w, changed = before.all[i], before.changed
		case windowRead:
			if w, changed, err = decodeWindow(row); err != nil {
				return nil, false, err
			}
		default:
			return nil, false, read.ErrMalformed
		}
		of := has[id]
		if of == nil {
			of = &poolWindows{changed: changed}
			has[id] = of
			p.Window = w.Window
		} else {
			p.Far = append(p.Far, w.Window)
		}
		if of.changed != changed || len(of.all) == keptWindows {
			return nil, false, read.ErrMalformed
		}
		of.all = append(of.all, w)
	}
	for id, of := range has {
		of.keep(had[id])
	}
	return has, whole, nil
}

// keep adds windows that were read before, as far as there is room.
func (of *poolWindows) keep(before *poolWindows) {
	if before == nil || before.changed != of.changed {
		return
	}
	for _, w := range before.all {
		if len(of.all) < keptWindows && !slices.ContainsFunc(of.all, func(other placedWindow) bool { return other.around == w.around }) {
			of.all = append(of.all, w)
		}
	}
}
