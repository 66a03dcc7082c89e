// Package assets applies the registry's token events and the probes of tokens. It must depend on nothing but
// the given state and record: no clock, no chain, no other family.
package assets

import (
	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/family"
	"github.com/lienstream/lienstream/topics"
)

// NoAsset: open amounts change of a token that the registry never set.
const NoAsset = "no such asset"

// Assets has a row, topics.Asset, for each token that the registry ever set; the key is the token's address.
// The table's ID is part of every key on disk: never reuse it.
var Assets = &state.Table{
	ID: 4, Name: "assets",
	Entity: &state.EntityTopic{Name: topics.EntityAsset, Key: contracts.AppendHex, Encode: topics.EncodeAsset},
}

// Family describes this family.
var Family = family.Family{
	Name: "assets", Tables: []*state.Table{Assets}, Apply: apply,
	Events: []contracts.Event{
		&contracts.AssetSet{}, &contracts.OpenRawChanged{},
		&contracts.UIMultiplierUpdated{}, &contracts.TokenPaused{}, &contracts.TokenUnpaused{},
	},
}

// apply applies an event, and returns the invariant that it violates, if any. The tokens' own events about
// multiplier and pause are not applied: a complete Probe of the token follows them.
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

// known returns ErrForeign for a token that the registry never set: anyone can deploy a contract that emits a
// stock token's events.
func known(w state.Writer, token common.Address) error {
	row, err := w.Get(Assets, token[:])
	if err == nil && row == nil {
		err = family.ErrForeign
	}
	return err
}

// ApplyProbe applies a token's probe. Tokens unknown to the registry are skipped.
func ApplyProbe(w state.Writer, p *topics.Probe) error {
	_, err := change(w, p.Token, func(a *topics.Asset) {
		a.UIMultiplier, a.NewUIMultiplier, a.EffectiveAt, a.Paused = p.UIMultiplier, p.NewUIMultiplier, p.EffectiveAt, p.Paused
	})
	return err
}

// set applies the registry's entry. Open amounts and probed fields stay.
func set(w state.Writer, e *contracts.AssetSet) error {
	var a topics.Asset
	if _, err := family.Get(w, Assets, e.Token[:], &a); err != nil {
		return err
	}
	a.Token, a.Symbol, a.Name, a.Decimals = e.Token, e.Symbol, e.TokenName, e.Decimals
	a.Kind, a.Lane, a.Allowed = e.Kind, e.Lane, e.Allowed
	a.MinAmount, a.MaxDealRaw, a.MaxOpenRaw = e.MinAmount, e.MaxDealRaw, e.MaxOpenRaw
	return family.Put(w, Assets, a.Token[:], &a)
}

func change(w state.Writer, token common.Address, edit func(*topics.Asset)) (string, error) {
	var a topics.Asset
	if found, err := family.Get(w, Assets, token[:], &a); err != nil || !found {
		return NoAsset, err
	}
	edit(&a)
	return "", family.Put(w, Assets, a.Token[:], &a)
}
