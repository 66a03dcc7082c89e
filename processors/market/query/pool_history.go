package query

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/prices"
)

// PriceAt is between which ticks a pool's price was from a second on.
type PriceAt = prices.PriceAt

// MedianTick is prices.Median.
func MedianTick(seconds []PriceAt, last, window uint64) (low, high int32, history uint64) {
	return prices.Median(seconds, last, window)
}

const priceAtBytes = 8 + 4 + 4

func appendPrice(b []byte, p PriceAt) []byte {
	b = binary.BigEndian.AppendUint64(b, p.At)
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, uint32(p.Low)), uint32(p.High))
}

// addSeconds adds the prices of a pool in one row, descending by time: those since a time, and the one before. It returns
// their MedianTick.
func addSeconds(c *collector, v state.View, pool common.Hash, now, seconds uint64) (low, high int32, err error) {
	since, err := prices.Since(v, pool, now-min(now, seconds), now)
	if err != nil {
		return 0, 0, err
	}
	all := make([]byte, 0, len(since)*priceAtBytes)
	for _, p := range slices.Backward(since) {
		all = appendPrice(all, p)
	}
	c.add(sectionSecond, pool[:], all)
	low, high, _ = prices.Median(since, now, seconds)
	return low, high, nil
}

// addCloses adds the closes of a pool's hours in one row, descending by time: those of hours since a time, and the one before.
func addCloses(c *collector, v state.View, pool common.Hash, now, seconds uint64) error {
	from := now - min(now, seconds)
	var bad error
	open, err := prices.Open(v, pool, now)
	if err != nil {
		return fmt.Errorf("closes: %w", err)
	}
	all := []byte{}
	for _, p := range slices.Backward(open) {
		all = appendPrice(all, p)
	}
	err = v.Scan(prices.Closes, pool[:], prices.Before(pool, now), func(key, row []byte) bool {
		p := PriceAt{At: prices.At(key)}
		if p.Low, p.High, bad = prices.DecodeClose(row); bad != nil {
			return false
		}
		all = appendPrice(all, p)
		return p.At > from
	})
	if err = errors.Join(err, bad); err != nil {
		return fmt.Errorf("closes: %w", err)
	}
	c.add(sectionHour, pool[:], all)
	return nil
}

// decodePrices decodes the prices of a pool; none if it has no price.
func decodePrices(items []read.Item, pool common.Hash) ([]PriceAt, error) {
	i := slices.IndexFunc(items, func(it read.Item) bool { return bytes.Equal(it.Key, pool[:]) })
	if i < 0 {
		return nil, nil
	}
	row := items[i].Row
	if len(row)%priceAtBytes != 0 {
		return nil, read.ErrMalformed
	}
	all := make([]PriceAt, 0, len(row)/priceAtBytes)
	for ; len(row) > 0; row = row[priceAtBytes:] {
		p := PriceAt{At: binary.BigEndian.Uint64(row), Low: int32(binary.BigEndian.Uint32(row[8:])), High: int32(binary.BigEndian.Uint32(row[12:]))}
		if p.At > math.MaxInt64 {
			return nil, read.ErrMalformed
		}
		all = append(all, p)
	}
	slices.Reverse(all)
	return all, nil
}
