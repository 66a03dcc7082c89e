package valuation

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/serving/httpapi"
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

// TestNobodyCrowdsAPoolAway: whoever adds dust at so many ticks of a pool that they are not read does not have a token priced, or a
// quote made, by another pool.
func TestNobodyCrowdsAPoolAway(t *testing.T) {
	for name, of := range map[string]func(*stage) *pool{"with the dollar": func(s *stage) *pool { return s.direct }, "of the pair": func(s *stage) *pool { return s.pair }} {
		s := newStage(t)
		s.open(t, 8, usdg, meme, 900, 2e14) // deep enough, and another price
		s.open(t, 9, meme, second, 900, 2e14)
		p := of(s)
		p.Crowded = true
		p.Ticks, p.Standing, p.amm.Ticks = nil, nil, nil
		s.judge()
		for _, token := range []common.Address{meme, second} {
			if token == meme && p == s.pair {
				continue // the pair prices the other
			}
			if q, err := s.reference(token); err == nil {
				t.Errorf("%s: %s is priced at %s", name, token, q.text(q.price))
			}
			if o, err := s.offer([]common.Address{usdg}, []common.Address{token}, nil); err == nil {
				t.Errorf("%s: %s has %d routes", name, token, len(o.now))
			}
		}
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
