package query

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/market/prices"
)

// FuzzDecodeExchange: what a node says of a pool's ticks and prices is refused, or is what it said.
func FuzzDecodeExchange(f *testing.F) {
	f.Add(make([]byte, 1+windowBytes+tickBytes), make([]byte, timeBytes+priceBytes), make([]byte, timeBytes+prices.CloseBytes))
	f.Add(bytes.Repeat([]byte{windowRead}, 1+windowBytes), []byte{}, []byte{1})
	pool := common.Hash{7}
	f.Fuzz(func(t *testing.T, window, seconds, hours []byte) {
		p := PoolState{}
		p.ID = pool
		rows := []read.Item{{Key: append(pool.Bytes(), 0), Row: window}}
		if has, whole, err := decodeTicks(rows, map[common.Hash]*PoolState{pool: &p}, nil); err == nil && whole {
			of := has[pool]
			if again := appendWindow([]byte{windowRead}, &of.all[0], of.changed); !bytes.Equal(again, window) || len(p.Standing) != len(p.Ticks) {
				t.Fatalf("%x is read as %x, of which %d ticks stand", window, again, len(p.Standing))
			}
			for i := range p.Ticks {
				if at := p.Ticks[i].Index; at < ammv4.MinTick || at > ammv4.MaxTick || i > 0 && at <= p.Ticks[i-1].Index || at != p.Standing[i].Index {
					t.Fatalf("tick %d is at %d", i, at)
				}
			}
		}
		for _, of := range []struct {
			row    []byte
			size   int
			decode func([]byte) (PriceAt, error)
			encode func([]byte, *PriceAt) []byte
		}{
			{seconds, priceBytes, decodePrice, func(b []byte, p *PriceAt) []byte { return appendPrice(b, *p) }},
			{hours, prices.CloseBytes, prices.DecodeClose, func(b []byte, p *PriceAt) []byte {
				return prices.AppendClose(binary.BigEndian.AppendUint64(b, p.At), p)
			}},
		} {
			all, err := decodePrices(of.row, of.size, of.decode)
			if err != nil {
				continue
			}
			var again []byte
			for i := range all {
				again = of.encode(again, &all[len(all)-1-i])
			}
			if !bytes.Equal(again, of.row) {
				t.Fatalf("%x is read as %x", of.row, again)
			}
		}
	})
}
