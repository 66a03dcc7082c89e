package ammv4

import "github.com/holiman/uint256"

var (
	q96     = new(uint256.Int).Lsh(uint256.NewInt(1), 96)
	below96 = new(uint256.Int).SubUint64(q96, 1)
)

// mulDiv is FullMath.mulDiv: a*b/d over 512 bits, rounded down, or up where up says so, into z, which may be none of
// the others. False: the quotient has more than 256 bits, or d is zero.
func mulDiv(z, a, b, d *uint256.Int, up bool) bool {
	if d.IsZero() {
		return false
	}
	if _, overflow := z.MulDivOverflow(a, b, d); overflow {
		return false
	}
	if up {
		// The remainder has at most 256 bits: it is zero where the low halves of both products agree.
		var product, back uint256.Int
		if product.Mul(a, b); !product.Eq(back.Mul(z, d)) {
			return increment(z)
		}
	}
	return true
}

// increment returns false on overflow.
func increment(z *uint256.Int) bool {
	z.AddUint64(z, 1)
	return !z.IsZero()
}

// divUp is UnsafeMath.divRoundingUp into z, which may be x.
func divUp(z, x, d *uint256.Int) {
	var rest uint256.Int
	z.DivMod(x, d, &rest)
	if !rest.IsZero() {
		z.AddUint64(z, 1)
	}
}

// Amount0 is SqrtPriceMath.getAmount0Delta: the currency0 that liquidity stands for between two prices.
func Amount0(a, b, liquidity *uint256.Int, up bool) (*uint256.Int, error) {
	z := new(uint256.Int)
	if !amount0(z, a, b, liquidity, up) {
		return nil, ErrPrice
	}
	return z, nil
}

func amount0(z, a, b, liquidity *uint256.Int, up bool) bool {
	if a.Gt(b) {
		a, b = b, a
	}
	if a.IsZero() {
		return false
	}
	var shifted, width, quotient uint256.Int
	if !mulDiv(&quotient, shifted.Lsh(liquidity, 96), width.Sub(b, a), b, up) {
		return false
	}
	if up {
		divUp(z, &quotient, a)
	} else {
		z.Div(&quotient, a)
	}
	return true
}

// Amount1 is SqrtPriceMath.getAmount1Delta: the currency1 that liquidity stands for between two prices.
func Amount1(a, b, liquidity *uint256.Int, up bool) (*uint256.Int, error) {
	z := new(uint256.Int)
	if !amount1(z, a, b, liquidity, up) {
		return nil, ErrPrice
	}
	return z, nil
}

func amount1(z, a, b, liquidity *uint256.Int, up bool) bool {
	if a.Gt(b) {
		a, b = b, a
	}
	var width, low, whole uint256.Int
	width.Sub(b, a)
	if liquidity.BitLen() > liquidityBits || width.BitLen() > sqrtPriceBits {
		return mulDiv(z, liquidity, low.Set(&width), q96, up)
	}
	// Shifts, since a division costs more: the width in parts above and below 2^96, so that no product overflows.
	low.Mul(low.And(&width, below96), liquidity)
	whole.Mul(width.Rsh(&width, 96), liquidity)
	rest := low[0] | low[1]&(1<<32-1)
	z.Add(&whole, low.Rsh(&low, 96))
	if up && rest != 0 {
		z.AddUint64(z, 1)
	}
	return true
}

// Amounts is what removing liquidity from a range gives at a price, each currency rounded down, as the pool pays it
// out. Which currencies those are is judged by the pool's tick, as the pool judges it: it may be one below the tick
// of the price.
func Amounts(sqrtPrice *uint256.Int, tick, lower, upper int32, liquidity *uint256.Int) (amount0, amount1 *uint256.Int, err error) {
	r, err := RangeOf(lower, upper)
	if err != nil {
		return nil, nil, err
	}
	return r.Amounts(sqrtPrice, tick, liquidity)
}

// Range is a range of ticks with the prices at its ends, for amounts of one range at many prices.
type Range struct {
	lower, upper int32
	a, b         *uint256.Int
}

// RangeOf is the range between two ticks.
func RangeOf(lower, upper int32) (r Range, err error) {
	r.lower, r.upper = lower, upper
	if r.a, err = SqrtPriceAtTick(lower); err != nil {
		return Range{}, err
	}
	if r.b, err = SqrtPriceAtTick(upper); err != nil {
		return Range{}, err
	}
	return r, nil
}

// Amounts is as the function.
func (r *Range) Amounts(sqrtPrice *uint256.Int, tick int32, liquidity *uint256.Int) (amount0, amount1 *uint256.Int, err error) {
	amount0, amount1 = new(uint256.Int), new(uint256.Int)
	switch {
	case tick < r.lower:
		amount0, err = Amount0(r.a, r.b, liquidity, false)
	case tick < r.upper:
		if amount0, err = Amount0(sqrtPrice, r.b, liquidity, false); err != nil {
			return nil, nil, err
		}
		amount1, err = Amount1(r.a, sqrtPrice, liquidity, false)
	default:
		amount1, err = Amount1(r.a, r.b, liquidity, false)
	}
	if err != nil {
		return nil, nil, err
	}
	return amount0, amount1, nil
}
