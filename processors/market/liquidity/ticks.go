package liquidity

import (
	"encoding/binary"
	"strconv"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/family"
	"github.com/lienstream/lienstream/topics"
)

// Ticks has a row, topics.Tick, for each tick at which a range begins or ends, under TickKey.
var Ticks = &state.Table{
	ID: tableTicks, Name: "ticks",
	Entity: &state.EntityTopic{Name: topics.EntityTick, Key: tickEntityKey, Encode: topics.EncodeTick},
}

// changes has the hash of the last block that changed a pool's liquidity, under the pool's ID. It shows whether ticks
// that were read as of an earlier block are still current, also after a reorg.
var changes = &state.Table{ID: tableChanges, Name: "liquidity changes"}

// Changed is the block that last changed a pool's liquidity; zero: none has.
func Changed(v state.Reader, pool common.Hash) (common.Hash, error) {
	row, err := v.Get(changes, pool[:])
	return common.BytesToHash(row), err
}

// TickKey is the key of a tick: the pool, then the tick, ascending.
func TickKey(pool common.Hash, tick int32) []byte {
	key := append(make([]byte, 0, len(pool)+4), pool[:]...)
	return binary.BigEndian.AppendUint32(key, uint32(tick)^1<<31)
}

// TickOf decodes the tick in a key.
func TickOf(key []byte) int32 { return int32(binary.BigEndian.Uint32(key[len(key)-4:]) ^ 1<<31) }

// tickEntityKey is "0x<pool>:<tick>".
func tickEntityKey(b, key []byte) []byte {
	return strconv.AppendInt(append(contracts.AppendHex(b, key[:common.HashLength]), ':'), int64(TickOf(key)), 10)
}

// DecodeTick decodes a row of Ticks.
func DecodeTick(row []byte) (t topics.Tick, err error) {
	err = t.UnmarshalBinary(row)
	return t, err
}

// moveTick adds a change of liquidity to the lower or upper tick of its range.
func moveTick(w state.Writer, pool common.Hash, tick int32, delta *uint256.Int, upper bool) (string, error) {
	key := TickKey(pool, tick)
	t := topics.Tick{PoolID: pool, Tick: tick}
	if _, err := family.Get(w, Ticks, key, &t); err != nil {
		return "", err
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
	return "", family.Put(w, Ticks, key, &t)
}
