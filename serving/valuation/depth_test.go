package valuation

import (
	"errors"
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/topics"
)

// TestAPositionDoesNotPriceItself: the provider of nearly all of a pool's liquidity chooses its price. That liquidity
// is no depth for its own value, and is one for any other's.
func TestAPositionDoesNotPriceItself(t *testing.T) {
	for _, young := range []uint64{0, 1e14} {
		s := newStage(t)
		s.liquidity(t, s.direct, -6000, 6000, 1e10)
		held := &topics.PositionLiquidity{PoolID: s.direct.ID, TickLower: -1200, TickUpper: 1200, Liquidity: *uint256.NewInt(1e15)}
		s.add(t, s.direct, held, young)
		if _, err := s.reference(meme); err != nil {
			t.Fatal(err)
		}
		other := *held
		other.Liquidity = *uint256.NewInt(1e10)
		if _, err := s.pledgedPosition(&other); err != nil {
			t.Errorf("a small one in a pool that is deep: %v", err)
		}
		_, err := s.pledgedPosition(held)
		if r, ok := errors.AsType[*refusal](err); !ok || r.reason != reasonDepth {
			t.Errorf("nearly all that the pool has: %v", err)
		}
	}
}

// TestASplitPosition: of a position in two halves one is depth for the other, as that of any other owner is, for as
// long as it is there. Alone it is none for itself.
func TestASplitPosition(t *testing.T) {
	s := newStage(t)
	s.liquidity(t, s.direct, -6000, 6000, 1e10)
	half := &topics.PositionLiquidity{PoolID: s.direct.ID, TickLower: -1200, TickUpper: 1200, Liquidity: *uint256.NewInt(5e14)}
	s.add(t, s.direct, half, 0)
	alone, other := *s.direct, *half
	other.TickLower, other.TickUpper = -1260, 1260
	s.add(t, s.direct, &other, 0)
	if _, err := s.pledgedPosition(half); err != nil {
		t.Errorf("a half beside the other: %v", err)
	}
	*s.direct = alone
	s.judge()
	_, err := s.pledgedPosition(half)
	if r, ok := errors.AsType[*refusal](err); !ok || r.reason != reasonDepth {
		t.Errorf("a half that is alone: %v", err)
	}
}

// TestAPoolHidesNoMarket: a pool with the dollar without trades does not hide what the price did by two hops, and a
// hop that is young does not hide what another one did before.
func TestAPoolHidesNoMarket(t *testing.T) {
	of := &topics.Deal{Token: meme, Term: 30 * 24 * 3600, AmountOrTokenID: *uint256.NewInt(1e9), Cap: *uint256.NewInt(1e9), MinPrice: *uint256.NewInt(1e9)}
	third := common.Address{0x04}
	suggested := func(direct bool, tick int32, young bool) *big.Int {
		s := newStage(t)
		s.assets[meme].Lane = contracts.LaneETH
		s.assets[third] = &topics.Asset{Token: third, Lane: contracts.LaneETH, Decimals: 6}
		if wild(s.direct, 0); !direct {
			s.pools = s.pools[1:]
		}
		wild(s.open(t, 7, meme, third, 0, 1e15), tick)
		second := s.open(t, 9, usdg, third, 0, 1e15)
		if wild(second, 0); young {
			second.Hours = second.Hours[len(second.Hours)-2:]
		}
		_, suggested := s.valuedAs(t, of, nil)
		if suggested == nil {
			t.Fatal("refused")
		}
		return suggested
	}
	for _, direct := range []bool{true, false} {
		for _, young := range []bool{true, false} {
			calm, wild := suggested(direct, 0, young), suggested(direct, 300, young)
			if known := suggested(false, 300, false); wild.Cmp(calm) >= 0 || wild.Cmp(new(big.Int).Add(known, new(big.Int).Quo(known, big.NewInt(100)))) > 0 {
				t.Errorf("with a pool of its own %t, one hop young %t: %s of what moves, %s of what does not; by two old hops %s", direct, young, wild, calm, known)
			}
		}
	}
}
