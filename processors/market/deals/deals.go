// Package deals applies the events of deals: terms, bids and outcome. It must depend on nothing but the given
// state and event: no clock, no chain, no other family.
package deals

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/family"
	"github.com/lienstream/lienstream/topics"
)

// Invariants that an event may violate. Then only what the event says about itself is applied; the caller
// counts violations.
const (
	ListedTwice  = "deal listed twice"
	NoDeal       = "no such deal"
	NotListed    = "deal is not listed"
	NotFunded    = "deal is not funded"
	PlacedTwice  = "bid placed twice"
	NoBid        = "no such bid"
	BidNotOpen   = "bid is not open"
	NoBidToCount = "bid closed on a deal without open bids"

	ReservedTwice = "reward reserved twice"
	NoReward      = "no such reward"
	ReturnedOver  = "returned reward exceeds the granted reward"
)

// Changed is called for each change of a deal; before is nil for a new deal. It must keep neither argument.
type Changed func(w state.Writer, before, after *topics.Deal) error

// Family describes this family. changed is not called for changes of a deal's number of bids.
func Family(changed Changed) family.Family {
	return family.Family{
		Name: "deals", Tables: []*state.Table{Deals, Bids, Rewards, bidSums},
		Events: []contracts.Event{
			&contracts.DealListed{}, &contracts.DealTermsUpdated{}, &contracts.DealFunded{}, &contracts.DealReclaimed{},
			&contracts.DealClaimed{}, &contracts.DealCancelled{},
			&contracts.BidPlaced{}, &contracts.BidWithdrawn{}, &contracts.BidAccepted{},
			&contracts.RewardReserved{}, &contracts.RewardReturned{},
		},
		Apply: func(w state.Writer, at topics.EventMeta, event contracts.Event) (string, error) {
			return apply(w, at.Tx, event, changed)
		},
	}
}

// apply applies an event of the transaction tx, and returns the invariant that it violates, if any.
func apply(w state.Writer, tx common.Hash, event contracts.Event, changed Changed) (violation string, err error) {
	switch e := event.(type) {
	case *contracts.DealListed:
		violation, err = listed(w, tx, e, changed)
	case *contracts.DealTermsUpdated:
		violation, err = change(w, &e.DealID, contracts.DealListedState, changed, func(d *topics.Deal) {
			d.Cap, d.MinPrice, d.Term = e.Cap, e.MinPrice, e.Term
			d.ListingExpiry, d.TermsHash = e.ListingExpiry, e.TermsHash
		})
	case *contracts.DealFunded:
		violation, err = change(w, &e.DealID, contracts.DealListedState, changed, func(d *topics.Deal) {
			d.State = contracts.DealFundedState
			d.Funding = &topics.Funding{
				Lender: e.Lender, Price: e.Price, Fee: e.Fee,
				FundedAt: e.FundedAt, Expiry: e.Expiry, GraceEnd: e.GraceEnd, Tx: tx,
			}
		})
	case *contracts.DealReclaimed:
		violation, err = end(w, &e.DealID, contracts.DealFundedState, contracts.DealReclaimedState, tx, changed)
	case *contracts.DealClaimed:
		violation, err = end(w, &e.DealID, contracts.DealFundedState, contracts.DealClaimedState, tx, changed)
	case *contracts.DealCancelled:
		violation, err = end(w, &e.DealID, contracts.DealListedState, contracts.DealCancelledState, tx, changed)
	case *contracts.BidPlaced:
		violation, err = placed(w, tx, e)
	case *contracts.BidWithdrawn:
		violation, err = closeBid(w, &e.DealID, &e.BidID, contracts.BidWithdrawnState)
	case *contracts.BidAccepted:
		violation, err = closeBid(w, &e.DealID, &e.BidID, contracts.BidAcceptedState)
	case *contracts.RewardReserved:
		violation, err = reserved(w, e)
	case *contracts.RewardReturned:
		violation, err = returned(w, e)
	}
	return violation, err
}

func listed(w state.Writer, tx common.Hash, e *contracts.DealListed, changed Changed) (string, error) {
	key := Key(&e.DealID)
	if row, err := w.Get(Deals, key); err != nil || row != nil {
		return ListedTwice, err
	}
	c := changes.Get().(*dealChange)
	defer changes.Put(c)
	d := &c.after
	*d = topics.Deal{
		ID: e.DealID, Borrower: e.Borrower, Kind: e.Kind, Lane: e.Lane, State: contracts.DealListedState,
		Token: e.Token, AmountOrTokenID: e.AmountOrTokenID, Cap: e.Cap, MinPrice: e.MinPrice, Term: e.Term,
		FeeBps: e.FeeBps, ListingExpiry: e.ListingExpiry, ListedAt: e.ListedAt, TermsHash: e.TermsHash, TxListed: tx,
	}
	if err := changed(w, nil, d); err != nil {
		return "", err
	}
	return "", putDeal(w, key, d)
}

