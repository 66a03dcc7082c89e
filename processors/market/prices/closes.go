package prices

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// Closes has the close of each hour at whose end the price was another one than at the end of the hour before, a tick, under
// Key of the hour's first second; of the hour that the last observation is in there is none yet. They are kept forever.
//
// A close is the median tick of the hour's last CloseSeconds, by time. The last price of an hour is whoever's it is that
// trades last.
var Closes = &state.Table{ID: 31, Name: "price closes"}

// CloseSeconds is how much of an hour counts for its close.
const CloseSeconds = 30 * 60

// PriceAt is the tick of a pool from a second on.
type PriceAt struct {
	At   uint64
	Tick int32
}

const closeBytes = 4

var errClose = errors.New("a close has another size")

// DecodeClose decodes a row of Closes.
func DecodeClose(row []byte) (int32, error) {
	if len(row) != closeBytes {
		return 0, fmt.Errorf("%w: %d bytes", errClose, len(row))
	}
	return int32(binary.BigEndian.Uint32(row)), nil
}

// Median is the time-weighted median of a pool's tick: one observation per second, ascending and carried forward, over the
// window that ends with a second. On a tie it is the lower one. It also returns for how many of these seconds there is a price.
func Median(seconds []PriceAt, last, window uint64) (tick int32, history uint64) {
	type weight struct {
		tick    int32
		seconds uint64
	}
	begin := last + 1 - min(last+1, window) // first second of the window
	var weights []weight
	for i, o := range seconds {
		end := last + 1
		if i+1 < len(seconds) {
			end = min(end, seconds[i+1].At)
		}
		if from := max(o.At, begin); end > from {
			weights = append(weights, weight{o.Tick, end - from})
			history += end - from
		}
	}
	slices.SortFunc(weights, func(a, b weight) int { return cmp.Compare(a.tick, b.tick) })
	var sum uint64
	for _, w := range weights {
		if sum += w.seconds; 2*sum >= history {
			return w.tick, history
		}
	}
	return 0, 0
}

// scanner is what a Reader and a Writer can do.
type scanner interface {
	Scan(t *state.Table, prefix, after []byte, fn func(key, row []byte) bool) error
}

// Open are the closes that no row has yet, ascending: that of the hour of the pool's last observation, and, where the price
// was another one at its end, that of the hours after it. They are of hours that are over at a time.
func Open(v scanner, pool common.Hash, now uint64) (all []PriceAt, err error) {
	var (
		seconds []PriceAt
		hour    uint64
		bad     error
	)
	err = v.Scan(Seconds, pool[:], Before(pool, now), func(_, row []byte) bool {
		var o topics.Observation
		if bad = o.UnmarshalBinary(row); bad != nil {
			return false
		}
		if len(seconds) == 0 {
			if hour = o.At - o.At%Hour; hour == now-now%Hour {
				return false
			}
		}
		seconds = append(seconds, PriceAt{o.At, o.Tick})
		return o.At > hour+Hour-CloseSeconds
	})
	if err == nil && bad == nil && len(seconds) > 0 && seconds[len(seconds)-1].At > hour+Hour-CloseSeconds && hour > 0 {
		// What was the price until then may be older than the seconds that are kept.
		err = v.Scan(Hours, pool[:], Before(pool, hour-1), func(_, row []byte) bool {
			var o topics.Observation
			if bad = o.UnmarshalBinary(row); bad == nil {
				seconds = append(seconds, PriceAt{o.At, o.Tick})
			}
			return false
		})
	}
	if err = errors.Join(err, bad); err != nil || len(seconds) == 0 {
		return nil, err
	}
	slices.Reverse(seconds)
	last := seconds[len(seconds)-1].Tick
	tick, _ := Median(seconds, hour+Hour-1, CloseSeconds)
	all = append(all, PriceAt{hour, tick})
	if next := hour + Hour; tick != last && next < now-now%Hour {
		all = append(all, PriceAt{next, last})
	}
	return all, nil
}

// finish puts the closes of the hours before an observation, the first one of its hour.
func finish(w state.Writer, pool common.Hash, at uint64) error {
	open, err := Open(w, pool, at)
	for _, o := range open {
		w.Put(Closes, Key(pool, o.At), binary.BigEndian.AppendUint32(nil, uint32(o.Tick)))
	}
	return err
}
