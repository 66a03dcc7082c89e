package rules

import (
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/topics"
)

func word(n uint64) uint256.Int { return *uint256.NewInt(n) }

func TestBestBid(t *testing.T) {
	terms, others := common.Hash{1}, common.Hash{2}
	d := &topics.Deal{TermsHash: terms}
	bid := func(id, price, expiry uint64, state contracts.BidState, on common.Hash) topics.Bid {
		return topics.Bid{ID: word(id), Price: word(price), Expiry: expiry, State: state, TermsHash: on}
	}
	bids := []topics.Bid{
		bid(1, 5, 100, contracts.BidOpen, terms),
		bid(2, 9, 100, contracts.BidOpen, others),
		bid(3, 9, 100, contracts.BidWithdrawnState, terms),
		bid(4, 8, 50, contracts.BidOpen, terms),
		bid(5, 7, 100, contracts.BidOpen, terms),
		bid(6, 7, 100, contracts.BidOpen, terms),
	}
	for _, c := range []struct {
		now   uint64
		best  uint64 // 0: none
		count int
	}{{0, 4, 4}, {49, 4, 4}, {50, 5, 3}, {99, 5, 3}, {100, 0, 0}} {
		best, count := BestBid(d, bids, c.now)
		if count != c.count || (best == nil) != (c.best == 0) || best != nil && best.ID != word(c.best) {
			t.Errorf("at %d: %d bids, the best %v", c.now, count, best)
		}
	}
}

func TestMultipliers(t *testing.T) {
	one, two, zero := uint256.NewInt(1), uint256.NewInt(2), new(uint256.Int)
	at := func(n uint64) *uint64 { return &n }
	for name, c := range map[string]struct {
		asset            topics.Asset
		now              uint64
		current, pending *uint256.Int
	}{
		"a token without":     {topics.Asset{}, 5, nil, nil},
		"nothing announced":   {topics.Asset{UIMultiplier: one}, 5, one, nil},
		"zero announced":      {topics.Asset{UIMultiplier: one, NewUIMultiplier: zero, EffectiveAt: at(3)}, 5, one, nil},
		"no time":             {topics.Asset{UIMultiplier: one, NewUIMultiplier: two, EffectiveAt: at(0)}, 5, one, nil},
		"announced":           {topics.Asset{UIMultiplier: one, NewUIMultiplier: two, EffectiveAt: at(6)}, 5, one, two},
		"in effect":           {topics.Asset{UIMultiplier: one, NewUIMultiplier: two, EffectiveAt: at(5)}, 5, two, nil},
		"the same, announced": {topics.Asset{UIMultiplier: one, NewUIMultiplier: uint256.NewInt(1), EffectiveAt: at(6)}, 5, one, nil},
	} {
		if current, pending := Multipliers(&c.asset, c.now); current != c.current || pending != c.pending {
			t.Errorf("%s: %v and %v", name, current, pending)
		}
	}
}

func TestCostBps(t *testing.T) {
	for _, c := range []struct{ limit, price, want uint64 }{
		{1100, 1000, 1000}, {1000, 1000, 0}, {3, 2, 5000}, {10, 3, 23333}, {999, 1000, 0}, {5, 0, 0},
	} {
		limit, price := word(c.limit), word(c.price)
		if got := CostBps(&limit, &price); got != word(c.want) {
			t.Errorf("%d for %d: %s, want %d", c.limit, c.price, got.Dec(), c.want)
		}
	}
}
