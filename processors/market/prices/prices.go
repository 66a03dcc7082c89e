// Package prices keeps the history of each pool: an observation for each second in which the price moved, with the span of its
// prices, and one for each hour; and what was traded in each hour. It must depend on nothing but the given state and event: no clock, no chain, no other
// family.
package prices

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/family"
	"github.com/lienstream/lienstream/topics"
)

const (
	// Hour is the length of an hour, in seconds.
	Hour = 60 * 60
	// secondsKept is for how many full hours per-second observations are kept: a reference price needs half an
	// hour, and older prices are kept by the hour.
	secondsKept = 24
)

// Seconds has a row, topics.Observation, for each second under Key, the newest first, for a day and the current
// hour. The IDs of tables are part of every key on disk: never reuse one.
var Seconds = &state.Table{
	ID: 15, Name: "price seconds",
	Entity: &state.EntityTopic{Name: topics.EntityObservation, Key: entityKey, Encode: topics.EncodeObservation},
}

// Hours has the last observation of each hour, topics.Observation, under Key of the hour's first second. They
// are kept forever.
var Hours = &state.Table{ID: 16, Name: "price hours"}

// unpruned has an empty row for each pool, under its ID, of which more old observations are left than one observation deletes.
var unpruned = &state.Table{ID: 32, Name: "unpruned prices"}

// Volumes has what was traded in each hour, a Volume, under Key of the hour's first second. They are kept forever.
var Volumes = &state.Table{ID: 22, Name: "volumes"}

const keyBytes = common.HashLength + 8

// Key is the key of an observation, prefixed by the pool.
func Key(pool common.Hash, at uint64) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, keyBytes), pool[:]...), ^at)
}

// At is the second in a key.
func At(key []byte) uint64 { return ^binary.BigEndian.Uint64(key[common.HashLength:]) }

// Before is a position after all observations later than a time; the next one is the observation valid at that
// time.
func Before(pool common.Hash, at uint64) []byte {
	key := Key(pool, at)
	for i := len(key) - 1; i >= common.HashLength; i-- { // decrement the key: a scan begins after its position
		key[i]--
		if key[i] != 0xff {
			return key
		}
	}
	return nil // no key is smaller: scan from the first
}

// Family describes this family.
var Family = family.Family{
	Name: "prices", Tables: []*state.Table{Seconds, Hours, Volumes, Closes, unpruned, Spans}, Apply: apply,
	Events: []contracts.Event{&contracts.Swapped{}, &contracts.PoolInitialized{}},
}

// apply records the price of the pool after an event.
func apply(w state.Writer, _ topics.EventMeta, event contracts.Event) (violation string, err error) {
	switch e := event.(type) {
	case *contracts.Swapped:
		if err = observe(w, e.PoolID, &e.SqrtPriceX96, e.Tick); err == nil {
			err = trade(w, e)
		}
	case *contracts.PoolInitialized:
		err = observe(w, e.PoolID, &e.SqrtPriceX96, e.Tick)
	}
	return "", err
}

// observe overwrites the observation of the second and of the hour, of which the last one counts, and widens the span.
func observe(w state.Writer, pool common.Hash, sqrtPrice *uint256.Int, tick int32) error {
	at := w.Block().Timestamp
	hour := Key(pool, at-at%Hour)
	former, err := w.Get(Hours, hour)
	if err != nil {
		return err
	}
	var last uint64
	if former != nil {
		var o topics.Observation
		if err := o.UnmarshalBinary(former); err != nil {
			return err
		}
		last = o.At
	} else {
		if err := finish(w, pool, at); err != nil {
			return err
		}
		if last, _, err = newest(w, pool, at); err != nil {
			return err
		}
	}
	if err := widen(w, pool, last, tick); err != nil {
		return err
	}
	o := topics.Observation{PoolID: pool, At: at, SqrtPriceX96: *sqrtPrice, Tick: tick}
	row, err := o.AppendBinary(make([]byte, 0, rowBytes))
	if err != nil {
		return err
	}
	w.Put(Seconds, Key(pool, at), row)

	w.Put(Hours, hour, bytes.Clone(row))
	due := former == nil
	if !due {
		left, err := w.Get(unpruned, pool[:])
		if err != nil {
			return err
		}
		due = left != nil
	}
	if due {
		return prune(w, pool, at)
	}
	return nil
}

// prunedAtOnce bounds what an observation deletes: a pool may have been traded in every second of a day, and its next swap
// must cost no more than any other.
const prunedAtOnce = 64

// prune deletes per-second observations that are too old: once an hour, and with the next observations for as long as there are
// more of them.
func prune(w state.Writer, pool common.Hash, now uint64) error {
	oldest := now - now%Hour
	if oldest < secondsKept*Hour {
		return nil
	}
	oldest -= secondsKept * Hour
	var old [][]byte
	more := false
	err := w.Scan(Seconds, pool[:], Key(pool, oldest), func(key, _ []byte) bool {
		if more = len(old) == prunedAtOnce; !more {
			old = append(old, bytes.Clone(key))
		}
		return !more
	})
	if err != nil {
		return err
	}
	for _, key := range old {
		w.Delete(Seconds, key)
		w.Delete(Spans, key)
	}
	left, err := w.Get(unpruned, pool[:])
	switch {
	case err != nil:
		return err
	case more && left == nil:
		w.Put(unpruned, pool[:], []byte{})
	case !more && left != nil:
		w.Delete(unpruned, pool[:])
	}
	return nil
}

// rowBytes is the maximum size of a row.
const rowBytes = 1 + common.HashLength + 10 + 33 + 5

// entityKey is "0x<pool>:<second>".
func entityKey(key []byte) []byte {
	return fmt.Appendf(nil, "0x%x:%d", key[:common.HashLength], At(key))
}
