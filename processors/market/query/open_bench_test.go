package query_test

import (
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
)

// BenchmarkStatsOfOpenPositions reads the statistics of 80,000 positions that are collateral, as of a new block each time: where
// all positions are collateral, and where ten times as many are not.
func BenchmarkStatsOfOpenPositions(b *testing.B) {
	for name, every := range map[string]uint64{"all": 1, "some": 11} {
		b.Run(name, func(b *testing.B) {
			m := openPositions(b, every)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				m.mine(b, 1)
				b.StartTimer()
				if _, err := m.router.Stats(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkHistoryOfOpenPositions reads the last days of as many: the first read of a client, and the next ones, as of a new block each.
func BenchmarkHistoryOfOpenPositions(b *testing.B) {
	m := openPositions(b, 1)
	for n := range int32(100) { // each pool is at another price each day
		var events []contracts.Event
		for i := range byte(16) {
			tick := n%40 - 20 + int32(i)
			events = append(events, &contracts.Swapped{PoolID: common.Hash{0xd0, i}, SqrtPriceX96: at(b, tick), Tick: tick, Liquidity: word(1 << 50)})
		}
		m.mine(b, daySeconds, events...)
	}
	for name, days := range map[string]int{"30 days": 30, "90 days": 90} {
		b.Run("first read of "+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				m.mine(b, 1)
				router := clientOf(b, m.node)
				b.StartTimer()
				if _, err := router.History(b.Context(), days); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("next read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			m.mine(b, 1)
			b.StartTimer()
			if _, err := m.router.History(b.Context(), 30); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// openPositions is a market of 80,000 positions that are collateral, one of so many that there are.
func openPositions(b *testing.B, every uint64) *marketNode {
	const open, perBlock = 80_000, 2_000
	m := newMarketNode(b, deployment)
	var pools []common.Hash
	for i := range byte(16) {
		pool := common.Hash{0xd0, i}
		pools = append(pools, pool)
		m.mine(b, 1, initialize(b, pool, usdg, common.Address{i + 1, 0xd}, 0), provide(pool, 1<<33+uint64(i), -6000, 6000, 1<<50), allow(pool))
	}
	for id := uint64(0); id < open*every; {
		var events []contracts.Event
		for range perBlock {
			id++
			events = append(events, provide(pools[id%uint64(len(pools))], id, -60-60*int32(id%50), 60+60*int32(id%70), 1_000_000+id))
			if id%every == 0 {
				e := listing(id)
				e.Kind, e.Lane, e.Token, e.AmountOrTokenID = contracts.KindPosition, contracts.LanePosition, manager, word(id)
				events = append(events, e)
			}
		}
		m.mine(b, 1, events...)
	}
	return m
}
