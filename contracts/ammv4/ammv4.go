// Package ammv4 is the arithmetic of Uniswap v4, equal to its Solidity to the last bit: prices at ticks, the amounts
// that liquidity stands for, fees and whole swaps. It is pure: it must not read a chain or a store.
//
// Prices are square roots of currency1 per currency0 in raw units, Q64.96, as the contracts hold them.
package ammv4

import (
	"errors"

	"github.com/holiman/uint256"
)

// The bounds of ticks and prices. A price lies in [MinSqrtPrice, MaxSqrtPrice).
const (
	MinTick = -MaxTick
	MaxTick = 887_272
)

// The prices at MinTick and MaxTick.
var (
	MinSqrtPrice = uint256.NewInt(4295128739)
	MaxSqrtPrice = uint256.MustFromDecimal("1461446703485210103287273052203988822378723970342")
)

// Where the contracts revert.
var (
	ErrTick  = errors.New("tick out of bounds")
	ErrPrice = errors.New("price out of bounds")
	// ErrLiquidity: there is not enough of it for what was asked.
	ErrLiquidity = errors.New("not enough liquidity")
	// ErrTicks: more ticks would be crossed than one transaction can.
	ErrTicks = errors.New("too many ticks")
	// ErrOverflow: a result has more bits than its type.
	ErrOverflow = errors.New("amount out of bounds")
	// ErrFee: nothing can be bought exactly where the fee takes all.
	ErrFee = errors.New("fee takes the whole input")
)

// ratios are 2^128 / sqrt(1.0001^(2^i)), rounded to the nearest integer.
var ratios = [20]*uint256.Int{
	uint256.MustFromHex("0xfffcb933bd6fad37aa2d162d1a594001"), uint256.MustFromHex("0xfff97272373d413259a46990580e213a"),
	uint256.MustFromHex("0xfff2e50f5f656932ef12357cf3c7fdcc"), uint256.MustFromHex("0xffe5caca7e10e4e61c3624eaa0941cd0"),
	uint256.MustFromHex("0xffcb9843d60f6159c9db58835c926644"), uint256.MustFromHex("0xff973b41fa98c081472e6896dfb254c0"),
	uint256.MustFromHex("0xff2ea16466c96a3843ec78b326b52861"), uint256.MustFromHex("0xfe5dee046a99a2a811c461f1969c3053"),
	uint256.MustFromHex("0xfcbe86c7900a88aedcffc83b479aa3a4"), uint256.MustFromHex("0xf987a7253ac413176f2b074cf7815e54"),
	uint256.MustFromHex("0xf3392b0822b70005940c7a398e4b70f3"), uint256.MustFromHex("0xe7159475a2c29b7443b29c7fa6e889d9"),
	uint256.MustFromHex("0xd097f3bdfd2022b8845ad8f792aa5825"), uint256.MustFromHex("0xa9f746462d870fdf8a65dc1f90e061e5"),
	uint256.MustFromHex("0x70d869a156d2a1b890bb3df62baf32f7"), uint256.MustFromHex("0x31be135f97d08fd981231505542fcfa6"),
	uint256.MustFromHex("0x9aa508b5b7a84e1c677de54f3e99bc9"), uint256.MustFromHex("0x5d6af8dedb81196699c329225ee604"),
	uint256.MustFromHex("0x2216e584f5fa1ea926041bedfe98"), uint256.MustFromHex("0x48a170391f7dc42444e8fa2"),
}

// SqrtPriceAtTick is TickMath.getSqrtPriceAtTick.
func SqrtPriceAtTick(tick int32) (*uint256.Int, error) {
	if tick < MinTick || tick > MaxTick {
		return nil, ErrTick
	}
	price := new(uint256.Int)
	sqrtPriceAt(price, tick)
	return price, nil
}

// sqrtPriceAt sets a price to that of a tick, which must be within the bounds.
func sqrtPriceAt(price *uint256.Int, tick int32) {
	steps := uint32(max(tick, -tick))
	*price = uint256.Int{2: 1} // Q128.128, of -steps
	for i, ratio := range ratios {
		if steps&(1<<i) != 0 {
			price.Rsh(price.Mul(price, ratio), 128)
		}
	}
	if tick > 0 {
		var most uint256.Int
		price.Div(most.SetAllOne(), price)
	}
	// To Q64.96, up, so that TickAtSqrtPrice comes back to the tick.
	price.AddUint64(price, 1<<32-1)
	price.Rsh(price, 32)
}

// The logarithm to the base of sqrt(1.0001) is one to the base of 2 times logFactor; errorLow and errorHigh bound
// what that is off by.
var (
	logFactor = uint256.MustFromDecimal("255738958999603826347141")
	errorLow  = uint256.MustFromDecimal("3402992956809132418596140100660247210")
	errorHigh = uint256.MustFromDecimal("291339464771989622907027621153398088495")
)

// TickAtSqrtPrice is TickMath.getTickAtSqrtPrice: the greatest tick whose price is at most sqrtPrice.
func TickAtSqrtPrice(sqrtPrice *uint256.Int) (int32, error) {
	if sqrtPrice.Lt(MinSqrtPrice) || !sqrtPrice.Lt(MaxSqrtPrice) {
		return 0, ErrPrice
	}
	var r uint256.Int
	r.Lsh(sqrtPrice, 32)
	msb := r.BitLen() - 1
	if msb >= 128 {
		r.Rsh(&r, uint(msb-127))
	} else {
		r.Lsh(&r, uint(127-msb))
	}
	log2 := int64(msb-128) << 32 // Q.32, of which 14 bits are found: the rest of Solidity's Q.64 is zero
	for bit := 31; bit >= 18; bit-- {
		r.Rsh(r.Mul(&r, &r), 127)
		if r.BitLen() > 128 {
			log2 |= 1 << bit
			r.Rsh(&r, 1)
		}
	}
	var log, at uint256.Int // log: two's complement, Q22.128
	if log2 < 0 {
		log.Neg(log.SetUint64(uint64(-log2)))
	} else {
		log.SetUint64(uint64(log2))
	}
	log.Mul(log.Lsh(&log, 32), logFactor)
	low, high := floor128(at.Sub(&log, errorLow)), floor128(log.Add(&log, errorHigh))
	if low == high || high > MaxTick {
		return low, nil
	}
	if sqrtPriceAt(&at, high); at.Gt(sqrtPrice) {
		return low, nil
	}
	return high, nil
}

// floor128 is the whole part of a two's complement in Q.128.
func floor128(v *uint256.Int) int32 { return int32(v.SRsh(v, 128).Uint64()) }
