package prices

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// Closes has the close of each hour at whose end the price was another one than at the end of the hour before, under Key of the
// hour's first second; of the hour that the last observation is in there is none yet. They are kept forever.
//
// A close is the Median of the hour's last CloseSeconds. The last price of an hour is whoever's it is that trades last.
var Closes = &state.Table{ID: 31, Name: "price closes"}

// CloseSeconds is how much of an hour counts for its close.
const CloseSeconds = 30 * 60

const closeBytes = 2 * 4

var errClose = errors.New("a close has another size")

// DecodeClose decodes a row of Closes.
func DecodeClose(row []byte) (low, high int32, err error) {
	if len(row) != closeBytes {
		return 0, 0, fmt.Errorf("%w: %d bytes", errClose, len(row))
	}
	return int32(binary.BigEndian.Uint32(row)), int32(binary.BigEndian.Uint32(row[4:])), nil
}

// Open are the closes that no row has yet, ascending: that of the hour of the pool's last observation, and, where the price
// was another one at its end, that of the hours after it. They are of hours that are over at a time.
func Open(v scanner, pool common.Hash, now uint64) ([]PriceAt, error) {
	at, last, err := newest(v, pool, now)
	hour := at - at%Hour
	if err != nil || at == 0 || hour == now-now%Hour {
		return nil, err
	}
	seconds, err := Since(v, pool, hour+Hour-CloseSeconds, hour+Hour-1)
	if err != nil {
		return nil, err
	}
	low, high, _ := Median(seconds, hour+Hour-1, CloseSeconds)
	all := []PriceAt{{hour, low, high}}
	if next := hour + Hour; (low != last || high != last) && next < now-now%Hour {
		all = append(all, PriceAt{next, last, last})
	}
	return all, nil
}

// newest is the last second until a time in which a pool had a new price, and the tick that it then left; zero: it had none.
func newest(v scanner, pool common.Hash, until uint64) (at uint64, tick int32, err error) {
	var s span
	var bad error
	err = v.Scan(Spans, pool[:], Before(pool, until), func(key, row []byte) bool {
		at, bad = At(key), s.UnmarshalBinary(row)
		return false
	})
	return at, s.tick, errors.Join(err, bad)
}

// finish puts the closes of the hours before an observation, the first one of its hour.
func finish(w state.Writer, pool common.Hash, at uint64) error {
	open, err := Open(w, pool, at)
	for _, p := range open {
		row := binary.BigEndian.AppendUint32(make([]byte, 0, closeBytes), uint32(p.Low))
		w.Put(Closes, Key(pool, p.At), binary.BigEndian.AppendUint32(row, uint32(p.High)))
	}
	return err
}
