package query_test

import (
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
)

// BenchmarkStatsOfOpenPositions reads the statistics of 80,000 positions that are collateral, as of a new block each time: where
// all positions are collateral, and where ten times as many are not.
func BenchmarkStatsOfOpenPositions(b *testing.B) {
	const open, perBlock = 80_000, 2_000
	for name, every := range map[string]uint64{"all": 1, "some": 11} {
		b.Run(name, func(b *testing.B) {
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
