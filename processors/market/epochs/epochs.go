// Package epochs applies the weekly budgets of sTKN: opened, rates, reserved, returned, released, closed. It
// must depend on nothing but the given state and event: no clock, no chain, no other family.
package epochs

import (
	"encoding/binary"
	"strconv"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/family"
	"github.com/lienstream/lienstream/topics"
)

// Invariants that an event may violate. The caller counts violations.
const (
	OpenedTwice  = "epoch opened twice"
	NoEpoch      = "no such epoch"
	ClosedTwice  = "epoch closed twice"
	OverBudget   = "reservations or releases exceed the budget"
	OtherRelease = "epoch closed with a different sum of releases"
)

// Epochs has a row, topics.Epoch, for each epoch under Key, the newest first. The table's ID is part of every
// key on disk: never reuse it.
var Epochs = &state.Table{
	ID: 7, Name: "epochs",
	Entity: &state.EntityTopic{Name: topics.EntityEpoch, Key: entityKey, Encode: topics.EncodeEpoch},
}

// Key is the key of an epoch.
func Key(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, ^n) }

// Family describes this family.
var Family = family.Family{
	Name: "epochs", Tables: []*state.Table{Epochs}, Apply: apply,
	Events: []contracts.Event{
		&contracts.EpochOpened{}, &contracts.EpochRatesSet{}, &contracts.EpochReserved{}, &contracts.EpochReturned{},
		&contracts.LiquidityReleased{}, &contracts.EpochClosed{},
	},
}

// apply applies an event, and returns the invariant that it violates, if any.
func apply(w state.Writer, _ topics.EventMeta, event contracts.Event) (violation string, err error) {
	switch e := event.(type) {
	case *contracts.EpochOpened:
		violation, err = opened(w, e)
	case *contracts.EpochRatesSet:
		violation, err = change(w, e.N, func(row *topics.Epoch) string {
			row.Rates = &topics.EpochRates{
				Rate7: e.Rate7, Rate21: e.Rate21, PriceUSDGPerSTKN: e.PriceUSDGPerSTKN, LenderShareBps: e.LenderShareBps,
			}
			return ""
		})
	case *contracts.EpochReserved:
		violation, err = reserve(w, e.N, e.Term, &e.ReservedAfter)
	case *contracts.EpochReturned:
		violation, err = reserve(w, e.N, e.Term, &e.ReservedAfter)
	case *contracts.LiquidityReleased:
		violation, err = change(w, e.N, func(row *topics.Epoch) string {
			row.Released = e.ReleasedAfter
			return over(&row.Released, &row.LiquidityBudget)
		})
	case *contracts.EpochClosed:
		violation, err = change(w, e.N, func(row *topics.Epoch) string {
			if row.Unspent != nil {
				return ClosedTwice
			}
			row.Unspent = e.RolledOver.Clone()
			if !row.Released.Eq(&e.Released) {
				return OtherRelease
			}
			return ""
		})
	}
	return violation, err
}

func opened(w state.Writer, e *contracts.EpochOpened) (string, error) {
	if row, err := w.Get(Epochs, Key(e.N)); err != nil || row != nil {
		return OpenedTwice, err
	}
	return "", family.Put(w, Epochs, Key(e.N), &topics.Epoch{
		N: e.N, StartsAt: e.StartsAt, EndsAt: e.EndsAt, Weekly: e.Weekly, RolledOver: e.RolledOver,
		DealBudget7: e.DealBudget7, DealBudget21: e.DealBudget21, LiquidityBudget: e.LiquidityBudget,
	})
}

func reserve(w state.Writer, n, term uint32, after *uint256.Int) (string, error) {
	return change(w, n, func(row *topics.Epoch) string {
		if term == contracts.ShortTerm {
			row.Reserved7 = *after
			return over(after, &row.DealBudget7)
		}
		row.Reserved21 = *after
		return over(after, &row.DealBudget21)
	})
}

func over(spent, budget *uint256.Int) string {
	if spent.Gt(budget) {
		return OverBudget
	}
	return ""
}

// change edits an epoch, which must exist.
func change(w state.Writer, n uint32, edit func(*topics.Epoch) string) (string, error) {
	var e topics.Epoch
	if found, err := family.Get(w, Epochs, Key(n), &e); err != nil || !found {
		return NoEpoch, err
	}
	violation := edit(&e)
	return violation, family.Put(w, Epochs, Key(n), &e)
}

func entityKey(b, key []byte) []byte {
	return strconv.AppendUint(b, uint64(^binary.BigEndian.Uint32(key)), 10)
}
