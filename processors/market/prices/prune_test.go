package prices_test

import (
	"encoding/binary"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/prices"
	"github.com/lienstream/lienstream/topics"
)

// TestPruneIsBounded: a pool that was busy for an hour, and then idle for a day, loses its old observations little by little,
// whoever makes the next swap. None that is younger than a day goes, and none of another pool.
func TestPruneIsBounded(t *testing.T) {
	store, err := state.Open(state.Options{Dir: "state", Tables: prices.Family.Tables, FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	const began, busy, day = 2_000_001_600, 1000, 24 * 3600
	number := uint64(0)
	swap := func(at uint64, pools ...common.Hash) {
		number++
		o := store.NewOverlay()
		o.Begin(topics.BlockRef{Number: number, Hash: common.BigToHash(common.Big1), Timestamp: at}, true)
		for _, pool := range pools {
			if _, err := prices.Family.Apply(o, topics.EventMeta{}, &contracts.Swapped{PoolID: pool, Tick: int32(number)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := store.Commit(o, binary.BigEndian.AppendUint64(nil, number)); err != nil {
			t.Fatal(err)
		}
	}
	kept := func(pool common.Hash) (n int, oldest uint64) {
		snap := store.Snapshot()
		defer snap.Release()
		v := snap.View(topics.BlockRef{Number: number})
		defer v.Close()
		if err := v.Scan(prices.Seconds, pool[:], nil, func(key, _ []byte) bool {
			n, oldest = n+1, prices.At(key)
			return true
		}); err != nil {
			t.Fatal(err)
		}
		return n, oldest
	}
	pool, other := common.Hash{7}, common.Hash{8}
	for second := range uint64(busy) {
		swap(began+second, pool, other)
	}
	before, now := busy, uint64(began+25*3600)
	for swaps := 1; ; swaps++ {
		now++
		swap(now, pool)
		have, oldest := kept(pool)
		if gone := before + 1 - have; gone > 64 {
			t.Fatalf("swap %d deletes %d observations at once", swaps, gone)
		}
		if before = have; oldest >= now-now%3600-day {
			if have != swaps {
				t.Fatalf("after %d swaps %d observations are left", swaps, have)
			}
			break
		}
		if swaps > busy {
			t.Fatalf("after %d swaps there is one %d s old", swaps, now-oldest)
		}
	}
	if n, _ := kept(other); n != busy {
		t.Errorf("%d observations of another pool, want %d", n, busy)
	}
}