// dealChange is a deal before and after a change.
type dealChange struct{ before, after topics.Deal }

// changes are kept: what Changed is given would else be allocated for each.
var changes = sync.Pool{New: func() any { return new(dealChange) }}

// change edits a deal, which must be in the state `from`.
func change(w state.Writer, id *uint256.Int, from contracts.DealState, changed Changed, edit func(*topics.Deal)) (string, error) {
	key := Key(id)
	c := changes.Get().(*dealChange)
	defer changes.Put(c)
	d := &c.after
	if found, err := getDeal(w, key, d); err != nil || !found {
		return NoDeal, err
	}
	if d.State != from {
		if from == contracts.DealFundedState {
			return NotFunded, nil
		}
		return NotListed, nil
	}
	c.before = *d
	edit(d)
	if err := changed(w, &c.before, d); err != nil {
		return "", err
	}
	return "", putDeal(w, key, d)
}

// end ends a deal. Its open bids stay open, as in the contract, where lenders can withdraw them.
func end(w state.Writer, id *uint256.Int, from, to contracts.DealState, tx common.Hash, changed Changed) (string, error) {
	return change(w, id, from, changed, func(d *topics.Deal) { d.State, d.TxSettled = to, tx })
}

func placed(w state.Writer, tx common.Hash, e *contracts.BidPlaced) (string, error) {
	key := Key(&e.DealID)
	var d topics.Deal
	if found, err := getDeal(w, key, &d); err != nil || !found {
		return NoDeal, err
	}
	if d.State != contracts.DealListedState {
		return NotListed, nil
	}
	bidKey := BidKey(&e.DealID, &e.BidID)
	if row, err := w.Get(Bids, bidKey); err != nil || row != nil {
		return PlacedTwice, err
	}
	b := topics.Bid{
		ID: e.BidID, DealID: e.DealID, Lender: e.Lender, Price: e.Price, Expiry: e.Expiry,
		PlacedAt: e.PlacedAt, State: contracts.BidOpen, TermsHash: e.TermsHash, Tx: tx,
	}
	if err := errors.Join(putBid(w, bidKey, &b), addBid(w, key, &b, d.OpenBids == 0)); err != nil {
		return "", err
	}
	d.OpenBids++
	return "", putDeal(w, key, &d)
}

// closeBid ends an OPEN bid. A bid may be withdrawn in any state of its deal.
func closeBid(w state.Writer, dealID, bidID *uint256.Int, to contracts.BidState) (string, error) {
	bidKey := BidKey(dealID, bidID)
	row, err := w.Get(Bids, bidKey)
	if err != nil || row == nil {
		return NoBid, err
	}
	var b topics.Bid
	if err := b.UnmarshalBinary(row); err != nil {
		return "", fmt.Errorf("bid %s: %w", bidID.Dec(), err)
	}
	if b.State != contracts.BidOpen {
		return BidNotOpen, nil
	}
	b.State = to
	key := Key(dealID)
	if err := errors.Join(putBid(w, bidKey, &b), removeBid(w, key, &b)); err != nil {
		return "", err
	}
	var d topics.Deal
	if found, err := getDeal(w, key, &d); err != nil || !found {
		return NoDeal, err
	}
	if d.OpenBids == 0 {
		return NoBidToCount, nil
	}
	d.OpenBids--
	return "", putDeal(w, key, &d)
}

func getDeal(w state.Writer, key []byte, d *topics.Deal) (bool, error) {
	row, err := w.Get(Deals, key)
	if err != nil || row == nil {
		return false, err
	}
	if err := d.UnmarshalBinary(row); err != nil {
		return false, fmt.Errorf("deal %s: %w", ID(key).Dec(), err)
	}
	return true, nil
}

func putDeal(w state.Writer, key []byte, d *topics.Deal) error {
	var buf [rowBytes]byte
	row, err := d.AppendBinary(buf[:0])
	if err != nil {
		return err
	}
	w.Put(Deals, key, slices.Clone(row)) // a copy, because the slice is kept
	return nil
}

func putBid(w state.Writer, key []byte, b *topics.Bid) error {
	var buf [rowBytes]byte
	row, err := b.AppendBinary(buf[:0])
	if err != nil {
		return err
	}
	w.Put(Bids, key, slices.Clone(row))
	return nil
}

// rowBytes is the capacity for most rows.
const rowBytes = 384
