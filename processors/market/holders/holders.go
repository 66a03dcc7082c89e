// Package holders keeps the holders of each meme token of the registry and their amounts: from the ledger that the
// ingester sums up of the token's history, and from each transfer after it. It must depend on nothing but the given
// state and record: no clock, no chain, no other family.
package holders

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/family"
	"github.com/lienstream/lienstream/topics"
)

// IndexAmount: the token, the amount descending, then the account. The IDs of tables and indexes are part of every key
// on disk: never reuse one.
const IndexAmount byte = 0x22

// Holdings has a row, topics.Holding, for each account that holds a token that is followed, under HoldingKey.
var Holdings = &state.Table{
	ID: 23, Name: "holdings", Index: index,
	Entity: &state.EntityTopic{Name: topics.EntityHolding, Key: holdingEntityKey, Encode: topics.EncodeHolding},
}

// Tokens has a row, topics.Holders, for each token that is followed, under its address.
//
// Invariants, unless the row is Faulted:
//  1. Count is the number of the token's rows in Holdings, none of which is zero, and Supply is their sum;
//  2. a transfer of a token without a row, here or in joiningTokens, changes nothing, because the ledger to come includes it;
//  3. First is its ledger's, or zero: nothing proves the hash of a later transfer's transaction.
var Tokens = &state.Table{
	ID: 24, Name: "holders",
	Entity: &state.EntityTopic{Name: topics.EntityHolders, Key: contracts.AppendHex, Encode: topics.EncodeHolders},
}

// HoldingKey is the key of what an account holds of a token.
func HoldingKey(token, account common.Address) []byte {
	return append(append(make([]byte, 0, 2*common.AddressLength), token[:]...), account[:]...)
}

// Family describes this family.
var Family = family.Family{
	Name: "holders", Tables: []*state.Table{Holdings, Tokens, joiningTokens, debts}, Apply: apply,
	Events: []contracts.Event{&contracts.TokenTransferred{}, &contracts.TransferMalformed{}},
}

// apply applies an event, and returns the fault that it shows, if any: from then on nothing is said of the token's
// holders.
func apply(w state.Writer, _ topics.EventMeta, event contracts.Event) (violation string, err error) {
	token := common.Address{}
	e, whole := event.(*contracts.TokenTransferred)
	if whole {
		token = e.Token
	} else if m, ok := event.(*contracts.TransferMalformed); ok {
		token = m.Token
	}
	var t topics.Holders
	found, err := family.Get(w, Tokens, token[:], &t)
	if err != nil || found && t.Faulted {
		return "", err
	}
	var j joining
	if !found {
		if joins, err := family.Get(w, joiningTokens, token[:], &j); err != nil {
			return "", err
		} else if !joins {
			return "", family.ErrForeign
		}
	}
	switch {
	case !whole:
		violation = contracts.FaultMalformed
	case found:
		violation, err = e.Move(&t.Supply, rows{w: w, of: Holdings, token: token, count: &t.Count})
	default:
		violation, err = j.move(w, e)
	}
	switch {
	case err != nil:
		return "", err
	case !found:
		return violation, j.put(w, true, false, violation)
	}
	t.Faulted = violation != ""
	return violation, family.Put(w, Tokens, token[:], &t)
}

// rows are the rows of a token's holders in a table.
type rows struct {
	w     state.Writer
	of    *state.Table
	token common.Address
	count *uint64
}

func (r rows) Held(account common.Address) (uint256.Int, error) {
	var h topics.Holding
	if *r.count == 0 {
		return h.Amount, nil
	}
	_, err := family.Get(r.w, r.of, HoldingKey(r.token, account), &h)
	return h.Amount, err
}

func (r rows) SetHeld(account common.Address, before, amount *uint256.Int) error {
	key := HoldingKey(r.token, account)
	if amount.IsZero() {
		*r.count--
		r.w.Delete(r.of, key)
		return nil
	}
	if before.IsZero() {
		*r.count++
	}
	return family.Put(r.w, r.of, key, &topics.Holding{Token: r.token, Account: account, Amount: *amount})
}

func index(key, data []byte, to *state.IndexEntries) {
	var h topics.Holding
	if err := h.UnmarshalBinary(data); err != nil {
		panic("holders: cannot decode a stored row: " + err.Error())
	}
	descending := new(uint256.Int).Not(&h.Amount).Bytes32()
	to.Put(IndexAmount, data, key[:common.AddressLength], descending[:], key[common.AddressLength:])
}

// holdingEntityKey is "0x<token>:0x<account>".
func holdingEntityKey(b, key []byte) []byte {
	return contracts.AppendHex(append(contracts.AppendHex(b, key[:common.AddressLength]), ':'), key[common.AddressLength:])
}
