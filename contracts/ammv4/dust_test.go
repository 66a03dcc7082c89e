package ammv4_test

import (
	"errors"
	"testing"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
)

// dusty is a pool with liquidity over every price, and dust that begins and ends at each of so many ticks on both sides.
func dusty(t testing.TB, each int32) *ammv4.Pool {
	t.Helper()
	p := &ammv4.Pool{SqrtPriceX96: *new(uint256.Int).Lsh(uint256.NewInt(1), 96), Liquidity: *uint256.NewInt(1e15), LPFee: 3000, TickSpacing: 1}
	add := func(at int32, net int64) {
		n := uint256.NewInt(uint64(max(net, -net)))
		if net < 0 {
			n.Neg(n)
		}
		tick, err := ammv4.NewTick(at, n)
		if err != nil {
			t.Fatal(err)
		}
		p.Ticks = append(p.Ticks, tick)
	}
	add(ammv4.MinTick, 1e15)
	for at := -each; at < 0; at++ {
		add(at, 1)
	}
	for at := int32(1); at <= each; at++ {
		add(at, -1)
	}
	add(ammv4.MaxTick, -1e15)
	p.Liquidity.AddUint64(&p.Liquidity, uint64(each))
	return p
}

// TestDustBoundsAQuote: a swap over as many ticks as a transaction can cross is quoted, over one more it is refused, in both
// directions. A swap to a price is not bounded.
func TestDustBoundsAQuote(t *testing.T) {
	p := dusty(t, 2*ammv4.MaxCrossed)
	for _, zeroForOne := range []bool{true, false} {
		for _, ticks := range []int32{ammv4.MaxCrossed, ammv4.MaxCrossed + 1} {
			at := ticks
			if zeroForOne {
				at = -ticks
			}
			to, err := ammv4.SqrtPriceAtTick(at)
			if err != nil {
				t.Fatal(err)
			}
			var moved, r ammv4.Result
			plenty := new(uint256.Int).Lsh(uint256.NewInt(1), 126)
			if err := p.Swap(&moved, &ammv4.Swap{ZeroForOne: zeroForOne, ExactIn: true, Amount: *plenty, Limit: *to}); err != nil || moved.Crossed != int(ticks) {
				t.Fatalf("a swap to a price crosses %d of %d ticks: %v", moved.Crossed, ticks, err)
			}
			err = p.Quote(&r, zeroForOne, true, &moved.In)
			if ticks == ammv4.MaxCrossed && (err != nil || r.Out != moved.Out) || ticks > ammv4.MaxCrossed && !errors.Is(err, ammv4.ErrTicks) {
				t.Errorf("zero for one %t over %d ticks: %v", zeroForOne, ticks, err)
			}
		}
	}
}

// TestDustBoundsAZap: a zap goes over as many ticks as a quote, and no further; over those dust changes nothing.
func TestDustBoundsAZap(t *testing.T) {
	clean, p := dusty(t, 0), dusty(t, 2*ammv4.MaxCrossed)
	for _, in := range []struct {
		amount uint64
		want   error
	}{{1e12, nil}, {1e14, nil}, {2e14, nil}, {1e16, ammv4.ErrTicks}} {
		var z, without ammv4.Zapped
		if err := p.Zap(&z, true, uint256.NewInt(in.amount), -60_000, 60_000); !errors.Is(err, in.want) {
			t.Errorf("a zap of %d: %v", in.amount, err)
			continue
		}
		if err := clean.Zap(&without, true, uint256.NewInt(in.amount), -60_000, 60_000); err != nil {
			t.Fatal(err)
		}
		gap := new(uint256.Int).Sub(&z.Liquidity, &without.Liquidity)
		if in.want == nil && new(uint256.Int).Abs(gap).GtUint64(without.Liquidity.Uint64()/1e6) {
			t.Errorf("a zap of %d comes to %s over dust, %s without", in.amount, &z.Liquidity, &without.Liquidity)
		}
	}
}

func BenchmarkZapOverDust(b *testing.B) {
	p := dusty(b, 2*ammv4.MaxCrossed)
	b.ReportAllocs()
	for b.Loop() {
		var z ammv4.Zapped
		_ = p.Zap(&z, true, uint256.NewInt(1e16), -60_000, 60_000)
	}
}
