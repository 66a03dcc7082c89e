// Package balances applies the vault's credits: what an account can withdraw now. It must depend on nothing but
// the given state and event: no clock, no chain, no other family.
package balances

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
	CreditedTwice     = "NFT credited twice"
	CreditOverflow    = "credit exceeds 256 bits"
	NothingToWithdraw = "withdrawal without a credit"
	WithdrawnBeyond   = "withdrawal exceeds the credit"
)

// Balances has a row, topics.Balance, for each non-zero credit, under Key or nftKey. The table's ID is part of
// every key on disk: never reuse it.
var Balances = &state.Table{
	ID: 3, Name: "balances",
	Entity: &state.EntityTopic{Name: topics.EntityBalance, Key: entityKey, Encode: topics.EncodeBalance},
}

// Key is the key of an account's credit in a fungible asset, prefixed by the account.
func Key(account, asset common.Address) []byte {
	return append(append(make([]byte, 0, 2*common.AddressLength), account[:]...), asset[:]...)
}

// nftKey is the key of an NFT that an account can withdraw.
func nftKey(account, asset common.Address, tokenID *uint256.Int) []byte {
	raw := tokenID.Bytes32()
	key := append(make([]byte, 0, 2*common.AddressLength+len(raw)), account[:]...)
	return append(append(key, asset[:]...), raw[:]...)
}

// Family describes this family.
var Family = family.Family{
	Name: "balances", Tables: []*state.Table{Balances}, Apply: apply,
	Events: []contracts.Event{&contracts.Credited{}, &contracts.Withdrawn{}},
}

// apply applies an event, and returns the invariant that it violates, if any.
func apply(w state.Writer, _ topics.EventMeta, event contracts.Event) (violation string, err error) {
	switch e := event.(type) {
	case *contracts.Credited:
		violation, err = credited(w, e)
	case *contracts.Withdrawn:
		violation, err = withdrawn(w, e)
	}
	return violation, err
}

func credited(w state.Writer, e *contracts.Credited) (violation string, err error) {
	b := topics.Balance{Account: e.Account, Asset: e.Asset, Kind: e.Kind, Amount: e.AmountOrTokenID}
	if e.Kind == contracts.BalanceNFT {
		key := nftKey(e.Account, e.Asset, &e.AmountOrTokenID)
		if row, err := w.Get(Balances, key); err != nil || row != nil {
			return CreditedTwice, err
		}
		return "", family.Put(w, Balances, key, &b)
	}

	key := Key(e.Account, e.Asset)
	var before topics.Balance
	if _, err := family.Get(w, Balances, key, &before); err != nil {
		return "", err
	}
	if _, overflow := b.Amount.AddOverflow(&b.Amount, &before.Amount); overflow {
		return CreditOverflow, nil
	}
	if b.Amount.IsZero() {
		return "", nil
	}
	return "", family.Put(w, Balances, key, &b)
}

// withdrawn leaves what the account did not withdraw, at least zero.
func withdrawn(w state.Writer, e *contracts.Withdrawn) (violation string, err error) {
	key := Key(e.Account, e.Asset)
	if e.Kind == contracts.BalanceNFT {
		key = nftKey(e.Account, e.Asset, &e.AmountOrTokenID)
	}
	var b topics.Balance
	if found, err := family.Get(w, Balances, key, &b); err != nil || !found {
		return NothingToWithdraw, err
	}
	if e.Kind == contracts.BalanceNFT || b.Amount.Eq(&e.AmountOrTokenID) {
		w.Delete(Balances, key)
		return "", nil
	}
	if b.Amount.Lt(&e.AmountOrTokenID) {
		w.Delete(Balances, key)
		return WithdrawnBeyond, nil
	}
	b.Amount.Sub(&b.Amount, &e.AmountOrTokenID)
	return "", family.Put(w, Balances, key, &b)
}

// entityKey is "0x<account>:0x<asset>", and ":<token ID>" for an NFT.
func entityKey(b, key []byte) []byte {
	account, rest := key[:common.AddressLength], key[common.AddressLength:]
	asset, token := rest[:common.AddressLength], rest[common.AddressLength:]
	b = contracts.AppendHex(append(contracts.AppendHex(b, account), ':'), asset)
	if len(token) > 0 {
		b = contracts.AppendNumber(append(b, ':'), new(uint256.Int).SetBytes(token))
	}
	return b
}
