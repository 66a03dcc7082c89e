package query

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/prices"
	"github.com/lienstream/lienstream/topics"
)

// SecondsKept is for how long observations are kept by the second.
const SecondsKept = prices.SecondsKept * time.Hour

// hoursOf are the prices of a pool at the ends of hours.
type hoursOf []topics.Observation // ascending

// at is the price valid at a time; nil: there was none yet.
func (h hoursOf) at(t uint64) *topics.Observation {
	var last *topics.Observation
	for i := range h {
		if h[i].At > t {
			break
		}
		last = &h[i]
	}
	return last
}

// addHours adds the hourly prices of a pool for a week, and the one before.
func addHours(c *collector, v state.View, pool [32]byte, now uint64) error {
	from := historyStart(now)
	return v.Scan(prices.Hours, pool[:], prices.Before(pool, now), func(key, row []byte) bool {
		c.add(sectionHour, key, row)
		at := math.MaxUint64 - binary.BigEndian.Uint64(key[len(key)-8:])
		return at > from
	})
}

// week is the length of a price history, day that of a window.
const (
	day  = 24 * prices.Hour
	week = 7 * day
)

// historyStart is the first second of the hour a week ago.
func historyStart(now uint64) uint64 {
	if now < week {
		return 0
	}
	return now - week - (now-week)%prices.Hour
}
