package valuation

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/topics"
)

// tolerated is an amount that is higher by what the default MaxDeviation is as a factor, and a rounding.
func tolerated(amount *big.Int, pools int) *big.Int {
	z := new(big.Int).Set(amount)
	for range pools {
		z.Quo(z.Mul(z, big.NewInt(10203)), big.NewInt(10000))
	}
	return z.Add(z, big.NewInt(2))
}

// isDeviation fails a test where an error is no refusal for a moved pool.
func isDeviation(t *testing.T, when string, err error) {
	t.Helper()
	if r, ok := errors.AsType[*refusal](err); !ok || r.reason != reasonDeviation {
		t.Errorf("%s: %v", when, err)
	}
}

// TestNobodyMovesALimitIntoAGap: a pool has deep liquidity around its price and hardly any beyond. Who moves it there, by
// less than is refused, or a little further, or moves it where another and worse pool then has the best price, raises no limit
// by more than what a price may be off.
func TestNobodyMovesALimitIntoAGap(t *testing.T) {
	set := func(beside bool) (*stage, *pool) {
		s := newStage(t)
		p := s.open(t, 7, usdg, meme, 0, 1e9)
		s.pools = s.pools[2:] // of the pair this is the only one
		s.liquidity(t, p, -120, 120, 1e15)
		if beside {
			s.open(t, 8, usdg, meme, 900, 1e15)
		} else {
			s.open(t, 8, usdg, meme, 0, 1e9)
		}
		return s, p
	}
	amount := uint256.NewInt(1e9)
	quote := func(s *stage, buysMeme, exactIn bool) (*swapped, error) {
		from, to := []common.Address{usdg}, []common.Address{meme}
		if !buysMeme {
			from, to = to, from
		}
		o, err := s.offer(from, to, nil)
		if err != nil {
			return nil, err
		}
		return o.quote(exactIn, amount)
	}
	refused, quoted := 0, 0
	for _, beside := range []bool{false, true} {
		for _, buysMeme := range []bool{true, false} {
			for _, exactIn := range []bool{true, false} {
				s, _ := set(beside)
				fair, err := quote(s, buysMeme, exactIn)
				if err != nil {
					t.Fatal(err)
				}
				for _, ticks := range []int32{20, -20, 100, -100, 199, -199, 260, -260} {
					when := fmt.Sprintf("a worse pool beside it %t, for the token %t, exact in %t, by %d ticks", beside, buysMeme, exactIn, ticks)
					s, p := set(beside)
					s.move(t, p, ticks)
					q, err := quote(s, buysMeme, exactIn)
					if err != nil {
						isDeviation(t, when, err)
						refused++
						continue
					}
					quoted++
					pay, most := q.in.ToBig(), tolerated(fair.in.ToBig(), 1)
					if exactIn {
						pay, most = fair.out.ToBig(), tolerated(q.out.ToBig(), 1)
					}
					if pay.Cmp(most) > 0 {
						t.Errorf("%s: %s for %s, without it %s for %s", when, q.out.Dec(), q.in.Dec(), fair.out.Dec(), fair.in.Dec())
					}
				}
			}
		}
	}
	if refused == 0 || quoted < 16 {
		t.Errorf("%d quoted, %d refused", quoted, refused)
	}
}

// TestNobodyMovesWhatANarrowRangeTakes: a price that is moved by less than is refused changes many times what a narrow range
// needs of the other token, and how much of an amount has to be sold for it. Neither limit is higher by more than what a price
// may be off, of all that is paid.
func TestNobodyMovesWhatANarrowRangeTakes(t *testing.T) {
	amount := uint256.NewInt(1e9)
	refused, quoted := 0, 0
	for _, half := range []int32{120, 180, 1200, 12_000} {
		for _, of0 := range []bool{true, false} {
			r := &reinvestment{amount: amount, lower: -half, upper: half}
			fair := newStage(t)
			_, usual, err := fair.matched(fair.direct, r, of0)
			if err != nil {
				t.Fatal(err)
			}
			usualZap, err := fair.zapped(fair.direct, r, of0)
			if err != nil {
				t.Fatal(err)
			}
			for ticks := int32(-199); ticks < 200; ticks += 14 {
				when := fmt.Sprintf("a range of %d ticks, moved by %d, of currency0 %t", 2*half, ticks, of0)
				s := newStage(t)
				s.move(t, s.direct, ticks)
				all := new(big.Int).Add(amount.ToBig(), usual.ToBig())
				_, needed, err := s.matched(s.direct, r, of0)
				switch {
				case errors.Is(err, errNotTaken):
					refused++
				case err != nil:
					isDeviation(t, when, err)
					refused++
				default:
					quoted++
					if pays := new(big.Int).Add(amount.ToBig(), needed.ToBig()); pays.Cmp(tolerated(all, 1)) > 0 {
						t.Errorf("%s: it takes %s, without that %s", when, needed.Dec(), usual.Dec())
					}
				}
				z, err := s.zapped(s.direct, r, of0)
				if err != nil {
					isDeviation(t, when, err)
					refused++
					continue
				}
				quoted++
				most := new(big.Int).Sub(tolerated(amount.ToBig(), 1), amount.ToBig())
				if z.Sold.ToBig().Cmp(most.Add(most, usualZap.Sold.ToBig())) > 0 {
					t.Errorf("%s: %s is sold, without that %s", when, z.Sold.Dec(), usualZap.Sold.Dec())
				}
				if tolerated(z.Liquidity.ToBig(), 1).Cmp(usualZap.Liquidity.ToBig()) < 0 {
					t.Errorf("%s: liquidity %s, without that %s", when, z.Liquidity.Dec(), usualZap.Liquidity.Dec())
				}
			}
		}
	}
	if refused < 50 || quoted < 100 {
		t.Errorf("%d quoted, %d refused", quoted, refused)
	}
}

