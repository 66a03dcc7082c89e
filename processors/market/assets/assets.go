// Package assets applies the registry's events of a token and what was read from the token itself. It
// must depend on nothing but the state it is given and the record: no clock, no chain, no other family.
package assets

import (
	"fmt"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// NoAsset is the invariant that a change of open amounts breaks where the registry never set the token.
const NoAsset = "no such asset"

// Assets has a row, topics.Asset, for each token that the registry ever set, under the token's address.
// Its number is in every key on disk: never reuse it.
var Assets = &state.Table{
	ID: 4, Name: "assets",
	Entity: &state.EntityTopic{Name: topics.EntityAsset, Key: entityKey, Encode: encode},
}

// Apply applies an event of the registry, and says which invariant the event breaks, if any. Events that
// are not of this family change nothing. What a token says of its multiplier and its pause is not applied
// either: a Probe of the token follows, and says it whole.
func Apply(w state.Writer, event contracts.Event) (violation string, err error) {
	switch e := event.(type) {
	case *contracts.AssetSet:
		err = set(w, e)
	case *contracts.OpenRawChanged:
		violation, err = change(w, e.Token, func(a *topics.Asset) { a.OpenRaw = e.OpenRaw })
	}
	return violation, err
}

// Known says whether the registry ever set the token.
func Known(w state.Writer, token common.Address) (bool, error) {
	row, err := w.Get(Assets, token[:])
	return row != nil, err
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

func encode(b, row []byte, at topics.BlockRef) ([]byte, error) {
	var a topics.Asset
	if err := a.UnmarshalBinary(row); err != nil {
		return nil, err
	}
	return topics.AppendAsset(b, &a, at), nil
}
