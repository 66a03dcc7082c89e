package ammv4

import "github.com/holiman/uint256"

var q96 = new(uint256.Int).Lsh(uint256.NewInt(1), 96)

// MulDiv is FullMath.mulDiv: a*b/d over 512 bits, rounded down, or up where up says so. False: the quotient has more than
// 256 bits, or d is zero.
func MulDiv(a, b, d *uint256.Int, up bool) (*uint256.Int, bool) {
	if d.IsZero() {
		return nil, false
	}
	z, overflow := new(uint256.Int).MulDivOverflow(a, b, d)
	if overflow {
		return nil, false
	}
	if up && !new(uint256.Int).MulMod(a, b, d).IsZero() {
		if _, overflow = z.AddOverflow(z, uint256.NewInt(1)); overflow {
			return nil, false
		}
	}
	return z, true
}

// Amount0 is SqrtPriceMath.getAmount0Delta: the currency0 that liquidity stands for between two prices.
func Amount0(a, b, liquidity *uint256.Int, up bool) (*uint256.Int, error) {
	if a.Gt(b) {
		a, b = b, a
	}
	if a.IsZero() {
		return nil, ErrPrice
	}
	quotient, ok := MulDiv(new(uint256.Int).Lsh(liquidity, 96), new(uint256.Int).Sub(b, a), b, up)
	if !ok {
		return nil, ErrPrice
	}
	rest := new(uint256.Int)
	quotient.DivMod(quotient, a, rest)
	if up && !rest.IsZero() {
		quotient.AddUint64(quotient, 1)
	}
	return quotient, nil
}

// Amount1 is SqrtPriceMath.getAmount1Delta: the currency1 that liquidity stands for between two prices.
func Amount1(a, b, liquidity *uint256.Int, up bool) (*uint256.Int, error) {
	if a.Gt(b) {
		a, b = b, a
	}
	amount, ok := MulDiv(liquidity, new(uint256.Int).Sub(b, a), q96, up)
	if !ok {
		return nil, ErrPrice
	}
	return amount, nil
}

// Amounts is what removing liquidity from a range gives at a price, each currency rounded down, as the pool pays it
// out. Which currencies those are is judged by the pool's tick, as the pool judges it: it may be one below the tick
// of the price.
func Amounts(sqrtPrice *uint256.Int, tick, lower, upper int32, liquidity *uint256.Int) (amount0, amount1 *uint256.Int, err error) {
	a, err := SqrtPriceAtTick(lower)
	if err != nil {
		return nil, nil, err
	}
	b, err := SqrtPriceAtTick(upper)
	if err != nil {
		return nil, nil, err
	}
	amount0, amount1 = new(uint256.Int), new(uint256.Int)
	switch {
	case tick < lower:
		amount0, err = Amount0(a, b, liquidity, false)
	case tick < upper:
		if amount0, err = Amount0(sqrtPrice, b, liquidity, false); err != nil {
			return nil, nil, err
		}
		amount1, err = Amount1(a, sqrtPrice, liquidity, false)
	default:
		amount1, err = Amount1(a, b, liquidity, false)
	}
	if err != nil {
		return nil, nil, err
	}
	return amount0, amount1, nil
}
