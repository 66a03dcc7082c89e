package ammv4

import (
	"testing"

	"github.com/holiman/uint256"
	"pgregory.net/rapid"
)

// bisected is Zap by bisection over whole swaps.
func bisected(p *Pool, z *Zapped, ofCurrency0 bool, amount *uint256.Int, lower, upper int32) error {
	var a, b, low, middle, before uint256.Int
	sqrtPriceAt(&a, lower)
	sqrtPriceAt(&b, upper)
	high := *amount
	for low.Lt(&high) {
		middle.Add(&low, middle.Rsh(middle.Sub(&high, &low), 1))
		if p.Quote(&z.Swap, ofCurrency0, true, &middle) == nil && z.sellMore(ofCurrency0, amount, &middle, &a, &b) {
			low.AddUint64(&middle, 1)
		} else {
			high = middle
		}
	}
	err := p.zapped(z, ofCurrency0, amount, &high, &a, &b)
	var less Zapped
	if !high.IsZero() && p.zapped(&less, ofCurrency0, amount, before.SubUint64(&high, 1), &a, &b) == nil && (err != nil || less.Liquidity.Gt(&z.Liquidity)) {
		*z, err = less, nil
	}
	return err
}

// TestZapStepByStep: it comes to what a bisection over whole swaps comes to, to the unit, over ticks, gaps and the edge of
// liquidity.
func TestZapStepByStep(t *testing.T) {
	zapped := 0
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPool(rt, t)
		lower := rapid.Int32Range(-300, 299).Draw(rt, "lower")
		upper := rapid.Int32Range(lower+1, 300).Draw(rt, "upper")
		amount := uint256.NewInt(rapid.Uint64Range(1, 1<<62).Draw(rt, "amount"))
		amount.Lsh(amount, rapid.UintRange(0, 40).Draw(rt, "scale"))
		of0 := rapid.Bool().Draw(rt, "of currency0")
		var got, want Zapped
		err := p.Zap(&got, of0, amount, lower*p.TickSpacing, upper*p.TickSpacing)
		if fault := bisected(p, &want, of0, amount, lower*p.TickSpacing, upper*p.TickSpacing); (err == nil) != (fault == nil) {
			rt.Fatalf("%v, by bisection %v", err, fault)
		}
		if err == nil && got != want {
			rt.Fatalf("%s sold for %s, by bisection %s for %s", &got.Sold, &got.Liquidity, &want.Sold, &want.Liquidity)
		}
		if err == nil && !got.Sold.IsZero() && !got.Liquidity.IsZero() {
			zapped++
		}
	})
	if zapped == 0 {
		t.Error("nothing was sold")
	}
}
