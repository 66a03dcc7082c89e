package ammv4

import "github.com/holiman/uint256"

// FeeGrowth is a pair of fee growths, of currency0 and currency1, per unit of liquidity in Q128. They wrap: only
// differences mean something.
type FeeGrowth [2]uint256.Int

// FeeGrowthInside is Pool.getFeeGrowthInside: what a unit of liquidity of a range has earned, of the pool's growth
// and what the ends of the range hold of it as outside.
func FeeGrowthInside(tick, lower, upper int32, global, belowLower, aboveUpper *FeeGrowth) (inside FeeGrowth) {
	for i := range inside {
		z, l, u := &inside[i], &belowLower[i], &aboveUpper[i]
		switch {
		case tick < lower:
			z.Sub(l, u)
		case tick >= upper:
			z.Sub(u, l)
		default:
			z.Sub(z.Sub(&global[i], l), u)
		}
	}
	return inside
}

// FeesOwed is what a position has earned since it was last collected: Position.update.
func FeesOwed(inside, last *FeeGrowth, liquidity *uint256.Int) (owed [2]uint256.Int) {
	for i := range owed {
		var grown uint256.Int
		grown.Sub(&inside[i], &last[i])
		mulDiv(&owed[i], &grown, liquidity, q128, false) // liquidity has 128 bits: it fits
	}
	return owed
}

var q128 = new(uint256.Int).Lsh(uint256.NewInt(1), 128)
