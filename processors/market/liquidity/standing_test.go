package liquidity_test

import (
	"maps"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/liquidity"
	"github.com/lienstream/lienstream/topics"
)

type span struct{ lower, upper int32 }

// TestStanding: what stands in a range is no more than the least that was there in the last half hour, and no less than the
// least of the last forty minutes; written out second by second.
func TestStanding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := liquidity.Family(contracts.Deployment{PositionManager: common.Address{9}})
		store, err := state.Open(state.Options{Dir: "state", Tables: of.Tables, FS: vfs.NewMem()})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		pool, hooked := common.Hash{7}, common.Hash{8}
		ranges := []span{{-60, 60}, {-60, 120}, {0, 60}, {-5040, 60}, {-60, 5040}, {-1080, -1020}}
		held := map[span]int64{}
		was := []map[span]int64{} // the least in each second from the first on
		began := rapid.Uint64Range(2_000_000_000, 2_000_001_000).Draw(t, "began")
		number := uint64(0)
		apply := func(at uint64, events ...contracts.Event) {
			number++
			o := store.NewOverlay()
			o.Begin(topics.BlockRef{Number: number, Hash: common.Hash{byte(number), byte(number >> 8)}, Timestamp: at}, true)
			for _, e := range events {
				if violation, err := of.Apply(o, topics.EventMeta{}, e); err != nil || violation != "" {
					t.Fatal(violation, err)
				}
			}
			if err := store.Commit(o, []byte("meta")); err != nil {
				t.Fatal(err)
			}
		}
		apply(began, &contracts.PoolInitialized{PoolID: pool, TickSpacing: 60, SqrtPriceX96: *uint256.NewInt(1 << 32)},
			&contracts.PoolInitialized{PoolID: hooked, TickSpacing: 60, Hooks: common.Address{1}, SqrtPriceX96: *uint256.NewInt(1 << 32)})
		for range rapid.IntRange(1, 25).Draw(t, "changes") {
			gap := rapid.Uint64Range(0, 1500).Draw(t, "gap")
			if len(was) == 0 {
				was = append(was, map[span]int64{})
			}
			for range gap {
				was = append(was, maps.Clone(held))
			}
			r := ranges[rapid.IntRange(0, len(ranges)-1).Draw(t, "range")]
			delta := rapid.Int64Range(-held[r], 100).Draw(t, "delta")
			held[r] += delta
			was[len(was)-1][r] = min(was[len(was)-1][r], held[r])
			signed := uint256.NewInt(uint64(max(delta, -delta)))
			if delta < 0 {
				signed.Neg(signed)
			}
			change := &contracts.LiquidityModified{PoolID: pool, TickLower: r.lower, TickUpper: r.upper, LiquidityDelta: *signed}
			at := began + uint64(len(was)) - 1
			foreign := *change
			foreign.PoolID = hooked
			apply(at, change, &foreign)
			check(t, store, pool, hooked, at, held, was)
		}
	})
}

func check(t *rapid.T, store *state.Store, pool, hooked common.Hash, at uint64, held map[span]int64, was []map[span]int64) {
	least := func(seconds int) map[span]int64 {
		all := maps.Clone(held)
		for i := max(len(was)-1-seconds, -1); i < len(was); i++ {
			for r := range held {
				if i < 0 {
					all[r] = 0 // before the first
				} else {
					all[r] = min(all[r], was[i][r])
				}
			}
		}
		return all
	}
	snap := store.Snapshot()
	defer snap.Release()
	v := snap.View(topics.BlockRef{Timestamp: at})
	defer v.Close()
	young := map[int32]int64{}
	if err := liquidity.ScanYoung(v, pool, ammv4.MinTick, ammv4.MaxTick, at, func(tick int32, y *uint256.Int) {
		young[tick] = int64(y.Uint64())
	}); err != nil {
		t.Fatal(err)
	}
	if err := liquidity.ScanYoung(v, hooked, ammv4.MinTick, ammv4.MaxTick, at, func(int32, *uint256.Int) { t.Error("a pool with hooks has young liquidity") }); err != nil {
		t.Fatal(err)
	}
	most, fewest := least(liquidity.StandingSeconds), least(liquidity.StandingSeconds+600)
	var all, stands, high, low int64
	for _, tick := range []int32{-5040, -1080, -1020, -60, 0, 60, 120, 5040} {
		for r, l := range held {
			for of, sum := range map[*int64]int64{&all: l, &stands: l, &high: most[r], &low: fewest[r]} {
				if r.lower == tick {
					*of += sum
				}
				if r.upper == tick {
					*of -= sum
				}
			}
		}
		stands -= young[tick]
		if stands > high || stands < low {
			t.Errorf("at %d from tick %d on %d stands, the least of half an hour is %d, of ten minutes more %d", at, tick, stands, high, low)
		}
		for _, above := range []int32{tick + 1, tick + 60} {
			below, old, err := liquidity.Below(v, pool, above, at)
			if err != nil {
				t.Fatal(err)
			}
			if below != *uint256.NewInt(uint64(all)) || old != *uint256.NewInt(uint64(stands)) {
				t.Errorf("below tick %d there are %s, of which %s stand, want %d and %d", above, below.Dec(), old.Dec(), all, stands)
			}
		}
	}
}
