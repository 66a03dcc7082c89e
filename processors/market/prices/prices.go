// Package prices keeps the history of each pool: an observation for each second in which the price moved, with the span
// of its prices, and one for each hour; and what was traded in each hour. It must depend on nothing but the given state
// and event: no clock, no chain, no other family.
package prices

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strconv"

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
	// SecondsKept is for how many full hours per-second observations are kept: a reference price needs half an
	// hour, and older prices are kept by the hour.
	SecondsKept = 24
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

// unpruned has an empty row for each pool, under its ID, of which more old observations are left than one observation
// deletes.
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
	Events: []contracts.Event{&contracts.Swapped{}, &contracts.PoolInitialized{}, &contracts.LiquidityModified{}},
}

// apply records the price of the pool after an event.
func apply(w state.Writer, _ topics.EventMeta, event contracts.Event) (violation string, err error) {
	switch e := event.(type) {
	case *contracts.Swapped:
		o := topics.Observation{PoolID: e.PoolID, At: w.Block().Timestamp, SqrtPriceX96: e.SqrtPriceX96, Tick: e.Tick}
		if err = observe(w, &o, &e.Liquidity); err == nil {
			err = trade(w, e)
		}
	case *contracts.PoolInitialized:
		o := topics.Observation{PoolID: e.PoolID, At: w.Block().Timestamp, SqrtPriceX96: e.SqrtPriceX96, Tick: e.Tick}
		err = observe(w, &o, new(uint256.Int))
	case *contracts.LiquidityModified:
		err = modified(w, e)
	}
	return "", err
}

// observe overwrites the observation of the second and of the hour: the last one counts.
func observe(w state.Writer, o *topics.Observation, liquidity *uint256.Int) error {
	row, err := o.AppendBinary(make([]byte, 0, rowBytes))
	if err != nil {
		return err
	}
	w.Put(Seconds, Key(o.PoolID, o.At), row)
	return keep(w, o, liquidity)
}

// modified keeps the liquidity in range where it changes.
func modified(w state.Writer, e *contracts.LiquidityModified) error {
	at := w.Block().Timestamp
	var o topics.Observation
	found, err := family.Get(w, Hours, Key(e.PoolID, at-at%Hour), &o)
	if err == nil && !found { // of an hour before
		var bad error
		err = w.Scan(Hours, e.PoolID[:], nil, func(_, row []byte) bool {
			found, bad = true, o.UnmarshalBinary(row)
			return false
		})
		err = errors.Join(err, bad)
	}
	if err != nil || !found || o.Tick < e.TickLower || o.Tick >= e.TickUpper || e.LiquidityDelta.IsZero() {
		return err
	}
	var last span
	if found, err := family.Get(w, Spans, Key(e.PoolID, o.At), &last); err != nil || !found {
		return err // as in widen, and what is in range is known with the next swap
	}
	o.At = at
	return keep(w, &o, last.liquidity.Add(&last.liquidity, &e.LiquidityDelta))
}

// keep overwrites the observation of the hour, and widens the span of the second.
func keep(w state.Writer, o *topics.Observation, liquidity *uint256.Int) error {
	pool, at := o.PoolID, o.At
	hour := Key(pool, at-at%Hour)
	var before topics.Observation
	former, err := family.Get(w, Hours, hour, &before)
	if err != nil {
		return err
	}
	last := before.At
	if !former {
		if err := finish(w, pool, at); err != nil {
			return err
		}
		if last, _, err = newest(w, pool, at); err != nil {
			return err
		}
	}
	if err := widen(w, pool, last, o.Tick, liquidity); err != nil {
		return err
	}
	if err := family.Put(w, Hours, hour, o); err != nil {
		return err
	}
	due := !former
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

// prunedAtOnce bounds what an observation deletes: a pool may have been traded in every second of a day, and its next
// swap must cost no more than any other.
const prunedAtOnce = 64

// prune deletes observations and spans of seconds that are too old: once an hour, and with the next observations for as
// long as there are more of them.
func prune(w state.Writer, pool common.Hash, now uint64) error {
	oldest := now - now%Hour
	if oldest < SecondsKept*Hour {
		return nil
	}
	oldest -= SecondsKept * Hour
	var old [][]byte
	more := false
	err := w.Scan(Spans, pool[:], Key(pool, oldest), func(key, _ []byte) bool {
		if more = len(old) == prunedAtOnce; !more {
			old = append(old, bytes.Clone(key))
		}
		return !more
	})
	if err != nil {
		return err
	}
	for i, key := range old {
		second, err := w.Get(Seconds, key)
		if err != nil {
			return err
		}
		if second != nil {
			w.Delete(Seconds, key)
		}
		if i > 0 { // the newest is what the price was until the first that is kept
			w.Delete(Spans, key)
		}
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
func entityKey(b, key []byte) []byte {
	return strconv.AppendUint(append(contracts.AppendHex(b, key[:common.HashLength]), ':'), At(key), 10)
}
