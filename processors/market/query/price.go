package query

import (
	"math/big"
	"strings"

	"github.com/lienstream/lienstream/processors/engine/wire"
)

// Price is an exact price: Num/Den in lowest terms, whole tokens per whole token. It is read-only.
type Price struct{ Num, Den *big.Int }

// priceDigits is the maximum number of decimal places.
const priceDigits = 18

// newPrice reduces a fraction.
func newPrice(num, den *big.Int) Price {
	gcd := new(big.Int).GCD(nil, nil, num, den)
	if gcd.Sign() == 0 {
		return Price{big.NewInt(0), big.NewInt(1)}
	}
	return Price{new(big.Int).Quo(num, gcd), new(big.Int).Quo(den, gcd)}
}

// String is the price as a decimal number with at most 18 decimal places, truncated, without exponent.
func (p Price) String() string {
	whole, rest := new(big.Int).QuoRem(p.Num, p.Den, new(big.Int))
	if rest.Sign() == 0 {
		return whole.String()
	}
	rest.Mul(rest, pow10(priceDigits))
	digits := rest.Quo(rest, p.Den).String()
	digits = strings.TrimRight(strings.Repeat("0", priceDigits-len(digits))+digits, "0")
	if digits == "" {
		return whole.String()
	}
	return whole.String() + "." + digits
}

// mul is the product of two prices, exact.
func (p Price) mul(q Price) Price {
	return newPrice(new(big.Int).Mul(p.Num, q.Num), new(big.Int).Mul(p.Den, q.Den))
}

// maxPriceBytes bounds either part of a price: products of a few numbers of 256 bits.
const maxPriceBytes = 512

func (p *Price) code(c *wire.Coder) {
	var num, den []byte
	if !c.Decoding() {
		num, den = p.Num.Bytes(), p.Den.Bytes()
	}
	c.Bytes(&num, maxPriceBytes)
	c.Bytes(&den, maxPriceBytes)
	if c.Decoding() {
		if *p = (Price{new(big.Int).SetBytes(num), new(big.Int).SetBytes(den)}); p.Den.Sign() == 0 {
			c.Fail("price has denominator zero")
		}
	}
}

func pow10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }
