// Package rules is the contracts' rules about values that events do not report: which bids count, which multiplier
// holds, what a deal costs. It must not read state or the clock: callers pass the rows and the time of a block.
package rules

import (
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/topics"
)

// ListingExpired reports whether a listing can no longer be funded at a time. Zero never expires. The contract
// refuses only after the expiry has passed.
func ListingExpired(expiry, now uint64) bool { return expiry != 0 && now > expiry }

// BidExpired reports whether a bid can no longer be accepted at a time. The contract refuses from the expiry on.
func BidExpired(expiry, now uint64) bool { return now >= expiry }

// onTerms says that a bid is open and on the deal's current terms: its borrower could accept it, were it not
// expired.
func onTerms(d *topics.Deal, b *topics.Bid) bool {
	return b.State == contracts.BidOpen && b.TermsHash == d.TermsHash
}

// Acceptable says that the borrower could accept a bid at a time.
func Acceptable(d *topics.Deal, b *topics.Bid, now uint64) bool {
	return onTerms(d, b) && !BidExpired(b.Expiry, now)
}

// BestBid counts the bids that could be accepted at a time and finds the best, nil where there is none: the
// highest price, the earliest on a tie. Bids ascend by ID, so the first seen is the earliest.
func BestBid(d *topics.Deal, bids []topics.Bid, now uint64) (best *topics.Bid, acceptable int) {
	for i := range bids {
		b := &bids[i]
		if !Acceptable(d, b, now) {
			continue
		}
		acceptable++
		if best == nil || b.Price.Gt(&best.Price) {
			best = b
		}
	}
	return best, acceptable
}

// Multipliers are a token's UI multiplier at a time and the one announced, nil where there is none. No event
// marks the moment when an announced one takes effect. Zero announces nothing: it is what a token answers
// that never had a change.
func Multipliers(a *topics.Asset, now uint64) (current, pending *uint256.Int) {
	current = a.UIMultiplier
	if current == nil || a.NewUIMultiplier == nil || a.NewUIMultiplier.IsZero() || a.EffectiveAt == nil || *a.EffectiveAt == 0 {
		return current, nil
	}
	if now >= *a.EffectiveAt {
		return a.NewUIMultiplier, nil
	}
	if a.NewUIMultiplier.Eq(current) {
		return current, nil
	}
	return current, a.NewUIMultiplier
}

// CostBps is (cap-price)*10000/price, rounded down. The contract holds 0 < price <= cap, both below 2^128; of
// other values the cost is 0.
func CostBps(limit, price *uint256.Int) (cost uint256.Int) {
	if price.IsZero() || limit.Lt(price) {
		return cost
	}
	cost.Sub(limit, price)
	cost.Mul(&cost, uint256.NewInt(10_000))
	cost.Div(&cost, price)
	return cost
}
