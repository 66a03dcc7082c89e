package query_test

import (
	"slices"
	"testing"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
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

// TestManyTicks: the ticks of a pool are read whole, with what does not stand, up to a bound; beyond it the pool is named, and all
// others are read as before.
func TestManyTicks(t *testing.T) {
	m := newMarketNode(t, deployment)
	m.mine(t, 1, initialize(t, tknPool, usdg, tkn, 0), allow(tknPool),
		initialize(t, thinPool, usdg, stock, 0), allow(thinPool), provide(thinPool, 1e9, -60, 60, 7))
	m.crowd(t, query.MaxTicks)
	read := func() []query.PoolState {
		answer, err := m.router.Exchange(t.Context(), query.ExchangeQuery{Seconds: 1800})
		x := must(t, answer, err)
		if len(x.Pools) != 2 {
			t.Fatal(len(x.Pools), "pools")
		}
		if x.Pools[0].ID != tknPool {
			slices.Reverse(x.Pools)
		}
		if other := x.Pools[1]; other.Crowded || len(other.Ticks) != 2 {
			t.Errorf("the pool beside it has %d ticks, crowded %t", len(other.Ticks), other.Crowded)
		}
		return x.Pools
	}
	p := read()[0]
	if p.Crowded || len(p.Ticks) != query.MaxTicks || len(p.Standing) != query.MaxTicks {
		t.Fatalf("%d and %d ticks, crowded %t", len(p.Ticks), len(p.Standing), p.Crowded)
	}
	for i := range p.Ticks {
		want := *uint256.NewInt(1)
		if i >= query.MaxTicks/2 {
			want.Neg(&want)
		}
		if p.Ticks[i].Net != want || !p.Standing[i].Net.IsZero() || i > 0 && p.Ticks[i-1].Index >= p.Ticks[i].Index {
			t.Fatalf("tick %d: %+v, of which %+v stands", i, p.Ticks[i], p.Standing[i])
		}
	}
	m.mine(t, 1, provide(tknPool, 1<<40, -query.MaxTicks, query.MaxTicks, 1))
	if p := read()[0]; !p.Crowded || p.Ticks != nil || p.Standing != nil {
		t.Errorf("%d ticks, crowded %t", len(p.Ticks), p.Crowded)
	}
}
