package valuation

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	enginestate "github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/prices"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// TestNobodyTradesLast: on a chain of ten blocks a second, somebody moves a pool in one block of every second, or of every
// other one, and back in the next block, for the whole of a window. Wherever in the second that block is, and whether or not
// a valuation is asked for just then, nothing is worth more, and nothing is hidden from the deviation.
func TestNobodyTradesLast(t *testing.T) {
	const perSecond, window = 10, 1800
	for _, ticks := range []int32{2624, -2624, 150, -150} {
		for _, every := range []uint64{1, 2} {
			for _, in := range []uint64{0, 5, 9} {
				for _, during := range []bool{true, false} {
					t.Run(fmt.Sprintf("by %d ticks every %d seconds in block %d, asked then %t", ticks, every, in, during), func(t *testing.T) {
						s := newStage(t)
						began := s.at.Timestamp - window - 1
						var moves []tradedAt
						for second := began; second <= s.at.Timestamp; second++ {
							if first := (second-1)*perSecond + in; (second-1-began)%every == 0 && second > began {
								moves = append(moves, tradedAt{first, 0, ticks}, tradedAt{first + 1, 0, 0})
							}
						}
						if during {
							moves = moves[:len(moves)-1]
						}
						for i := range moves {
							moves[i].second = moves[i].block / perSecond
						}
						s.at.Timestamp = moves[len(moves)-1].second
						fair, most := s.valued(t, meme, nil)
						if during {
							s.move(t, s.direct, ticks)
						}
						s.direct.Seconds = observed(t, s.direct.ID, began-3600, moves, s.at.Timestamp)
						s.judge()
						value, suggested := s.valued(t, meme, nil)
						if value == nil {
							return // refused
						}
						if value.Cmp(fair) > 0 || suggested.Cmp(most) > 0 {
							t.Errorf("worth %s and %s suggested, without it %s and %s", value, suggested, fair, most)
						}
					})
				}
			}
		}
	}
}

// TestSlowBlocks: where each block has a second of its own, whoever holds a price for half of the time is believed, as ever.
func TestSlowBlocks(t *testing.T) {
	const apart, window = 12, 1800
	s := newStage(t)
	fair, _ := s.valued(t, meme, nil)
	var moves []tradedAt
	for i := range uint64(window/apart)/2 + 2 {
		moves = append(moves, tradedAt{i, s.at.Timestamp + i*apart, -100}) // the meme is dearer
	}
	s.at.Timestamp = moves[len(moves)-1].second
	s.direct.Seconds = observed(t, s.direct.ID, s.at.Timestamp-7200, moves, s.at.Timestamp)
	s.judge()
	if value, _ := s.valued(t, meme, nil); value == nil || value.Cmp(new(big.Int).Quo(new(big.Int).Mul(fair, big.NewInt(1009)), big.NewInt(1000))) < 0 {
		t.Errorf("worth %s, before its price rose by one per cent %s", value, fair)
	}
}

// tradedAt is the tick at which a block leaves a pool.
type tradedAt struct {
	block, second uint64
	tick          int32
}

// observed are a pool's prices as the pipeline has them: at tick 0 from a time on, and then as blocks leave it.
func observed(t *testing.T, pool common.Hash, from uint64, moves []tradedAt, now uint64) []query.PriceAt {
	t.Helper()
	store, err := enginestate.Open(enginestate.Options{Dir: "state", Tables: prices.Family.Tables, FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	o := store.NewOverlay()
	for i, m := range append([]tradedAt{{0, from, 0}}, moves...) {
		at := topics.BlockRef{Number: m.block + 1, Hash: common.BytesToHash(binary.BigEndian.AppendUint64(nil, uint64(i)+1)), Timestamp: m.second}
		o.Begin(at, false)
		if _, err := prices.Family.Apply(o, topics.EventMeta{}, &contracts.Swapped{PoolID: pool, Tick: m.tick}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := prices.Since(o, pool, now-1800, now)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
