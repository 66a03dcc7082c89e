// Package assets applies the registry's events of a token and what was read from the token itself. It
// must depend on nothing but the state it is given and the record: no clock, no chain, no other family.
package assets

import (
	"fmt"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/family"
	"github.com/lienstream/lienstream/topics"
)

// NoAsset is the invariant that a change of open amounts breaks where the registry never set the token.
const NoAsset = "no such asset"

// Assets has a row, topics.Asset, for each token that the registry ever set, under the token's address.
// Its number is in every key on disk: never reuse it.
var Assets = &state.Table{
	ID: 4, Name: "assets",
	Entity: &state.EntityTopic{Name: topics.EntityAsset, Key: entityKey, Encode: topics.EncodeAsset},
}

// Family is what the market has to know of it.
var Family = family.Family{
	Name: "assets", Tables: []*state.Table{Assets}, Apply: apply,
	Events: []contracts.Event{
		&contracts.AssetSet{}, &contracts.OpenRawChanged{},
		&contracts.UIMultiplierUpdated{}, &contracts.TokenPaused{}, &contracts.TokenUnpaused{},
	},
}

// apply applies an event of the registry, and says which invariant the event breaks, if any. What a token
// says of its multiplier and its pause is not applied: a Probe of the token follows, and says it whole.
func apply(w state.Writer, _ topics.EventMeta, event contracts.Event) (violation string, err error) {
	switch e := event.(type) {
	case *contracts.AssetSet:
		err = set(w, e)
	case *contracts.OpenRawChanged:
		violation, err = change(w, e.Token, func(a *topics.Asset) { a.OpenRaw = e.OpenRaw })
	case *contracts.UIMultiplierUpdated:
		err = known(w, e.Token)
	case *contracts.TokenPaused:
		err = known(w, e.Token)
	case *contracts.TokenUnpaused:
		err = known(w, e.Token)
	}
	return violation, err
}

// known is ErrForeign for a token that the registry never set: anybody can deploy one that emits what a stock
// token does, and nobody asked for its events.
func known(w state.Writer, token common.Address) error {
	row, err := w.Get(Assets, token[:])
	if err == nil && row == nil {
		err = family.ErrForeign
	}
	return err
}

// ApplyProbe takes over what a token answered. Tokens that the registry does not know are passed over.
func ApplyProbe(w state.Writer, p *topics.Probe) error {
	_, err := change(w, p.Token, func(a *topics.Asset) {
		a.UIMultiplier, a.NewUIMultiplier, a.EffectiveAt, a.Paused = p.UIMultiplier, p.NewUIMultiplier, p.EffectiveAt, p.Paused
	})
	return err
}

// set takes over the registry's entry. What is open and what was probed outlives it.
func set(w state.Writer, e *contracts.AssetSet) error {
	var a topics.Asset
	if _, err := get(w, e.Token, &a); err != nil {
		return err
	}
	a.Token, a.Symbol, a.Name, a.Decimals = e.Token, e.Symbol, e.TokenName, e.Decimals
	a.Kind, a.Lane, a.Allowed = e.Kind, e.Lane, e.Allowed
	a.MinAmount, a.MaxDealRaw, a.MaxOpenRaw = e.MinAmount, e.MaxDealRaw, e.MaxOpenRaw
	return put(w, &a)
}

func change(w state.Writer, token common.Address, edit func(*topics.Asset)) (string, error) {
	var a topics.Asset
	if found, err := get(w, token, &a); err != nil || !found {
		return NoAsset, err
	}
	edit(&a)
	return "", put(w, &a)
}

func get(w state.Writer, token common.Address, a *topics.Asset) (bool, error) {
	row, err := w.Get(Assets, token[:])
	if err != nil || row == nil {
		return false, err
	}
	return true, a.UnmarshalBinary(row)
}

func put(w state.Writer, a *topics.Asset) error {
	row, err := a.AppendBinary(nil)
	if err != nil {
		return err
	}
	w.Put(Assets, a.Token.Bytes(), row)
	return nil
}

func entityKey(key []byte) []byte { return fmt.Appendf(nil, "0x%x", key) }
