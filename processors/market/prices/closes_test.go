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

// TestCloses: the close of every hour that is over is the median of its last half hour, written out second by second, however
// long nobody trades.
func TestCloses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store, err := state.Open(state.Options{Dir: "state", Tables: prices.Family.Tables, FS: vfs.NewMem()})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		pool := common.Hash{7}
		now := rapid.Uint64Range(2_000_000_000, 2_000_010_000).Draw(t, "began")
		var seen []prices.PriceAt
		for number := range rapid.Uint64Range(1, 25).Draw(t, "trades") {
			now += rapid.OneOf(rapid.Uint64Range(0, 900), rapid.Uint64Range(0, 9000), rapid.Uint64Range(80_000, 120_000)).Draw(t, "gap")
			tick := rapid.Int32Range(-5, 5).Draw(t, "tick")
			o := store.NewOverlay()
			o.Begin(topics.BlockRef{Number: number, Hash: common.Hash{byte(number), 1}, Timestamp: now}, true)
			if _, err := prices.Family.Apply(o, topics.EventMeta{}, &contracts.Swapped{PoolID: pool, Tick: tick}); err != nil {
				t.Fatal(err)
			}
			if err := store.Commit(o, []byte("meta")); err != nil {
				t.Fatal(err)
			}
			seen = append(seen, prices.PriceAt{At: now, Tick: tick})
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
			tick, err := prices.DecodeClose(row)
			if err != nil {
				t.Fatal(err)
			}
			have = append(have, prices.PriceAt{At: prices.At(key), Tick: tick})
			return true
		}); err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(have, func(a, b prices.PriceAt) int { return int(a.At) - int(b.At) })
		next := 0
		for hour := seen[0].At - seen[0].At%prices.Hour; hour+prices.Hour <= now; hour += prices.Hour {
			for next < len(have) && have[next].At <= hour {
				next++
			}
			if next == 0 {
				t.Fatalf("no close of the hour from %d on, of %v", hour, have)
			}
			if got, want := have[next-1].Tick, median(seen, hour+prices.Hour-prices.CloseSeconds, hour+prices.Hour); got != want {
				t.Fatalf("the hour from %d on closes at %d, want %d: %v", hour, got, want, seen)
			}
		}
	})
}

// median is that of every second in [from, to).
func median(seen []prices.PriceAt, from, to uint64) int32 {
	var all []int32
	i := 0
	for second := from; second < to; second++ {
		for i < len(seen) && seen[i].At <= second {
			i++
		}
		if i > 0 {
			all = append(all, seen[i-1].Tick)
		}
	}
	slices.Sort(all)
	return all[(len(all)-1)/2]
}
