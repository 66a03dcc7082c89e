package ammv4

import (
	"errors"
	"testing"
	"time"

	"github.com/holiman/uint256"
	"pgregory.net/rapid"
)

// position is a range of a test's pool.
type position struct {
	lower, upper int32
	liquidity    uint64
}

// poolOf is a pool at a tick with positions in it.
func poolOf(t testing.TB, tick, spacing int32, lpFee, protocolFee uint32, positions []position) *Pool {
	t.Helper()
	price, err := SqrtPriceAtTick(tick)
	if err != nil {
		t.Fatal(err)
	}
	p := &Pool{SqrtPriceX96: *price, Tick: tick, LPFee: lpFee, ProtocolFee: protocolFee, TickSpacing: spacing}
	for _, q := range positions {
		l := uint256.NewInt(q.liquidity)
		if q.lower <= tick && tick < q.upper {
			p.Liquidity.Add(&p.Liquidity, l)
		}
		p.Ticks = withTick(p.Ticks, q.lower, l)
		p.Ticks = withTick(p.Ticks, q.upper, new(uint256.Int).Neg(l))
	}
	return p
}

// withTick keeps the ticks ascending.
func withTick(ticks []Tick, index int32, net *uint256.Int) []Tick {
	for i := range ticks {
		if ticks[i].Index == index {
			ticks[i].Net.Add(&ticks[i].Net, net)
			return ticks
		}
		if ticks[i].Index > index {
			ticks = append(ticks, Tick{})
			copy(ticks[i+1:], ticks[i:])
			ticks[i] = tickOf(index, net)
			return ticks
		}
	}
	return append(ticks, tickOf(index, net))
}

func tickOf(index int32, net *uint256.Int) Tick {
	t, err := NewTick(index, net)
	if err != nil {
		panic(err)
	}
	return t
}

// drawPool is any small pool.
func drawPool(t *rapid.T, tb testing.TB) *Pool {
	spacing := rapid.SampledFrom([]int32{1, 10, 60, 200}).Draw(t, "spacing")
	limit := int32(20_000) / spacing
	var positions []position
	for range rapid.IntRange(1, 8).Draw(t, "positions") {
		lower := rapid.Int32Range(-limit, limit-1).Draw(t, "lower")
		upper := rapid.Int32Range(lower+1, limit).Draw(t, "upper")
		positions = append(positions, position{lower * spacing, upper * spacing, rapid.Uint64Range(1, 1<<60).Draw(t, "liquidity")})
	}
	return poolOf(tb, rapid.Int32Range(-20_000, 20_000).Draw(t, "tick"), spacing,
		rapid.Uint32Range(0, 100_000).Draw(t, "fee"), rapid.Uint32Range(0, 1000).Draw(t, "protocolFee")*0x1001, positions)
}

// One unit less than a swap gives, bought exactly, costs no more than the swap; nobody gains by going back and forth. The
// same amount may cost more: where it is all that a range still gives, Uniswap moves the price to the end of the range.
func TestSwapLaws(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPool(rt, t)
		zeroForOne := rapid.Bool().Draw(rt, "zeroForOne")
		amount := uint256.NewInt(rapid.Uint64Range(1, 1<<50).Draw(rt, "amount"))
		var whole Result
		if err := p.Quote(&whole, zeroForOne, true, amount); err != nil {
			if !errors.Is(err, ErrLiquidity) {
				rt.Fatal(err)
			}
			return
		}
		var exact Result
		if one := uint256.NewInt(1); whole.Out.Gt(one) {
			less := new(uint256.Int).Sub(&whole.Out, one)
			if err := p.Quote(&exact, zeroForOne, false, less); err != nil {
				rt.Fatal(err)
			}
			if exact.In.Gt(&whole.In) {
				rt.Fatalf("%s buy %s, but %s cost %s", &whole.In, &whole.Out, less, &exact.In)
			}
		}
		after := *p
		after.SqrtPriceX96, after.Tick, after.Liquidity = whole.SqrtPriceX96, whole.Tick, whole.Liquidity
		if liquidity := inRange(&after); !liquidity.Eq(&after.Liquidity) {
			rt.Fatalf("liquidity %s in range, by the ticks %s", &after.Liquidity, &liquidity)
		}
		var back Result
		if err := after.Quote(&back, !zeroForOne, true, &whole.Out); err == nil && back.Out.Gt(amount) {
			rt.Fatalf("%s came back as %s", amount, &back.Out)
		}
	})
}

// inRange adds up what the ticks say.
func inRange(p *Pool) (sum uint256.Int) {
	for i := range p.Ticks {
		if p.Ticks[i].Index <= p.Tick {
			sum.Add(&sum, &p.Ticks[i].Net)
		}
	}
	return sum
}

