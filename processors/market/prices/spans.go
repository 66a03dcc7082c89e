package prices

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/family"
)

// Spans has a row for each second in which a pool's price or its liquidity in range changed, under Key: between which
// ticks the price was in it, at the ends of its blocks and of the last block before it, and the most and the least
// liquidity that was in range then.
//
// A chain may make many blocks in a second. The last trade sets the last price of a second, which may have held for one
// block only. Timestamps do not show how long each price held within a second, and traders can influence the number of
// its blocks. It is only certain that the price was between the lowest and the highest.
var Spans = &state.Table{ID: 33, Name: "price spans"}

// span is a row of Spans, and what the next one follows from.
type span struct {
	block     uint64      // of the last event
	tick      int32       // after it
	liquidity uint256.Int // in range after it
	low, high int32       // of the blocks of the second before that one, and of the last block before the second
	most      uint256.Int // liquidity of these
	least     uint256.Int
}

const (
	liquidityBytes = 16
	spanBytes      = 8 + 3*4 + 3*liquidityBytes
)

// mostLiquidity is the most that a pool can have.
var mostLiquidity = *new(uint256.Int).SubUint64(new(uint256.Int).Lsh(uint256.NewInt(1), 8*liquidityBytes), 1)

func appendLiquidity(b []byte, l *uint256.Int) []byte {
	raw := l.Bytes32()
	return append(b, raw[len(raw)-liquidityBytes:]...)
}

var errSpan = errors.New("span: wrong row length")

// AppendBinary appends the row. The error is always nil.
func (s *span) AppendBinary(b []byte) ([]byte, error) {
	b = binary.BigEndian.AppendUint64(b, s.block)
	for _, tick := range []int32{s.tick, s.low, s.high} {
		b = binary.BigEndian.AppendUint32(b, uint32(tick))
	}
	for _, l := range []*uint256.Int{&s.liquidity, &s.most, &s.least} {
		b = appendLiquidity(b, l)
	}
	return b, nil
}

// UnmarshalBinary reads a row.
func (s *span) UnmarshalBinary(data []byte) error {
	if len(data) != spanBytes {
		return fmt.Errorf("%w: %d bytes", errSpan, len(data))
	}
	s.block, data = binary.BigEndian.Uint64(data), data[8:]
	for _, tick := range []*int32{&s.tick, &s.low, &s.high} {
		*tick, data = int32(binary.BigEndian.Uint32(data)), data[4:]
	}
	for _, l := range []*uint256.Int{&s.liquidity, &s.most, &s.least} {
		l.SetBytes(data[:liquidityBytes])
		data = data[liquidityBytes:]
	}
	return nil
}

// ended is the span with the last block.
func (s *span) ended() PriceAt {
	p := PriceAt{Low: min(s.low, s.tick), High: max(s.high, s.tick), Liquidity: s.most, Usual: s.least}
	if s.liquidity.Gt(&p.Liquidity) {
		p.Liquidity = s.liquidity
	}
	if s.liquidity.Lt(&p.Usual) {
		p.Usual = s.liquidity
	}
	return p
}

// left is what the last block left.
func (s *span) left(at uint64) PriceAt {
	return PriceAt{At: at, Low: s.tick, High: s.tick, Liquidity: s.liquidity, Usual: s.liquidity}
}

// widen adds a price, and liquidity in range, to the span of its second. The pool's last span is of the second last, if
// it has one: zero is none.
func widen(w state.Writer, pool common.Hash, last uint64, tick int32, liquidity *uint256.Int) error {
	block := w.Block()
	next := span{block: block.Number, tick: tick, liquidity: *liquidity, low: math.MaxInt32, high: math.MinInt32, least: mostLiquidity}
	if last > 0 {
		var before span
		found, err := family.Get(w, Spans, Key(pool, last), &before)
		if err != nil {
			return err
		}
		switch {
		case !found: // the time of the chain has gone back so far that it is kept no more
		case before.block == block.Number: // only where a block leaves the price counts
			next.low, next.high, next.most, next.least = before.low, before.high, before.most, before.least
		case last == block.Timestamp:
			ended := before.ended()
			next.low, next.high, next.most, next.least = ended.Low, ended.High, ended.Liquidity, ended.Usual
		default:
			next.low, next.high, next.most, next.least = before.tick, before.tick, before.liquidity, before.liquidity
		}
	}
	return family.Put(w, Spans, Key(pool, block.Timestamp), &next)
}

