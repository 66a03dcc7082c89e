package prices_test

import (
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/prices"
	"github.com/lienstream/lienstream/topics"
)

// TestCloses: the close of every hour that is over is the median of the lowest and of the highest ticks of the seconds of its last
// half hour, written out second by second and block by block, however long nobody trades.
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
		for number := range rapid.Uint64Range(1, 25).Draw(t, "blocks") {
			now += rapid.OneOf(rapid.Just[uint64](0), rapid.Uint64Range(0, 900), rapid.Uint64Range(0, 9000), rapid.Uint64Range(80_000, 120_000)).Draw(t, "gap")
			o := store.NewOverlay()
			o.Begin(topics.BlockRef{Number: number, Hash: common.Hash{byte(number), 1}, Timestamp: now}, true)
			ticks := rapid.SliceOfN(rapid.Int32Range(-5, 5), 1, 3).Draw(t, "ticks")
			for _, tick := range ticks {
				if _, err := prices.Family.Apply(o, topics.EventMeta{}, &contracts.Swapped{PoolID: pool, Tick: tick}); err != nil {
					t.Fatal(err)
				}
			}
			if err := store.Commit(o, []byte("meta")); err != nil {
				t.Fatal(err)
			}
			seen = append(seen, left{now, ticks[len(ticks)-1]})
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
			low, high, err := prices.DecodeClose(row)
			if err != nil {
				t.Fatal(err)
			}
			have = append(have, prices.PriceAt{At: prices.At(key), Low: low, High: high})
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
			low, high := medians(seen, hour+prices.Hour-prices.CloseSeconds, hour+prices.Hour)
			if got := have[next-1]; got.Low != low || got.High != high {
				t.Fatalf("the hour from %d on closes at %d to %d, want %d to %d: %v", hour, got.Low, got.High, low, high, seen)
			}
		}
		since, err := prices.Since(v, pool, now-min(now, 1800), now)
		if err != nil {
			t.Fatal(err)
		}
		gotLow, gotHigh, _ := prices.Median(since, now, 1800)
		if low, high := medians(seen, now+1-1800, now+1); gotLow != low || gotHigh != high {
			t.Fatalf("at %d the price is %d to %d, want %d to %d: %v", now, gotLow, gotHigh, low, high, seen)
		}
	})
}

// left is where a block leaves a price.
type left struct {
	at   uint64
	tick int32
}

// medians are those of every second in [from, to).
func medians(seen []left, from, to uint64) (low, high int32) {
	var lows, highs []int32
	i := 0
	for second := from; second < to; second++ {
		for i < len(seen) && seen[i].at < second {
			i++
		}
		var held []int32 // at the ends of blocks: of the last one before the second, and of its own
		for j := max(i-1, 0); j < len(seen) && seen[j].at <= second; j++ {
			held = append(held, seen[j].tick)
		}
		if len(held) > 0 {
			lows, highs = append(lows, slices.Min(held)), append(highs, slices.Max(held))
		}
	}
	slices.Sort(lows)
	slices.Sort(highs)
	return lows[(len(lows)-1)/2], highs[len(highs)/2]
}
