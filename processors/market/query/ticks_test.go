package query_test

import (
	"slices"
	"testing"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/market/query"
)

// crowd provides liquidity of so many ticks of a pool, in blocks.
func (m *marketNode) crowd(t testing.TB, ticks int32) {
	t.Helper()
	for from := int32(0); from < ticks/2; {
		var events []contracts.Event
		for ; from < ticks/2 && len(events) < 5000; from++ {
			events = append(events, provide(tknPool, uint64(from)+1, -from-1, from+1, 1))
		}
		m.mine(t, 1, events...)
	}
}

func BenchmarkExchange(b *testing.B) {
	m := newMarketNode(b, deployment)
	m.mine(b, 1, initialize(b, tknPool, usdg, tkn, 0), allow(tknPool))
	m.crowd(b, 30_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.router.Exchange(b.Context(), query.ExchangeQuery{Seconds: 1800, Hours: 7 * 24 * 3600}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestManyTicks: of a pool with dust at more ticks than a quote crosses, those around its price and its median price are read,
// with all that is below them, and what of it stands. All other pools are read whole.
func TestManyTicks(t *testing.T) {
	const each, side = 6000, ammv4.MaxCrossed
	m := newMarketNode(t, deployment)
	m.mine(t, 1, initialize(t, tknPool, usdg, tkn, 0), allow(tknPool),
		initialize(t, thinPool, usdg, stock, 0), allow(thinPool), provide(thinPool, 1e9, -60, 60, 7))
	m.crowd(t, 2*each)
	read := func() *query.PoolState {
		answer, err := m.router.Exchange(t.Context(), query.ExchangeQuery{Seconds: 1800})
		x := must(t, answer, err)
		if len(x.Pools) != 2 {
			t.Fatal(len(x.Pools), "pools")
		}
		if x.Pools[0].ID != tknPool {
			slices.Reverse(x.Pools)
		}
		if other := x.Pools[1]; other.From != other.To || len(other.Ticks) != 2 {
			t.Errorf("the pool beside it has %d ticks from %d to %d", len(other.Ticks), other.From, other.To)
		}
		return &x.Pools[0]
	}
	// check holds a window against the liquidity that was provided, from each to -each.
	check := func(w *query.Window, from, to int32, stands bool) {
		t.Helper()
		if w == nil || w.From != from || w.To != to || len(w.Ticks) > 2*side || len(w.Standing) != len(w.Ticks) {
			t.Fatalf("a window %+v, want one from %d to %d", w, from, to)
		}
		all, old := w.Below, w.StandingBelow
		for i := range w.Ticks {
			at := w.Ticks[i].Index
			all.Add(&all, &w.Ticks[i].Net)
			old.Add(&old, &w.Standing[i].Net)
			want := uint256.NewInt(uint64(each + at + 1)) // ranges from -1 to 1, from -2 to 2, and so on
			if at >= 0 {
				want = uint256.NewInt(uint64(each - at))
			}
			if all != *want || stands && old != all || !stands && !old.IsZero() {
				t.Fatalf("at tick %d there are %s, of which %s stand, want %s", at, all.Dec(), old.Dec(), want.Dec())
			}
		}
	}
	p := read()
	check(&p.Window, -side, side, false)
	if len(p.Far) != 0 {
		t.Errorf("%d windows beside it", len(p.Far))
	}
	m.mine(t, 3000, &contracts.Swapped{PoolID: tknPool, SqrtPriceX96: at(t, 5000), Tick: 5000, Liquidity: word(each - 5000)})
	p = read()
	check(&p.Window, 5120-side+1, ammv4.MaxTick+1, true) // read around the tick nearest to it that others share
	check(p.WindowAt(0), -side, side, true)
	check(p.WindowAt(5000), 5120-side+1, ammv4.MaxTick+1, true)
	if p.WindowAt(-5000) != nil {
		t.Error("what was not read is known")
	}
	m.mine(t, 1800)
	if p = read(); len(p.Far) != 0 {
		t.Errorf("%d windows beside the one in which it has been for half an hour", len(p.Far))
	}
}

// TestNoTicksAbove: more ticks than a window has, and all of them below the price, as of a token that was just launched.
func TestNoTicksAbove(t *testing.T) {
	m := newMarketNode(t, deployment)
	m.mine(t, 1, initialize(t, tknPool, usdg, tkn, 60), allow(tknPool))
	const ranges = 2100 // all of them end at the price
	var events []contracts.Event
	for i := range int32(ranges) {
		events = append(events, provide(tknPool, uint64(i)+1, -60*(i+1), 60, 1))
	}
	m.mine(t, 1, events...)
	answer, err := m.router.Exchange(t.Context(), query.ExchangeQuery{Seconds: 1800})
	if err != nil {
		t.Fatal(err)
	}
	if p := &answer.Value.Pools[0]; p.From <= -60*ranges || p.To != ammv4.MaxTick+1 || len(p.Ticks) == 0 || p.Ticks[len(p.Ticks)-1].Index != 60 {
		t.Errorf("%d ticks from %d to %d", len(p.Ticks), p.From, p.To)
	}
}