// TestAReferenceIsNoFinerThanATick: a price anywhere within its reference tick is not off, however narrow the range is.
func TestAReferenceIsNoFinerThanATick(t *testing.T) {
	low, err := ammv4.SqrtPriceAtTick(60)
	if err != nil {
		t.Fatal(err)
	}
	high, err := ammv4.SqrtPriceAtTick(61)
	if err != nil {
		t.Fatal(err)
	}
	for part := range uint64(8) {
		s := newStage(t)
		root := new(uint256.Int).Sub(high, low)
		root.Add(low, root.Div(root.Mul(root, uint256.NewInt(part)), uint256.NewInt(8)))
		p := s.direct
		p.SqrtPriceX96, p.amm.SqrtPriceX96, p.Tick, p.amm.Tick = *root, *root, 60, 60
		p.Seconds[0].Low, p.Seconds[0].High = 60, 60
		s.judge()
		for _, of0 := range []bool{true, false} {
			r := &reinvestment{amount: uint256.NewInt(1e9), lower: 60, upper: 120}
			if _, _, err := s.matched(p, r, of0); err != nil && (part > 0 || of0 || !errors.Is(err, errNotTaken)) {
				t.Errorf("%d eighths of the tick, of currency0 %t: %v", part, of0, err)
			}
			if _, err := s.zapped(p, r, of0); err != nil {
				t.Errorf("%d eighths of the tick, of currency0 %t, a zap: %v", part, of0, err)
			}
		}
	}
}

// crowd puts dust at each of 40,000 ticks on both sides of a pool, of which no more is known than the pipeline reads around
// its price and its reference.
func (s *stage) crowd(t testing.TB, p *pool) {
	t.Helper()
	const each = int32(40_000)
	var all []ammv4.Tick
	add := func(at int32, net *uint256.Int) {
		tick, err := ammv4.NewTick(at, net)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, tick)
	}
	one := uint256.NewInt(1)
	for at := -each; at <= each; at++ {
		if at < 0 {
			add(at, one)
		} else if at > 0 {
			add(at, new(uint256.Int).Neg(one))
		}
	}
	p.TickSpacing, p.amm.TickSpacing = 1, 1
	all = slices.Concat(p.Ticks[:1], all, p.Ticks[1:])
	window := func(around int32) (w query.Window) {
		i, _ := slices.BinarySearchFunc(all, around+1, func(t ammv4.Tick, at int32) int { return int(t.Index) - int(at) })
		first, last := i-ammv4.MaxCrossed, i+ammv4.MaxCrossed
		w.From, w.To = all[first].Index, all[last-1].Index
		for _, t := range all[:first] {
			w.Below.Add(&w.Below, &t.Net)
		}
		w.StandingBelow, w.Ticks, w.Standing = w.Below, all[first:last], all[first:last]
		return w
	}
	p.Window, p.Far = window(p.Tick), []query.Window{window(0)}
	*p = *p.at(&p.SqrtPriceX96, p.Tick, false)
	s.judge()
}

