package query

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lienstream/lienstream/processors/engine/read"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/prices"
	"github.com/lienstream/lienstream/topics"
)

// SecondsKept is for how long observations are kept by the second.
const SecondsKept = prices.SecondsKept * time.Hour

// Observations implements MarketReader.
func (c *Client) Observations(ctx context.Context, q ObservationsQuery) (Answer[[]topics.Observation], error) {
	a, err := c.Read(ctx, read.Request{Operation: opObservations, Query: &q, Partitions: c.partitionOf(contracts.PoolEntity(q.Pool))})
	if err != nil {
		return Answer[[]topics.Observation]{}, err
	}
	all, err := decodeAll[topics.Observation](a.Items[max(0, len(a.Items)-q.Limit):])
	return Answer[[]topics.Observation]{At: a.Block, Value: all}, err
}

// readObservations reads backwards: it ends with the first observation that is not after From.
func readObservations(_ context.Context, views *read.Views, q *ObservationsQuery) (items []read.Item, err error) {
	pool, limit := q.Pool, q.Limit+1
	table, carried := prices.Seconds, false
	if q.Hourly {
		table = prices.Hours
	}
	var bad error
	visit := func(_, row []byte) bool {
		var o topics.Observation
		if bad = o.UnmarshalBinary(row); bad != nil {
			return false
		}
		if o.At <= q.To { // an hour that begins before To may end after it
			items = append(items, read.Item{Key: binary.BigEndian.AppendUint64(nil, o.At), Row: append([]byte(nil), row...)})
			carried = o.At <= q.From
		}
		return !carried && len(items) < limit
	}
	for _, v := range views.Of {
		err := v.Scan(table, pool[:], prices.Before(pool, q.To), visit)
		if err == nil && bad == nil && !carried && !q.Hourly && len(items) < limit {
			// The per-second observations of that time are deleted: use the hours.
			from := q.From
			err = v.Scan(prices.Hours, pool[:], prices.Before(pool, from), func(key, row []byte) bool {
				var o topics.Observation
				if bad = o.UnmarshalBinary(row); bad != nil || o.At > from {
					return bad == nil
				}
				return visit(key, row)
			})
		}
		if err == nil {
			err = bad
		}
		if err != nil {
			return nil, fmt.Errorf("observations: %w", err)
		}
	}
	slices.Reverse(items)
	return items, nil
}

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
