package prices_test

import (
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/prices"
	"github.com/lienstream/lienstream/topics"
)

// TestCloses: the close of every hour that is over is the median of the lowest and of the highest ticks of the seconds of its last
// half hour, with what half of them had at all times, and of the hour the most liquidity and how far the price went, written out second by second and block by block, however long nobody trades.
func TestCloses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store, err := state.Open(state.Options{Dir: "state", Tables: prices.Family.Tables, FS: vfs.NewMem()})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		pool := common.Hash{7}
		now := rapid.Uint64Range(2_000_000_000, 2_000_010_000).Draw(t, "began")
		var seen []left
		var p left
		for number := range rapid.Uint64Range(1, 25).Draw(t, "blocks") {
			now += rapid.OneOf(rapid.Just[uint64](0), rapid.Uint64Range(0, 900), rapid.Uint64Range(0, 9000), rapid.Uint64Range(80_000, 120_000)).Draw(t, "gap")
			o := store.NewOverlay()
			o.Begin(topics.BlockRef{Number: number, Hash: common.Hash{byte(number), 1}, Timestamp: now}, true)
			for range rapid.IntRange(1, 3).Draw(t, "events") {
				var event contracts.Event
				if number == 0 || rapid.Bool().Draw(t, "swaps") {
					p.tick, p.liquidity = rapid.Int32Range(-5, 5).Draw(t, "tick"), rapid.Uint64Range(1000, 2000).Draw(t, "liquidity")
					event = &contracts.Swapped{PoolID: pool, Tick: p.tick, Liquidity: *uint256.NewInt(p.liquidity)}
				} else {
					delta := rapid.Int64Range(-10, 10).Draw(t, "delta")
					change := &contracts.LiquidityModified{PoolID: pool, TickLower: -3, TickUpper: 3, LiquidityDelta: *uint256.NewInt(uint64(max(delta, -delta)))}
					if delta < 0 {
						change.LiquidityDelta.Neg(&change.LiquidityDelta)
					}
					if event = change; -3 <= p.tick && p.tick < 3 {
						p.liquidity = uint64(int64(p.liquidity) + delta)
					}
				}
				if _, err := prices.Family.Apply(o, topics.EventMeta{}, event); err != nil {
					t.Fatal(err)
				}
			}
			if err := store.Commit(o, []byte("meta")); err != nil {
				t.Fatal(err)
			}
			p.at = now
			seen = append(seen, p)
		}
		now += rapid.OneOf(rapid.Uint64Range(0, 4000), rapid.Uint64Range(0, 200_000)).Draw(t, "later")
		snap := store.Snapshot()
		defer snap.Release()
		v := snap.View(topics.BlockRef{Timestamp: now})
		defer v.Close()
		have, err := prices.Open(v, pool, now)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Scan(prices.Closes, pool[:], nil, func(key, row []byte) bool {
			p, err := prices.DecodeClose(row)
			if err != nil {
				t.Fatal(err)
			}
			p.At = prices.At(key)
			have = append(have, p)
			return true
		}); err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(have, func(a, b prices.PriceAt) int { return int(a.At) - int(b.At) })
		next := 0
		for hour := seen[0].at - seen[0].at%prices.Hour; hour+prices.Hour <= now; hour += prices.Hour {
			for next < len(have) && have[next].At <= hour {
				next++
			}
			if next == 0 {
				t.Fatalf("no close of the hour from %d on, of %v", hour, have)
			}
			want := medians(seen, hour+prices.Hour-prices.CloseSeconds, hour+prices.Hour)
			if slices.ContainsFunc(seen, func(p left) bool { return p.at/prices.Hour == hour/prices.Hour }) {
				all := medians(seen, hour, hour+prices.Hour)
				want.Liquidity, want.Below, want.Above = all.Liquidity, want.Low-(all.Low-all.Below), all.High+all.Above-want.High
			} else {
				want.Below, want.Above = 0, 0
			}
			want.At = have[next-1].At
			if got := have[next-1]; got != want {
				t.Fatalf("the hour from %d on closes at %+v, want %+v: %v", hour, got, want, seen)
			}
		}
		since, err := prices.Since(v, pool, now-min(now, 1800), now)
		if err != nil {
			t.Fatal(err)
		}
		gotLow, gotHigh, _ := prices.Median(since, now, 1800)
		if want := medians(seen, now+1-1800, now+1); gotLow != want.Low || gotHigh != want.High {
			t.Fatalf("at %d the price is %d to %d, want %+v: %v", now, gotLow, gotHigh, want, seen)
		}
	})
}

// left is where a block leaves a pool.
type left struct {
	at        uint64
	tick      int32
	liquidity uint64
}

// medians are those of every second in [from, to), with the most liquidity of any, what half of them never have less of,
// and how far others are from them.
func medians(seen []left, from, to uint64) (p prices.PriceAt) {
	var lows, highs []int32
	var most, least []uint64
	i := 0
	for second := from; second < to; second++ {
		for i < len(seen) && seen[i].at < second {
			i++
		}
		var held []int32 // at the ends of blocks: of the last one before the second, and of its own
		var liquidity []uint64
		for j := max(i-1, 0); j < len(seen) && seen[j].at <= second; j++ {
			held, liquidity = append(held, seen[j].tick), append(liquidity, seen[j].liquidity)
		}
		if len(held) > 0 {
			lows, highs = append(lows, slices.Min(held)), append(highs, slices.Max(held))
			most, least = append(most, slices.Max(liquidity)), append(least, slices.Min(liquidity))
		}
	}
	slices.Sort(lows)
	slices.Sort(highs)
	p.Low, p.High = lows[(len(lows)-1)/2], highs[len(highs)/2]
	p.Below, p.Above = p.Low-lows[0], highs[len(highs)-1]-p.High
	slices.Sort(least)
	p.Liquidity.SetUint64(slices.Max(most))
	if half := int(to-from+1) / 2; len(least) >= half {
		p.Usual.SetUint64(least[len(least)-half])
	}
	return p
}
