package prices

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// Closes has the close of each hour at whose end the price was another one than at the end of the hour before, under
// Key of the hour's first second; of the hour that the last observation is in there is none yet. They are kept forever.
//
// A close is the Median of the hour's last CloseSeconds, the usual liquidity in range then, and the most in the hour,
// with the lowest and the highest price in it. The last price alone would be set by the last trade, and moving the
// price of a pool without liquidity costs nothing.
var Closes = &state.Table{ID: 31, Name: "price closes"}

// CloseSeconds is how much of an hour counts for the price at its close.
const CloseSeconds = 30 * 60

// CloseBytes is the size of a row of Closes.
const CloseBytes = 4*4 + 2*liquidityBytes

var errClose = errors.New("close: wrong row length")

// DecodeClose decodes a row of Closes.
func DecodeClose(row []byte) (p PriceAt, err error) {
	if len(row) != CloseBytes {
		return p, fmt.Errorf("%w: %d bytes", errClose, len(row))
	}
	for _, tick := range []*int32{&p.Low, &p.High, &p.Below, &p.Above} {
		*tick, row = int32(binary.BigEndian.Uint32(row)), row[4:]
	}
	p.Liquidity.SetBytes(row[:liquidityBytes])
	p.Usual.SetBytes(row[liquidityBytes:])
	return p, nil
}

// AppendClose appends a row of Closes.
func AppendClose(b []byte, p *PriceAt) []byte {
	for _, tick := range []int32{p.Low, p.High, p.Below, p.Above} {
		b = binary.BigEndian.AppendUint32(b, uint32(tick))
	}
	return appendLiquidity(appendLiquidity(b, &p.Liquidity), &p.Usual)
}

// Open returns the closes of finished hours that have no row yet, ascending: that of the hour of the pool's last observation,
// and, if the price at its end differs from it, that of the hours since.
func Open(v scanner, pool common.Hash, now uint64) ([]PriceAt, error) {
	at, last, err := newest(v, pool, now)
	hour := at - at%Hour
	if err != nil || at == 0 || hour == now-now%Hour {
		return nil, err
	}
	seconds, err := Since(v, pool, hour, hour+Hour-1)
	if err != nil {
		return nil, err
	}
	of, next := closeOf(hour, seconds), last.left(hour)
	all := []PriceAt{of}
	next.At = hour + Hour
	if of.At = next.At; of != next && next.At < now-now%Hour {
		all = append(all, next)
	}
	return all, nil
}

// newest is the last second until a time that has a span, and that; zero: none has.
func newest(v scanner, pool common.Hash, until uint64) (at uint64, s span, err error) {
	var bad error
	err = v.Scan(Spans, pool[:], Before(pool, until), func(key, row []byte) bool {
		at, bad = At(key), s.UnmarshalBinary(row)
		return false
	})
	return at, s, errors.Join(err, bad)
}

// finish puts the closes of the hours before an observation, the first one of its hour.
func finish(w state.Writer, pool common.Hash, at uint64) error {
	open, err := Open(w, pool, at)
	for i := range open {
		w.Put(Closes, Key(pool, open[i].At), AppendClose(make([]byte, 0, CloseBytes), &open[i]))
	}
	return err
}
