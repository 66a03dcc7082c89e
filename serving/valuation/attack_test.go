package valuation

import (
	"errors"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// liquidity replaces what a pool has, by what begins at one tick and ends at another.
func (s *stage) liquidity(t testing.TB, p *pool, lower, upper int32, liquidity uint64) {
	t.Helper()
	p.Ticks = nil
	l := uint256.NewInt(liquidity)
	for _, end := range []struct {
		at  int32
		net *uint256.Int
	}{{lower, l}, {upper, new(uint256.Int).Neg(l)}} {
		one, err := ammv4.NewTick(end.at, end.net)
		if err != nil {
			t.Fatal(err)
		}
		p.Ticks = append(p.Ticks, one)
	}
	p.Liquidity.Clear()
	if lower <= p.Tick && p.Tick < upper {
		p.Liquidity = *l
	}
	p.amm.Ticks, p.amm.Liquidity = p.Ticks, p.Liquidity
	s.judge()
}

// empty adds a pool without liquidity, whose price anybody has moved to where it wants, for nothing, long ago.
func (s *stage) empty(t testing.TB, id byte, currency0, currency1 common.Address, price *uint256.Int) *pool {
	t.Helper()
	tick, err := ammv4.TickAtSqrtPrice(price)
	if err != nil {
		t.Fatal(err)
	}
	p := s.open(t, id, currency0, currency1, tick, 0)
	p.Ticks, p.amm.Ticks = nil, nil
	p.SqrtPriceX96, p.amm.SqrtPriceX96 = *price, *price
	s.judge()
	return p
}

// TestPoolAtTheEndOfPrices: a pool without liquidity can be moved to the lowest and the highest price for nothing. It
// changes no value and no quote, and its own answers are no faults of the service.
func TestPoolAtTheEndOfPrices(t *testing.T) {
	lowest, highest := new(uint256.Int).AddUint64(ammv4.MinSqrtPrice, 1), new(uint256.Int).SubUint64(ammv4.MaxSqrtPrice, 1)
	position := &topics.PositionLiquidity{PoolID: common.Hash{1}, TickLower: -6000, TickUpper: 6000, Liquidity: *uint256.NewInt(1e12)}
	for name, price := range map[string]*uint256.Int{"lowest": lowest, "highest": highest, "initialised lowest": ammv4.MinSqrtPrice} {
		t.Run(name, func(t *testing.T) {
			for _, of := range []struct {
				token common.Address
				held  *topics.PositionLiquidity
			}{{token: meme}, {token: second}, {held: position}} {
				fair, most := newStage(t).valued(t, of.token, of.held)
				s := newStage(t)
				s.empty(t, 9, usdg, meme, price)
				s.empty(t, 8, meme, second, price)
				if value, suggested := s.valued(t, of.token, of.held); value == nil || value.Cmp(fair) != 0 || suggested.Cmp(most) != 0 {
					t.Errorf("worth %s and %s suggested beside it, without it %s and %s", value, suggested, fair, most)
				}
			}
			s := newStage(t)
			p := s.empty(t, 9, usdg, meme, price)
			for _, zeroForOne := range []bool{true, false} {
				way := []route{{{p, zeroForOne}}}
				for _, exactIn := range []bool{true, false} {
					if _, err := best(way, exactIn, uint256.NewInt(1e6)); !errors.Is(err, ammv4.ErrLiquidity) {
						t.Errorf("a quote of nothing: %v", err)
					}
				}
			}
			fair, err := atReference(p)
			if err != nil || !fair.Liquidity.IsZero() {
				t.Errorf("at its reference: %v, %v", fair, err)
			}
			for _, term := range []uint32{1, 7 * 24 * 3600} {
				r := s.suggest(p, term)
				if widest := usable(p.TickSpacing); r.lower >= r.upper || r.lower < -widest || r.upper > widest {
					t.Errorf("for %d s the range [%d, %d) is suggested", term, r.lower, r.upper)
				}
			}
		})
	}
}

// TestNobodyChoosesThePool: who disturbs the pool that prices a token, in one block, does not have it priced by another, in
// which he holds the price for half an hour with little money and to which he adds liquidity for that block.
func TestNobodyChoosesThePool(t *testing.T) {
	for name, of := range map[string]struct {
		token common.Address
		good  func(*stage) *pool
		other func(*stage) *pool // at a price that is 65 % higher
	}{
		"of the pair": {
			token: second, good: func(s *stage) *pool { return s.pair },
			other: func(s *stage) *pool { return s.open(t, 9, meme, second, -5000, 1e9) },
		},
		"with the dollar": {
			token: meme, good: func(s *stage) *pool { return s.direct },
			other: func(s *stage) *pool { return s.open(t, 9, usdg, meme, -5000, 1e9) },
		},
		"by another token": {
			token: second, good: func(s *stage) *pool { return s.pair },
			other: func(s *stage) *pool {
				third := common.Address{0x04}
				s.open(t, 7, usdg, third, 0, 1e15)
				return s.open(t, 9, second, third, 5000, 1e9)
			},
		},
		"by another token, from its dollars on": {
			token: second, good: func(s *stage) *pool { return s.direct },
			other: func(s *stage) *pool {
				third := common.Address{0x04}
				s.open(t, 7, usdg, third, 0, 1e15)
				return s.open(t, 9, second, third, 5000, 1e9)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, ticks := range []int32{250, 3000} {
				s := newStage(t)
				good, other := of.good(s), of.other(s)
				s.liquidity(t, good, -600, 600, 1e15)
				fair, most := s.valued(t, of.token, nil)
				if fair == nil || fair.Sign() == 0 {
					t.Fatalf("worth %s beside a thin pool", fair)
				}
				s.liquidity(t, other, -887_220, 887_220, 5e14)
				if value, _ := s.valued(t, of.token, nil); value != nil && value.Cmp(fair) > 0 {
					t.Errorf("worth %s, without its liquidity %s", value, fair)
				}
				s.move(t, good, ticks)
				value, suggested := s.valued(t, of.token, nil)
				if value != nil && (value.Cmp(fair) > 0 || suggested.Cmp(most) > 0) {
					t.Errorf("moved by %d ticks: worth %s and %s suggested, without it %s and %s", ticks, value, suggested, fair, most)
				}
			}
		})
	}
}

// TestNobodyHidesWhatThePriceDid: the price moved within the last hour, and somebody moves the pool back for a block, by as
// much as is not refused: the deviation that the haircut allows for is no lower for it.
func TestNobodyHidesWhatThePriceDid(t *testing.T) {
	for _, moved := range []int32{150, -150} {
		stage := func() *stage {
			s := newStage(t)
			p := s.direct
			s.move(t, p, moved)
			p.Hours = append(p.Hours, query.PriceAt{At: s.at.Timestamp, Tick: p.Tick})
			s.wait(2400)
			return s
		}
		s := stage()
		_, most := s.valued(t, meme, nil)
		was, _ := s.cfg.Haircut.deviation(s.series(meme, &quoted{pools: []*pool{s.direct}}))
		s.move(t, s.direct, 0)
		s.direct.Hours = append(s.direct.Hours, query.PriceAt{At: s.at.Timestamp, Tick: s.direct.Tick})
		_, suggested := s.valued(t, meme, nil)
		is, _ := s.cfg.Haircut.deviation(s.series(meme, &quoted{pools: []*pool{s.direct}}))
		if is < was || suggested == nil || suggested.Cmp(most) > 0 {
			t.Errorf("moved back by %d ticks the deviation is %g and %s suggested, without it %g and %s", moved, is, suggested, was, most)
		}
	}
}

// TestTimeInRangeIsAPart: however narrow or wide a range is.
func TestTimeInRangeIsAPart(t *testing.T) {
	last := 0.0
	for a := 1e-9; a < 1e12; a *= 1.1 {
		part := timeInRange(a)
		if part < last || part > 1 {
			t.Fatalf("%g deviations: %g of the time, with less %g", a, part, last)
		}
		last = part
	}
	if last != 1 {
		t.Errorf("in any range it is %g of the time", last)
	}
}
