package valuation

import (
	"math/big"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/market/query"
)

// price is an exact price in lowest terms.
type price = query.Price

var (
	q192 = new(big.Int).Lsh(big.NewInt(1), 192)
	par  = price{Num: big.NewInt(1), Den: big.NewInt(1)}
)

// fraction reduces num/den; den must be positive.
func fraction(num, den *big.Int) price {
	gcd := new(big.Int).GCD(nil, nil, num, den)
	return price{Num: new(big.Int).Quo(num, gcd), Den: new(big.Int).Quo(den, gcd)}
}

func times(a, b price) price {
	return fraction(new(big.Int).Mul(a.Num, b.Num), new(big.Int).Mul(a.Den, b.Den))
}

func over(a, b price) price { return times(a, price{Num: b.Den, Den: b.Num}) }

func inverse(a price) price { return price{Num: a.Den, Den: a.Num} }

// part is n/d of a price.
func part(a price, n, d int64) price { return times(a, fraction(big.NewInt(n), big.NewInt(d))) }

// worth is the value of an amount at a price, rounded down.
func worth(amount *big.Int, p price) *big.Int {
	z := new(big.Int).Mul(amount, p.Num)
	return z.Quo(z, p.Den)
}

// worthUp is worth rounded up.
func worthUp(amount *big.Int, p price) *big.Int {
	z, rest := new(big.Int).Mul(amount, p.Num), new(big.Int)
	if z.QuoRem(z, p.Den, rest); rest.Sign() > 0 {
		z.Add(z, big.NewInt(1))
	}
	return z
}

// whole converts a price of raw units to one of whole tokens: of a token with `of` decimals in one with `in`
// decimals.
func whole(p price, of, in uint8) price {
	ten := big.NewInt(10)
	return times(p, fraction(new(big.Int).Exp(ten, big.NewInt(int64(of)), nil), new(big.Int).Exp(ten, big.NewInt(int64(in)), nil)))
}

// priceAt is the exact price of currency0 in currency1 for a square root price.
func priceAt(sqrtPrice *uint256.Int) price {
	square := sqrtPrice.ToBig()
	return fraction(square.Mul(square, square), q192)
}

// sqrtOf is the square root of a price of currency0 in currency1, rounded down, within a pool's limits.
func sqrtOf(p price) *uint256.Int {
	z := new(big.Int).Mul(p.Num, q192)
	z.Sqrt(z.Quo(z, p.Den))
	root, large := uint256.FromBig(z)
	switch {
	case large || !root.Lt(ammv4.MaxSqrtPrice):
		return new(uint256.Int).SubUint64(ammv4.MaxSqrtPrice, 1)
	case root.Lt(ammv4.MinSqrtPrice):
		return ammv4.MinSqrtPrice.Clone()
	}
	return root
}
