// Package burns applies the conversions of USDG into burned sTKN. It must depend on nothing but the given state
// and event: no clock, no chain, no other family.
package burns

import (
	"encoding/binary"
	"fmt"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/family"
	"github.com/lienstream/lienstream/topics"
)

// Invariants that a burn may violate. The caller counts violations.
const (
	BurnedBefore = "burn older than the last one"
	Overflow     = "burns exceed 256 bits"
)

// Burns has a row, topics.Burn, for each burn under Key, the newest first. Each row has the running sum, so
// what was burned since a time is the difference of two rows. The table's ID is part of every key on disk:
// never reuse it.
var Burns = &state.Table{
	ID: 8, Name: "burns",
	Entity: &state.EntityTopic{Name: topics.EntityBurn, Key: entityKey, Encode: topics.EncodeBurn},
}

const keyBytes = 8 + 8 + 4

// Key is the key of a burn.
func Key(at, block uint64, logIndex uint32) []byte {
	key := binary.BigEndian.AppendUint64(make([]byte, 0, keyBytes), ^at)
	key = binary.BigEndian.AppendUint64(key, ^block)
	return binary.BigEndian.AppendUint32(key, ^logIndex)
}

// Since is a position after all burns at that time or later, and before all earlier ones.
func Since(at uint64) []byte { return Key(at, 0, 0) }

// Family describes this family.
var Family = family.Family{
	Name: "burns", Tables: []*state.Table{Burns}, Apply: apply,
	Events: []contracts.Event{&contracts.Burned{}},
}

// apply applies a burn, and returns the invariant that it violates, if any.
func apply(w state.Writer, meta topics.EventMeta, event contracts.Event) (violation string, err error) {
	e := event.(*contracts.Burned)
	key := Key(e.At, meta.Block.Number, meta.LogIndex)
	b := topics.Burn{
		Caller: e.Caller, USDGSpent: e.USDGSpent, TKNBought: e.TKNBought, STKNBurned: e.STKNBurned,
		At: e.At, Tx: meta.Tx, Block: meta.Block.Number, LogIndex: meta.LogIndex, BurnedAfter: e.STKNBurned,
	}
	last, lastKey, err := newest(w)
	if err != nil {
		return "", err
	}
	if last != nil {
		if string(lastKey) <= string(key) {
			return BurnedBefore, nil
		}
		if _, over := b.BurnedAfter.AddOverflow(&b.BurnedAfter, &last.BurnedAfter); over {
			return Overflow, nil
		}
	}
	return "", family.Put(w, Burns, key, &b)
}

func newest(w state.Writer) (b *topics.Burn, key []byte, err error) {
	var bad error
	err = w.Scan(Burns, nil, nil, func(k, row []byte) bool {
		b, key = new(topics.Burn), append(key, k...)
		bad = b.UnmarshalBinary(row)
		return false
	})
	if err == nil && bad != nil {
		err = fmt.Errorf("the last burn: %w", bad)
	}
	return b, key, err
}

// entityKey is "<block>:<log index>".
func entityKey(b, key []byte) []byte {
	block := ^binary.BigEndian.Uint64(key[8:])
	return fmt.Appendf(b, "%d:%d", block, ^binary.BigEndian.Uint32(key[16:]))
}
