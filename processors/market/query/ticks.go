package query

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/liquidity"
)

// MaxTicks bounds what is read of a pool, with every block: anybody may add as much dust at as many ticks as he pays for.
const MaxTicks = 1 << 16

// The ticks of a pool come in one row: of tens of thousands a row each would take ten times as long.
const (
	tickBytes = 4
	netBytes  = 32
)

func appendTick(b []byte, tick int32, net *uint256.Int) []byte {
	raw := net.Bytes32()
	return append(binary.BigEndian.AppendUint32(b, uint32(tick)), raw[:]...)
}

// eachTick calls fn for the ticks in a row, which must be ascending.
func eachTick(row []byte, fn func(tick int32, net *uint256.Int) error) error {
	if len(row)%(tickBytes+netBytes) != 0 || len(row) > MaxTicks*(tickBytes+netBytes) {
		return read.ErrMalformed
	}
	var net uint256.Int
	for before := int64(ammv4.MinTick) - 1; len(row) > 0; row = row[tickBytes+netBytes:] {
		tick := int32(binary.BigEndian.Uint32(row))
		if int64(tick) <= before {
			return read.ErrMalformed
		}
		before = int64(tick)
		if err := fn(tick, net.SetBytes32(row[tickBytes:])); err != nil {
			return err
		}
	}
	return nil
}

// addTicks adds the ticks of a pool, and what has to be subtracted from them for the liquidity that stands.
func addTicks(c *collector, v state.View, pool common.Hash, now uint64) error {
	var all, young []byte
	var bad error
	n := 0
	err := v.Scan(liquidity.Ticks, pool[:], nil, func(key, row []byte) bool {
		if n++; n > MaxTicks {
			return false
		}
		t, err := liquidity.DecodeTick(row)
		bad = err
		all = appendTick(all, liquidity.TickOf(key), &t.Net)
		return err == nil
	})
	if err = cmp.Or(err, bad); err != nil {
		return fmt.Errorf("ticks: %w", err)
	}
	if n > MaxTicks {
		c.add(sectionCrowded, pool[:], []byte{})
		return nil
	}
	if err := liquidity.ScanYoung(v, pool, now, func(tick int32, net *uint256.Int) { young = appendTick(young, tick, net) }); err != nil {
		return fmt.Errorf("young ticks: %w", err)
	}
	c.add(sectionTick, pool[:], all)
	c.add(sectionYoung, pool[:], young)
	return nil
}

// decodeTicks takes a pool's ticks from an answer.
func (p *PoolState) decodeTicks(split *[sections][]read.Item) error {
	rowOf := func(section byte) (row []byte, found bool) {
		i := slices.IndexFunc(split[section], func(it read.Item) bool { return bytes.Equal(it.Key, p.ID[:]) })
		if i < 0 {
			return nil, false
		}
		return split[section][i].Row, true
	}
	if _, p.Crowded = rowOf(sectionCrowded); p.Crowded {
		return nil
	}
	row, _ := rowOf(sectionTick)
	if n := len(row) / (tickBytes + netBytes); n > 0 {
		p.Ticks = make([]ammv4.Tick, 0, n)
	}
	if err := eachTick(row, func(tick int32, net *uint256.Int) error {
		t, err := ammv4.NewTick(tick, net)
		if err != nil {
			return fmt.Errorf("%w: %w", read.ErrMalformed, err)
		}
		p.Ticks = append(p.Ticks, t)
		return nil
	}); err != nil {
		return err
	}
	p.Standing = p.Ticks
	row, _ = rowOf(sectionYoung)
	if len(row) > 0 {
		p.Standing = slices.Clone(p.Ticks)
	}
	i := 0
	return eachTick(row, func(tick int32, young *uint256.Int) error {
		for i < len(p.Standing) && p.Standing[i].Index < tick {
			i++
		}
		if i == len(p.Standing) || p.Standing[i].Index != tick {
			return read.ErrMalformed // what is young has a tick
		}
		net := &p.Standing[i].Net
		net.Sub(net, young)
		return nil
	})
}