// TestDustRefusesNothing: somebody puts dust at every tick around a pool's price, far more than is read. What it prices is
// worth the same and quotes come to the same, but for the dust; and while somebody moves the pool, no other takes its place.
func TestDustRefusesNothing(t *testing.T) {
	position := &topics.PositionLiquidity{PoolID: common.Hash{1}, TickLower: -60_000, TickUpper: 60_000, Liquidity: *uint256.NewInt(1e12)}
	near := func(what string, have, want *big.Int) {
		t.Helper()
		gap := new(big.Int).Sub(have, want)
		if gap.Mul(gap, big.NewInt(1_000_000)).CmpAbs(want) > 0 {
			t.Errorf("%s is %s, without dust %s", what, have, want)
		}
	}
	for _, of := range []struct {
		token common.Address
		held  *topics.PositionLiquidity
	}{{token: meme}, {token: second}, {held: position}} {
		clean, s := newStage(t), newStage(t)
		fair, most := clean.valued(t, of.token, of.held)
		s.crowd(t, s.direct)
		value, suggested := s.valued(t, of.token, of.held)
		if value == nil {
			t.Fatal("dust refuses a price")
		}
		near("the value", value, fair)
		near("the cap", suggested, most)
		quote := func(s *stage) *swapped {
			o, err := s.offer([]common.Address{usdg}, []common.Address{second}, nil)
			if err != nil {
				t.Fatal(err)
			}
			q, err := o.quote(true, uint256.NewInt(1e12))
			if err != nil {
				t.Fatal(err)
			}
			return q
		}
		near("a quote", quote(s).out.ToBig(), quote(clean).out.ToBig())

		s = newStage(t)
		s.open(t, 8, usdg, meme, 100, 2e14) // deep enough, and a better price
		s.move(t, s.direct, -2000)
		s.crowd(t, s.direct)
		if value, _ := s.valued(t, of.token, of.held); value != nil {
			t.Errorf("worth %s by another pool", value)
		}
	}
}

// TestDustHidesNoBetterRoute: of a pool with dust at every tick, which somebody moved so far that hardly any ticks around its
// reference are read, nobody knows what a quote would come to there. A much worse route is not quoted for it; a little of one
// that comes to as much still is.
func TestDustHidesNoBetterRoute(t *testing.T) {
	for _, of0 := range []bool{true, false} {
		for _, exactIn := range []bool{true, false} {
			quote := func(worse int32) error {
				s := newStage(t)
				s.pools = s.pools[:1]
				move := int32(1630) // towards what is asked for
				from, to := []common.Address{usdg}, []common.Address{meme}
				if worse = -worse; !of0 {
					from, to, move, worse = to, from, -move, -worse
				}
				s.open(t, 8, usdg, meme, worse, 1e15)
				s.move(t, s.direct, move)
				s.crowd(t, s.direct)
				if w := &s.direct.Window; w.To < 408 || w.From > -408 {
					t.Fatalf("another window would be read beside that from %d to %d", w.From, w.To)
				}
				s.direct.Far = nil
				s.judge()
				o, err := s.offer(from, to, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, err = o.quote(exactIn, uint256.NewInt(3e13))
				return err
			}
			isDeviation(t, fmt.Sprintf("of currency0 %t, exact in %t", of0, exactIn), quote(900))
			if err := quote(-200); err != nil {
				t.Errorf("of currency0 %t, exact in %t: a route that is better: %v", of0, exactIn, err)
			}
		}
	}
}

// TestDustTakesNoCap: what is sold into a pool with dust at every tick is sold as far as the ticks are known.
func TestDustTakesNoCap(t *testing.T) {
	of := &topics.Deal{Token: meme, Term: 3600, AmountOrTokenID: *uint256.NewInt(5e14), Cap: *uint256.NewInt(1e9), MinPrice: *uint256.NewInt(1e9)}
	clean, s := newStage(t), newStage(t)
	_, fair := clean.valuedAs(t, of, nil)
	s.crowd(t, s.direct)
	_, suggested := s.valuedAs(t, of, nil)
	if suggested.Cmp(new(big.Int).Quo(fair, big.NewInt(4))) < 0 || suggested.Cmp(fair) > 0 {
		t.Errorf("%s suggested, without dust %s", suggested, fair)
	}
}

// TestDustIsNoFault: an amount that crosses more ticks than a transaction can is the caller's, however it is quoted.
func TestDustIsNoFault(t *testing.T) {
	s := newStage(t)
	p := s.direct
	p.Ticks = p.Ticks[:1:1]
	for at := int32(60); at <= 60*2*ammv4.MaxCrossed; at += 60 {
		tick, err := ammv4.NewTick(at, new(uint256.Int))
		if err != nil {
			t.Fatal(err)
		}
		p.Ticks = append(p.Ticks, tick)
	}
	p.amm.Ticks, p.Standing = p.Ticks, p.Ticks
	s.judge()
	o, err := s.offer([]common.Address{meme}, []common.Address{usdg}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, exactIn := range []bool{true, false} {
		amount := uint256.NewInt(999_999_999_999_999) // nearly all that there is
		if exactIn {
			amount.Lsh(amount, 50)
		}
		_, err := o.quote(exactIn, amount)
		if !errors.Is(err, ammv4.ErrTicks) {
			t.Errorf("exact in %t: %v", exactIn, err)
		}
		refused, ok := errors.AsType[*httpapi.Error](new(Service).quoteError(err, "usdg", "to"))
		if !ok || refused.Code != httpapi.InvalidInput || !strings.Contains(refused.Message, `"usdg"`) {
			t.Errorf("exact in %t: %+v", exactIn, refused)
		}
	}
}
