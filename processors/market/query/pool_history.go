package query

import (
	"encoding/binary"
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

const (
	timeBytes  = 8
	priceBytes = 4 + 4
)

func appendPrice(b []byte, p PriceAt) []byte {
	b = binary.BigEndian.AppendUint64(b, p.At)
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, uint32(p.Low)), uint32(p.High))
}

// addSeconds adds the prices of a pool in one row, descending by time: those since a time, and the one before. It
// returns their MedianTick.
func addSeconds(c *collector, v state.View, pool common.Hash, now, seconds uint64) (low, high int32, err error) {
	since, err := prices.Since(v, pool, now-min(now, seconds), now)
	if err != nil {
		return 0, 0, err
	}
	all := make([]byte, 0, len(since)*(timeBytes+priceBytes))
	for _, p := range slices.Backward(since) {
		all = appendPrice(all, p)
	}
	c.add(sectionSecond, pool[:], all)
	low, high, _ = prices.Median(since, now, seconds)
	return low, high, nil
}

// addCloses adds the closes of a pool's hours in one row, descending by time: those of hours since a time, and the one
// before.
func addCloses(c *collector, v state.View, pool common.Hash, now, seconds uint64) error {
	from := now - min(now, seconds)
	open, err := prices.Open(v, pool, now)
	if err != nil {
		return fmt.Errorf("closes: %w", err)
	}
	all := []byte{}
	for i := range slices.Backward(open) {
		all = prices.AppendClose(binary.BigEndian.AppendUint64(all, open[i].At), &open[i])
	}
	err = v.Scan(prices.Closes, pool[:], prices.Before(pool, now), func(key, row []byte) bool {
		at := prices.At(key)
		all = append(binary.BigEndian.AppendUint64(all, at), row...)
		return at > from
	})
	if err != nil {
		return fmt.Errorf("closes: %w", err)
	}
	c.add(sectionHour, pool[:], all)
	return nil
}

// decodePrice decodes one of addSeconds, but for its time.
func decodePrice(row []byte) (p PriceAt, err error) {
	p.Low, p.High = int32(binary.BigEndian.Uint32(row)), int32(binary.BigEndian.Uint32(row[4:]))
	return p, nil
}

// byPool are rows by the pool that is their key.
func byPool(items []read.Item) map[common.Hash][]byte {
	rows := make(map[common.Hash][]byte, len(items))
	for _, it := range items {
		rows[common.BytesToHash(it.Key)] = it.Row
	}
	return rows
}

// decodePrices decodes the prices of a pool, each a time and a fixed number of bytes for decode; none if it has no
// price.
func decodePrices(row []byte, size int, decode func(row []byte) (PriceAt, error)) ([]PriceAt, error) {
	if size += timeBytes; len(row)%size != 0 {
		return nil, read.ErrMalformed
	}
	all := make([]PriceAt, 0, len(row)/size)
	for ; len(row) > 0; row = row[size:] {
		p, err := decode(row[timeBytes:size])
		p.At = binary.BigEndian.Uint64(row)
		if err != nil || p.At > math.MaxInt64 {
			return nil, read.ErrMalformed
		}
		all = append(all, p)
	}
	slices.Reverse(all)
	return all, nil
}
