// Package drips applies the streams of sTKN to accounts: created, cut, claimed. It must depend on nothing but
// the given state and event: no clock, no chain, no other family. It also computes what a drip has unlocked at
// the time of a block.
package drips

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/family"
	"github.com/lienstream/lienstream/topics"
)

// Invariants that an event may violate. The caller counts violations.
const (
	CreatedTwice = "drip created twice"
	NoDrip       = "no such drip"
	CutTwice     = "drip cut twice"
	CutOther     = "cut amount differs from the drip's remainder"
	ClaimedOther = "claimed amount differs from the drip's total"
	ClaimedOver  = "claim exceeds the drip's total"
)

// IndexDeal: the deal's ID, the drip's ID descending, then the account. The IDs of tables and indexes are part of
// every key on disk: never reuse one. 0x17 was the same by account.
const IndexDeal byte = 0x21

// Drips has a row, topics.Drip, for each drip under Key.
var Drips = &state.Table{
	ID: 5, Name: "drips", Index: index,
	Entity: &state.EntityTopic{Name: topics.EntityDrip, Key: entityKey, Encode: topics.EncodeDrip},
}

// Key is the key of a drip: the account, then the drip's ID, ascending.
func Key(account common.Address, id *uint256.Int) []byte {
	raw := id.Bytes32()
	return append(append(make([]byte, 0, common.AddressLength+len(raw)), account[:]...), raw[:]...)
}

// ID decodes a drip's ID from its key.
func ID(key []byte) *uint256.Int { return new(uint256.Int).SetBytes(key[common.AddressLength:]) }

// PlaceBytes is the length of a place.
const PlaceBytes = 32 + common.AddressLength

// Place is the place of a drip in lists that have the newest first: its ID descending, then the account.
func Place(key []byte) []byte {
	raw := new(uint256.Int).Not(ID(key)).Bytes32()
	return append(append(make([]byte, 0, PlaceBytes), raw[:]...), key[:common.AddressLength]...)
}

// KeyAt is the key of the drip at a place.
func KeyAt(place []byte) []byte {
	id := new(uint256.Int).SetBytes(place[:32])
	return Key(common.BytesToAddress(place[32:]), id.Not(id))
}

// DealPrefix is the prefix of a deal's drips in IndexDeal.
func DealPrefix(deal *uint256.Int) []byte {
	raw := deal.Bytes32()
	return raw[:]
}

// Family describes this family.
var Family = family.Family{
	Name: "drips", Tables: []*state.Table{Drips}, Apply: apply,
	Events: []contracts.Event{&contracts.DripCreated{}, &contracts.DripCut{}, &contracts.DripClaimed{}},
}

// apply applies an event, and returns the invariant that it violates, if any.
func apply(w state.Writer, _ topics.EventMeta, event contracts.Event) (violation string, err error) {
	switch e := event.(type) {
	case *contracts.DripCreated:
		violation, err = created(w, e)
	case *contracts.DripCut:
		violation, err = change(w, e.Account, &e.DripID, func(d *topics.Drip) string {
			if d.CutAt != 0 {
				return CutTwice
			}
			left, over := new(uint256.Int).SubOverflow(&d.Total, &e.Returned)
			d.CutAt, d.Total = e.At, e.TotalAfter
			if over || !left.Eq(&e.TotalAfter) {
				return CutOther
			}
			return ""
		})
	case *contracts.DripClaimed:
		violation, err = change(w, e.Account, &e.DripID, func(d *topics.Drip) string {
			sum, over := new(uint256.Int).AddOverflow(&d.Claimed, &e.Amount)
			d.Claimed = e.ClaimedAfter
			switch {
			case over || !sum.Eq(&e.ClaimedAfter):
				return ClaimedOther
			case d.Claimed.Gt(&d.Total):
				return ClaimedOver
			}
			return ""
		})
	}
	return violation, err
}

func created(w state.Writer, e *contracts.DripCreated) (string, error) {
	key := Key(e.Account, &e.DripID)
	if row, err := w.Get(Drips, key); err != nil || row != nil {
		return CreatedTwice, err
	}
	return "", family.Put(w, Drips, key, &topics.Drip{
		ID: e.DripID, Account: e.Account, Source: e.Source, DealID: e.DealID, TokenID: e.TokenID, Epoch: e.Epoch,
		Granted: e.Total, Total: e.Total, Start: e.Start, Length: e.Length, Cliff: e.Cliff,
	})
}

// change edits a drip, which must exist. The contract is right about its own numbers: where an event
// contradicts the state, its numbers are used and the violation is counted.
func change(w state.Writer, account common.Address, id *uint256.Int, edit func(*topics.Drip) string) (string, error) {
	key := Key(account, id)
	var d topics.Drip
	if found, err := family.Get(w, Drips, key, &d); err != nil || !found {
		return NoDrip, err
	}
	violation := edit(&d)
	return violation, family.Put(w, Drips, key, &d)
}

func index(key, row []byte, to *state.IndexEntries) {
	var d topics.Drip
	if err := d.UnmarshalBinary(row); err != nil {
		panic("drips: cannot decode a stored row: " + err.Error())
	}
	if d.Source == contracts.DripDeal {
		to.Put(IndexDeal, nil, DealPrefix(&d.DealID), Place(key))
	}
}

func entityKey(b, key []byte) []byte {
	return contracts.AppendNumber(b, ID(key))
}
