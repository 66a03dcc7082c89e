package liquidity

import (
	"encoding/binary"
	"errors"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// Ticks has a row, Tick, for each tick at which a range begins or ends, under TickKey.
var Ticks = &state.Table{ID: tableTicks, Name: "ticks"}

// Tick is a tick at which liquidity begins or ends.
type Tick struct {
	Gross uint256.Int // of the ranges that begin or end here
	Net   uint256.Int // what the price gains in liquidity when it rises past; two's complement
}

// TickKey is the key of a tick: those of a pool are together, ascending.
func TickKey(pool common.Hash, tick int32) []byte {
	key := append(make([]byte, 0, len(pool)+4), pool[:]...)
	return binary.BigEndian.AppendUint32(key, uint32(tick)^1<<31)
}

// TickOf reads a tick back from its key.
func TickOf(key []byte) int32 { return int32(binary.BigEndian.Uint32(key[len(key)-4:]) ^ 1<<31) }

const tickBytes = 2 * 32

// DecodeTick reads a row of Ticks.
func DecodeTick(row []byte) (t Tick, err error) {
	if len(row) != tickBytes {
		return t, errors.New("tick has another length")
	}
	t.Gross.SetBytes32(row)
	t.Net.SetBytes32(row[32:])
	return t, nil
}

// moveTick adds a change of liquidity to the lower or the upper end of its range.
func moveTick(w state.Writer, pool common.Hash, tick int32, delta *uint256.Int, upper bool) (string, error) {
	key := TickKey(pool, tick)
	row, err := w.Get(Ticks, key)
	if err != nil {
		return "", err
	}
	var t Tick
	if row != nil {
		if t, err = DecodeTick(row); err != nil {
			return "", err
		}
	}
	if !addSigned(&t.Gross, delta) {
		return BelowZero, nil
	}
	if t.Gross.IsZero() {
		w.Delete(Ticks, key)
		return "", nil
	}
	if upper {
		t.Net.Sub(&t.Net, delta)
	} else {
		t.Net.Add(&t.Net, delta)
	}
	data := make([]byte, tickBytes)
	t.Gross.WriteToSlice(data[:32])
	t.Net.WriteToSlice(data[32:])
	w.Put(Ticks, key, data)
	return "", nil
}