func TestSwapRefusals(t *testing.T) {
	p := poolOf(t, 0, 60, 3000, 0, []position{{-600, 600, 1e18}})
	for _, test := range []struct {
		name string
		swap Swap
		want error
	}{
		{"limit on the wrong side", Swap{ZeroForOne: true, ExactIn: true, Amount: *word("1"), Limit: *highestLimit}, ErrPrice},
		{"limit at the price", Swap{ExactIn: true, Amount: *word("1"), Limit: p.SqrtPriceX96}, ErrPrice},
		{"limit out of bounds", Swap{ZeroForOne: true, ExactIn: true, Amount: *word("1"), Limit: *MinSqrtPrice}, ErrPrice},
		{"amount of 256 bits", Swap{ZeroForOne: true, ExactIn: true, Amount: *new(uint256.Int).SetAllOne(), Limit: *lowestLimit}, ErrOverflow},
	} {
		var r Result
		if err := p.Swap(&r, &test.swap); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
	}
	var r Result
	if err := p.Quote(&r, true, false, word("1000000000000000000000")); !errors.Is(err, ErrLiquidity) {
		t.Errorf("more than there is: %v", err)
	}
	p.LPFee = feeUnits
	if err := p.Quote(&r, true, false, word("1")); !errors.Is(err, ErrFee) {
		t.Errorf("bought where the fee takes all: %v", err)
	}
}

// BenchmarkQuote crosses 30 initialised ticks.
func BenchmarkQuote(b *testing.B) {
	p, amount := crossing(b, 30)
	var r Result
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Quote(&r, true, true, amount); err != nil {
			b.Fatal(err)
		}
	}
}

// crossing is a pool and the input that takes its price over so many ticks.
func crossing(t testing.TB, ticks int32) (*Pool, *uint256.Int) {
	t.Helper()
	positions := []position{{-887_220, 887_220, 1e18}}
	for i := int32(1); i <= ticks; i++ {
		positions = append(positions, position{-60 * i, 60 * i, 1e17})
	}
	p := poolOf(t, 0, 60, 3000, 0x1f41f4, positions)
	limit, err := SqrtPriceAtTick(-60*ticks - 1)
	if err != nil {
		t.Fatal(err)
	}
	var r Result
	swap := Swap{ZeroForOne: true, ExactIn: true, Amount: *new(uint256.Int).Lsh(uint256.NewInt(1), 100), Limit: *limit}
	if err := p.Swap(&r, &swap); err != nil || r.Steps < int(ticks) {
		t.Fatalf("%d steps, %v", r.Steps, err)
	}
	return p, &r.In
}

func TestQuoteAllocatesNothing(t *testing.T) {
	p, amount := crossing(t, 30)
	var r Result
	if n := testing.AllocsPerRun(100, func() { _ = p.Quote(&r, true, true, amount) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestQuoteIsQuick: a quote over 30 ticks takes at most 20 µs. The best of many rounds counts: the machine has other work.
func TestQuoteIsQuick(t *testing.T) {
	const rounds, quotes, limit = 200, 50, 20 * time.Microsecond
	p, amount := crossing(t, 30)
	var r Result
	best := time.Hour
	for range rounds {
		began := time.Now()
		for range quotes {
			if err := p.Quote(&r, true, true, amount); err != nil {
				t.Fatal(err)
			}
		}
		best = min(best, time.Since(began)/quotes)
	}
	if t.Logf("%s", best); best > slowdown*limit {
		t.Errorf("a quote takes %s, at most %s", best, limit)
	}
}

// FuzzSwap: whatever the pool and the order, a swap ends, gives no more than was asked and moves the price one way.
func FuzzSwap(f *testing.F) {
	f.Add(int32(0), uint8(60), uint32(3000), uint32(0), int32(-600), int32(600), uint64(1e18), uint64(1e9), uint64(0), true, true)
	f.Add(int32(-887_272), uint8(1), uint32(1_000_000), uint32(0x3e83e8), int32(-887_272), int32(887_272), uint64(1), uint64(1), uint64(1<<62), false, false)
	f.Fuzz(func(t *testing.T, tick int32, spacing uint8, lpFee, protocolFee uint32, lower, upper int32, liquidity, low, high uint64, zeroForOne, exactIn bool) {
		step := int32(spacing)
		if step == 0 || tick < MinTick || tick >= MaxTick || lpFee > feeUnits {
			t.Skip()
		}
		lower, upper = lower-lower%step, upper-upper%step
		if lower < MinTick || upper > MaxTick || lower >= upper || (int64(upper)-int64(lower))/int64(step) > 1<<18 {
			t.Skip()
		}
		protocolFee = protocolFee&0xfff%1001 | protocolFee>>12&0xfff%1001<<12
		p := poolOf(t, tick, step, lpFee, protocolFee, []position{{lower, upper, liquidity}})
		amount := uint256.Int{low, high}
		var r Result
		if err := p.Quote(&r, zeroForOne, exactIn, &amount); err != nil {
			return
		}
		if zeroForOne == r.SqrtPriceX96.Gt(&p.SqrtPriceX96) && !r.SqrtPriceX96.Eq(&p.SqrtPriceX96) {
			t.Fatalf("the price went from %s to %s", &p.SqrtPriceX96, &r.SqrtPriceX96)
		}
		if r.Fee.Gt(&r.In) || r.ProtocolFee.Gt(&r.Fee) {
			t.Fatalf("fees %s, %s of %s", &r.Fee, &r.ProtocolFee, &r.In)
		}
	})
}
