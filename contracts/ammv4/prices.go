package ammv4

import "github.com/holiman/uint256"

const (
	sqrtPriceBits = 160
	liquidityBits = 128
)

// NextFromInput is SqrtPriceMath.getNextSqrtPriceFromInput: where a price is after an amount has come in, rounded
// so that it does not pass the exact one.
func NextFromInput(price, liquidity, amount *uint256.Int, zeroForOne bool) (next uint256.Int, err error) {
	if price.IsZero() || liquidity.IsZero() {
		return next, ErrLiquidity
	}
	if zeroForOne {
		err = nextFrom0(&next, price, liquidity, amount, true)
	} else {
		err = nextFrom1(&next, price, liquidity, amount, true)
	}
	return next, err
}

// NextFromOutput is SqrtPriceMath.getNextSqrtPriceFromOutput: where a price is after an amount has gone out, rounded
// so that it passes the exact one.
func NextFromOutput(price, liquidity, amount *uint256.Int, zeroForOne bool) (next uint256.Int, err error) {
	if price.IsZero() || liquidity.IsZero() {
		return next, ErrLiquidity
	}
	if zeroForOne {
		err = nextFrom1(&next, price, liquidity, amount, false)
	} else {
		err = nextFrom0(&next, price, liquidity, amount, false)
	}
	return next, err
}

// nextFrom0 is getNextSqrtPriceFromAmount0RoundingUp.
func nextFrom0(next, price, liquidity, amount *uint256.Int, in bool) error {
	if amount.IsZero() {
		next.Set(price)
		return nil
	}
	var shifted, product, divisor uint256.Int
	shifted.Lsh(liquidity, 96)
	_, overflow := product.MulOverflow(amount, price)
	if !in {
		if overflow || !shifted.Gt(&product) {
			return ErrLiquidity
		}
		if !mulDiv(next, &shifted, price, divisor.Sub(&shifted, &product), true) || next.BitLen() > sqrtPriceBits {
			return ErrOverflow
		}
		return nil
	}
	if !overflow {
		if _, overflow = divisor.AddOverflow(&shifted, &product); !overflow {
			mulDiv(next, &shifted, price, &divisor, true) // at most price
			return nil
		}
	}
	// A price of less precision where the exact one does not fit.
	if _, overflow = divisor.AddOverflow(divisor.Div(&shifted, price), amount); overflow {
		return ErrOverflow
	}
	divUp(next, &shifted, &divisor)
	return nil
}

// nextFrom1 is getNextSqrtPriceFromAmount1RoundingDown.
func nextFrom1(next, price, liquidity, amount *uint256.Int, in bool) error {
	var quotient uint256.Int
	if !mulDiv(&quotient, amount, q96, liquidity, !in) {
		return ErrOverflow
	}
	if in {
		if _, overflow := next.AddOverflow(price, &quotient); overflow || next.BitLen() > sqrtPriceBits {
			return ErrOverflow
		}
		return nil
	}
	if !price.Gt(&quotient) {
		return ErrLiquidity
	}
	next.Sub(price, &quotient)
	return nil
}

// LiquidityFor is LiquidityAmounts.getLiquidityForAmounts: the most liquidity of the range from a to b that the
// amounts pay for at a price.
func LiquidityFor(price, a, b, of0, of1 *uint256.Int) (uint256.Int, error) {
	var liquidity, other uint256.Int
	if a.Gt(b) {
		a, b = b, a
	}
	switch {
	case !price.Gt(a):
		return liquidity, liquidityFor0(&liquidity, a, b, of0)
	case !price.Lt(b):
		return liquidity, liquidityFor1(&liquidity, a, b, of1)
	}
	if err := liquidityFor0(&liquidity, price, b, of0); err != nil {
		return liquidity, err
	}
	if err := liquidityFor1(&other, a, price, of1); err != nil {
		return liquidity, err
	}
	if other.Lt(&liquidity) {
		return other, nil
	}
	return liquidity, nil
}

// liquidityFor0 is getLiquidityForAmount0; a is not above b.
func liquidityFor0(z, a, b, amount *uint256.Int) error {
	var between, width uint256.Int
	if !mulDiv(&between, a, b, q96, false) || !mulDiv(z, amount, &between, width.Sub(b, a), false) || z.BitLen() > liquidityBits {
		return ErrOverflow
	}
	return nil
}

// liquidityFor1 is getLiquidityForAmount1; a is not above b.
func liquidityFor1(z, a, b, amount *uint256.Int) error {
	var width uint256.Int
	if !mulDiv(z, amount, q96, width.Sub(b, a), false) || z.BitLen() > liquidityBits {
		return ErrOverflow
	}
	return nil
}
