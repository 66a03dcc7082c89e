package ammv4

import (
	"errors"

	"github.com/holiman/uint256"
)

// Zapped is how an amount of one currency becomes liquidity of a range.
type Zapped struct {
	Sold      uint256.Int // of the amount, in the pool itself
	Swap      Result      // of Sold; zero but for the pool's state where nothing is sold
	Liquidity uint256.Int // that the rest and what was bought pay for, at the price that the swap leaves
	Used      [2]uint256.Int
}

// Zap finds how much of an amount to sell so that it becomes the most liquidity of a range: selling more leaves less
// of the one currency, buys more of the other, and moves the price so that the range needs less of the other. It sells
// step by step as long as that is too little, and bisects within the last step. ErrTicks: too many ticks lie on the
// way.
func (p *Pool) Zap(z *Zapped, ofCurrency0 bool, amount *uint256.Int, lower, upper int32) error {
	if lower >= upper || lower < MinTick || upper > MaxTick {
		return ErrTick
	}
	var a, b uint256.Int
	sqrtPriceAt(&a, lower)
	sqrtPriceAt(&b, upper)
	var low, high, middle, one uint256.Int // enough is sold from high on
	one.SetOne()
	z.Swap = p.untouched()
	if z.sellMore(ofCurrency0, amount, &low, &a, &b) {
		s := sale{at: *p, zeroForOne: ofCurrency0}
		enough, err := s.advance(z, amount, &a, &b)
		if err != nil {
			return err
		}
		low.Add(&s.sold, &one)
		high = enough
		for low.Lt(&high) {
			middle.Add(&low, middle.Rsh(middle.Sub(&high, &low), 1))
			if s.step(z, &middle) == nil && s.sells(&middle) && z.sellMore(ofCurrency0, amount, &middle, &a, &b) {
				low.Add(&middle, &one)
			} else {
				high.Set(&middle)
			}
		}
	}
	// The best is there or one before: what the range takes is rounded.
	var before Zapped
	err := p.zapped(z, ofCurrency0, amount, &high, &a, &b)
	if !high.IsZero() {
		if p.zapped(&before, ofCurrency0, amount, high.Sub(&high, &one), &a, &b) == nil && (err != nil || before.Liquidity.Gt(&z.Liquidity)) {
			*z, err = before, nil
		}
	}
	return err
}

// sale is a swap that is done step by step: selling more begins with the same steps.
type sale struct {
	zeroForOne bool
	at         Pool        // as what is sold leaves it
	sold, out  uint256.Int // by the steps before
	next       Result      // of the step after them
}

// advance sells step by step while more must be sold than a step ends with. It returns an amount that is enough.
func (s *sale) advance(z *Zapped, amount, a, b *uint256.Int) (enough uint256.Int, err error) {
	for crossed := 0; ; {
		if s.sold.Eq(amount) {
			return *amount, nil
		}
		if _, ended := s.at.limit(s.zeroForOne); ended {
			return *enough.AddUint64(&s.sold, 1), nil
		}
		err := s.step(z, amount)
		if crossed += s.next.Crossed; errors.Is(err, ErrTicks) || crossed > MaxCrossed {
			return enough, ErrTicks
		}
		if err != nil {
			return *amount, nil //nolint:nilerr // this step cannot be done in whole
		}
		enough.Add(&s.sold, &s.next.In)
		if !s.next.In.IsZero() && !z.sellMore(s.zeroForOne, amount, &enough, a, b) {
			return enough, nil
		}
		s.sold, s.out = enough, z.Swap.Out
		s.at.SqrtPriceX96, s.at.Tick, s.at.Liquidity = s.next.SqrtPriceX96, s.next.Tick, s.next.Liquidity
	}
}

// step sells one step further, until this much is sold in all.
func (s *sale) step(z *Zapped, all *uint256.Int) error {
	limit, _ := s.at.limit(s.zeroForOne)
	order := Swap{ZeroForOne: s.zeroForOne, ExactIn: true, Limit: *limit, MaxSteps: 1}
	order.Amount.Sub(all, &s.sold)
	err := s.at.Swap(&s.next, &order)
	z.Swap.SqrtPriceX96 = s.next.SqrtPriceX96
	z.Swap.Out.Add(&s.out, &s.next.Out)
	return err
}

// sells reports whether the last step was enough for this much in all.
func (s *sale) sells(all *uint256.Int) bool {
	var sum uint256.Int
	return sum.Add(&s.sold, &s.next.In).Eq(all)
}

// sellMore reports whether the kept amount pays for more liquidity than the bought one.
func (z *Zapped) sellMore(ofCurrency0 bool, amount, sold, a, b *uint256.Int) bool {
	price := &z.Swap.SqrtPriceX96
	below, above := !price.Gt(a), !price.Lt(b) // the range needs currency0 only, currency1 only
	switch {
	case below:
		return !ofCurrency0
	case above:
		return ofCurrency0
	}
	var kept, of0, of1 uint256.Int
	kept.Sub(amount, sold)
	have0, have1 := &kept, &z.Swap.Out
	if !ofCurrency0 {
		have0, have1 = have1, have0
	}
	over0 := liquidityFor0(&of0, price, b, have0) != nil
	over1 := liquidityFor1(&of1, a, price, have1) != nil
	if ofCurrency0 {
		return over0 || !over1 && of0.Gt(&of1)
	}
	return over1 || !over0 && of1.Gt(&of0)
}

// zapped sells a certain amount and deposits the rest.
func (p *Pool) zapped(z *Zapped, ofCurrency0 bool, amount, sold, a, b *uint256.Int) error {
	z.Sold = *sold
	if err := p.Quote(&z.Swap, ofCurrency0, true, sold); err != nil {
		return err
	}
	var kept uint256.Int
	kept.Sub(amount, sold)
	have0, have1 := &kept, &z.Swap.Out
	if !ofCurrency0 {
		have0, have1 = have1, have0
	}
	price := &z.Swap.SqrtPriceX96
	var err error
	if z.Liquidity, err = LiquidityFor(price, a, b, have0, have1); err != nil {
		return err
	}
	z.Used, err = Deposit(price, a, b, &z.Liquidity)
	return err
}

// Deposit is what the pool takes in for liquidity of the range from a to b at a price, each currency rounded up.
func Deposit(price, a, b, liquidity *uint256.Int) (need [2]uint256.Int, err error) {
	low, high := price, price
	if !price.Gt(a) {
		low, high = a, a
	} else if !price.Lt(b) {
		low, high = b, b
	}
	if low.Lt(b) && !amount0(&need[0], low, b, liquidity, true) || high.Gt(a) && !amount1(&need[1], a, high, liquidity, true) {
		return need, ErrOverflow
	}
	return need, nil
}