// PriceAt is between which ticks a pool's price was from a second on, and the most liquidity that was in range.
type PriceAt struct {
	At        uint64
	Low, High int32
	Liquidity uint256.Int
	Usual     uint256.Int // what was in range at all times; of a close, in half of its seconds, or more

	Below, Above int32 // of a close: how many ticks below Low and above High the price was in the hour
}

// scanner is what a Reader and a Writer can do.
type scanner interface {
	Scan(t *state.Table, prefix, after []byte, fn func(key, row []byte) bool) error
}

// Since are the prices of a pool from a second on until another, ascending. The first one is that at the beginning, if
// there was one: of no more than a day before.
func Since(v scanner, pool common.Hash, from, until uint64) ([]PriceAt, error) {
	var all []PriceAt // descending
	var bad error
	err := v.Scan(Spans, pool[:], Before(pool, until), func(key, row []byte) bool {
		var s span
		if bad = s.UnmarshalBinary(row); bad != nil {
			return false
		}
		p := s.ended()
		p.At = At(key)
		after := s.left(p.At + 1)
		if next := len(all) - 1; after.At <= until && (next < 0 || all[next].At > after.At) && p != s.left(p.At) {
			all = append(all, after)
		}
		all = append(all, p)
		return p.At > from
	})
	if err = errors.Join(err, bad); err != nil {
		return nil, fmt.Errorf("prices: %w", err)
	}
	slices.Reverse(all)
	return all, nil
}

// closeOf is the Median of an hour's last CloseSeconds, and what was there in half of their seconds, at the end of each
// of a second's blocks, because a moment's liquidity does not show that the price stood still. The main provider of a
// pool must not be able to hide a move of the price by taking the liquidity out for a part of the hour: so a close also
// has the most liquidity of the whole hour, and how far the price went in it.
func closeOf(hour uint64, prices []PriceAt) PriceAt {
	last, window := hour+Hour-1, uint64(CloseSeconds)
	c := PriceAt{At: hour}
	c.Low, c.High, _ = Median(prices, last, window)
	for p := range within(prices, last, Hour) {
		c.Below, c.Above = max(c.Below, c.Low-p.Low), max(c.Above, p.High-c.High)
		if p.Liquidity.Gt(&c.Liquidity) {
			c.Liquidity = p.Liquidity
		}
	}
	had := make([]weight[*uint256.Int], 0, len(prices))
	for p, seconds := range within(prices, last, window) {
		had = append(had, weight[*uint256.Int]{&p.Usual, seconds})
	}
	if usual := middle(had, window, func(a, b *uint256.Int) int { return b.Cmp(a) }); usual != nil {
		c.Usual = *usual
	}
	return c
}

// Median is the time-weighted median of a pool's price over the window that ends with a second: that of the lowest tick
// of each second, and that of the highest. Prices are ascending and carried forward. To raise the one or lower the
// other, the price must be held throughout half of the window's seconds. It also returns for how many of these there is
// a price.
//
// Where half of the seconds have a lower tick and half a higher one, low is the lower and high the higher one.
func Median(prices []PriceAt, last, window uint64) (low, high int32, history uint64) {
	lows, highs := make([]weight[int32], 0, len(prices)), make([]weight[int32], 0, len(prices))
	for p, seconds := range within(prices, last, window) {
		lows, highs = append(lows, weight[int32]{p.Low, seconds}), append(highs, weight[int32]{p.High, seconds})
		history += seconds
	}
	return middle(lows, history, cmp.Compare), middle(highs, history, func(a, b int32) int { return cmp.Compare(b, a) }), history
}

// within are the prices of the window that ends with a second, and for how many of its seconds each was. They are
// ascending, and carried forward.
func within(prices []PriceAt, last, window uint64) iter.Seq2[*PriceAt, uint64] {
	return func(yield func(*PriceAt, uint64) bool) {
		begin := last + 1 - min(last+1, window) // first second of the window
		for i := range prices {
			end := last + 1
			if i+1 < len(prices) {
				end = min(end, prices[i+1].At)
			}
			if from := max(prices[i].At, begin); end > from && !yield(&prices[i], end-from) {
				return
			}
		}
	}
}

// weight is for how many seconds something was.
type weight[T any] struct {
	value   T
	seconds uint64
}

// middle is the first value that, with those before it, covers half of the given seconds; zero: none does. It sorts the
// values.
func middle[T any](all []weight[T], seconds uint64, compare func(a, b T) int) (value T) {
	slices.SortFunc(all, func(a, b weight[T]) int { return compare(a.value, b.value) })
	sum := uint64(0)
	for _, w := range all {
		if sum += w.seconds; 2*sum >= seconds {
			return w.value
		}
	}
	return value
}
