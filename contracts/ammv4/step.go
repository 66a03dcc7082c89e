package ammv4

import "github.com/holiman/uint256"

// feeUnits is a fee of 100 %: fees are in millionths.
const feeUnits = 1_000_000

// ProtocolFee is the part of a pool's protocol fee that a direction pays: slot0 holds both, 12 bits each.
func ProtocolFee(both uint32, zeroForOne bool) uint32 {
	if zeroForOne {
		return both & 0xfff
	}
	return both >> 12 & 0xfff
}

// SwapFee is ProtocolFeeLibrary.calculateSwapFee: the protocol's fee on the input, and the liquidity's on the rest.
func SwapFee(protocolFee, lpFee uint32) uint32 {
	return protocolFee + lpFee - uint32(uint64(protocolFee)*uint64(lpFee)/feeUnits)
}

// Step is what a swap does over liquidity that does not change.
type Step struct {
	Next    uint256.Int // the price that it comes to
	In, Out uint256.Int
	Fee     uint256.Int // beside In
}

// run is SwapMath.computeSwapStep: it swaps at most what remains, of the input or of the output, and not beyond the
// target. The direction is that of the target.
func (s *Step) run(current, target, liquidity, remaining *uint256.Int, exactIn bool, fee uint32) error {
	zeroForOne := !current.Lt(target)
	rate, rest := uint256.Int{uint64(fee)}, uint256.Int{uint64(feeUnits - fee)}
	full := uint256.Int{feeUnits}
	reached := true
	if exactIn {
		var less uint256.Int
		if !mulDiv(&less, remaining, &rest, &full, false) || !amountIn(&s.In, target, current, liquidity, zeroForOne) {
			return ErrOverflow
		}
		if reached = !less.Lt(&s.In); reached {
			s.Next = *target
		} else {
			s.In = less
			var err error
			if s.Next, err = NextFromInput(current, liquidity, &less, zeroForOne); err != nil {
				return err
			}
			s.Fee.Sub(remaining, &s.In) // what does not move the price
		}
		if !amountOut(&s.Out, &s.Next, current, liquidity, zeroForOne) {
			return ErrOverflow
		}
		if reached && fee == feeUnits { // nothing comes in
			s.Fee = s.In
			return nil
		}
	} else {
		if !amountOut(&s.Out, target, current, liquidity, zeroForOne) {
			return ErrOverflow
		}
		if !remaining.Lt(&s.Out) {
			s.Next = *target
		} else {
			s.Out = *remaining
			var err error
			if s.Next, err = NextFromOutput(current, liquidity, remaining, zeroForOne); err != nil {
				return err
			}
		}
		if !amountIn(&s.In, &s.Next, current, liquidity, zeroForOne) {
			return ErrOverflow
		}
	}
	if reached && !mulDiv(&s.Fee, &s.In, &rate, &rest, true) {
		return ErrOverflow
	}
	return nil
}

// amountIn is what a move of the price takes in, rounded up.
func amountIn(z, to, from, liquidity *uint256.Int, zeroForOne bool) bool {
	if zeroForOne {
		return amount0(z, to, from, liquidity, true)
	}
	return amount1(z, from, to, liquidity, true)
}

// amountOut is what a move of the price gives out, rounded down.
func amountOut(z, to, from, liquidity *uint256.Int, zeroForOne bool) bool {
	if zeroForOne {
		return amount1(z, to, from, liquidity, false)
	}
	return amount0(z, from, to, liquidity, false)
}
