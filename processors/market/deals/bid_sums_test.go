package deals

import (
	"bytes"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/rules"
	"github.com/lienstream/lienstream/topics"
)

// world is a store of one deal, with its bids as a plain list.
type world struct {
	store *state.Store
	block uint64
	bids  []topics.Bid
}

func newStore(t interface{ Fatal(args ...any) }, end func(func())) *state.Store {
	store, err := state.Open(state.Options{Dir: "db", FS: vfs.NewMem(), Tables: dealsFamily.Tables})
	if err != nil {
		t.Fatal(err)
	}
	end(func() {
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	})
	return store
}

var dealsFamily = Family(func(state.Writer, *topics.Deal, *topics.Deal) error { return nil })

var dealTerms = []common.Hash{{1}, {2}}

// apply applies events as a block, and takes them back where that is asked for.
func (w *world) apply(t *rapid.T, events []contracts.Event, revert bool) {
	w.block++
	at := topics.BlockRef{Number: w.block, Hash: common.Hash{byte(w.block), byte(w.block >> 8)}}
	o := w.store.NewOverlay()
	o.Begin(at, true)
	for _, e := range events {
		if violation, err := dealsFamily.Apply(o, topics.EventMeta{}, e); err != nil || violation != "" {
			t.Fatal(violation, err)
		}
	}
	if revert {
		if err := o.Revert(at, false); err != nil {
			t.Fatal(err)
		}
		w.block--
	}
	if err := w.store.Commit(o, []byte("meta")); err != nil {
		t.Fatal(err)
	}
}

// Whatever bids come and go, on whatever terms, with blocks that are taken back: the sums are those of a plain list, at
// any time, and hold for as long as they say.
func TestBidSumsAreThoseOfAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{store: newStore(t, t.Cleanup)}
		w.apply(t, []contracts.Event{&contracts.DealListed{DealID: *uint256.NewInt(1), TermsHash: dealTerms[0]}}, false)
		var next uint64
		for range rapid.IntRange(1, 12).Draw(t, "blocks") {
			revert := rapid.IntRange(0, 4).Draw(t, "revert") == 0
			before := slices.Clone(w.bids)
			var events []contracts.Event
			if adding := rapid.Bool().Draw(t, "adding"); adding || len(w.bids) == 0 {
				same := rapid.Bool().Draw(t, "same expiry")
				for range rapid.IntRange(1, 150).Draw(t, "bids") {
					next++
					b := topics.Bid{
						ID: *uint256.NewInt(next), DealID: *uint256.NewInt(1), Price: *uint256.NewInt(rapid.Uint64Range(1, 4).Draw(t, "price")),
						Expiry: 20, TermsHash: dealTerms[rapid.IntRange(0, 1).Draw(t, "terms")],
					}
					if !same {
						b.Expiry = rapid.Uint64Range(0, 40).Draw(t, "expiry")
					}
					w.bids = append(w.bids, b)
					events = append(events, &contracts.BidPlaced{DealID: b.DealID, BidID: b.ID, Price: b.Price, Expiry: b.Expiry, TermsHash: b.TermsHash})
				}
			} else {
				for range rapid.IntRange(1, len(w.bids)).Draw(t, "gone") {
					i := rapid.IntRange(0, len(w.bids)-1).Draw(t, "bid")
					events = append(events, &contracts.BidWithdrawn{DealID: w.bids[i].DealID, BidID: w.bids[i].ID})
					w.bids = slices.Delete(w.bids, i, i+1)
				}
			}
			w.apply(t, events, revert)
			if revert {
				w.bids = before
			}
			w.compare(t)
		}
	})
}

func (w *world) compare(t *rapid.T) {
	snap := w.store.Snapshot()
	defer snap.Release()
	v := snap.View(topics.BlockRef{})
	defer v.Close()
	key := Key(uint256.NewInt(1))
	for _, terms := range dealTerms {
		deal := &topics.Deal{TermsHash: terms}
		var open []uint256.Int
		for _, b := range w.bids {
			if b.TermsHash == terms {
				open = append(open, b.ID)
			}
		}
		ids, err := OpenBids(v, key, terms)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(ids, func(a, b uint256.Int) int { return a.Cmp(&b) })
		if !slices.Equal(ids, open) {
			t.Fatalf("open %v, want %v", ids, open)
		}
		for now := range uint64(45) {
			s, err := SumBids(v, key, terms, now)
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range []uint64{now, s.From, min(s.Until-1, 50)} {
				best, count := rules.BestBid(deal, w.bids, at)
				if s.Count != uint64(count) || (best == nil) != (s.Best == nil) || best != nil && best.ID != *s.Best {
					t.Fatalf("at %d by the sum of %d: %+v, want %d and %+v", at, now, s, count, best)
				}
			}
			if s.Open != uint64(len(open)) || s.From > now || s.Until <= now {
				t.Fatalf("at %d: %+v of %d bids", now, s, len(open))
			}
		}
	}
	if len(w.bids) == 0 {
		if err := v.Scan(bidSums, nil, nil, func(key, _ []byte) bool {
			t.Fatalf("node %x is left of no bids", key)
			return false
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// counted counts the rows that are read.
type counted struct {
	state.View
	rows, bytes int
}

func (c *counted) Get(t *state.Table, key []byte) ([]byte, error) {
	row, err := c.View.Get(t, key)
	c.rows++
	c.bytes += len(row)
	return row, err
}

// A deal with 20,000 bids costs a list a few small rows, at whatever time, and so does another bid on it.
func TestManyBidsCostFewRows(t *testing.T) {
	const bids, fewRows, fewBytes = 20_000, 4, 8 << 10
	store := newStore(t, t.Cleanup)
	o := store.NewOverlay()
	o.Begin(topics.BlockRef{Number: 1}, false)
	place := func(n uint64) {
		b := topics.Bid{ID: *uint256.NewInt(n), DealID: *uint256.NewInt(1), Price: *uint256.NewInt(1), Expiry: 1_000_000 + n*7919%bids}
		if err := addBid(o, Key(&b.DealID), &b, n == 0); err != nil {
			t.Fatal(err)
		}
	}
	for n := range uint64(bids) {
		place(n)
	}
	if err := store.Commit(o, []byte("meta")); err != nil {
		t.Fatal(err)
	}
	snap := store.Snapshot()
	defer snap.Release()
	c := &counted{View: snap.View(topics.BlockRef{})}
	defer c.Close()
	for _, now := range []uint64{0, 1_000_000, 1_000_000 + bids/3, 1_000_000 + bids - 1, 2_000_000} {
		c.rows, c.bytes = 0, 0
		s, err := SumBids(c, Key(uint256.NewInt(1)), common.Hash{}, now)
		if err != nil {
			t.Fatal(err)
		}
		if want := bids - max(min(int(now)-1_000_000+1, bids), 0); s.Count != uint64(want) || s.Open != bids {
			t.Errorf("at %d: %d of %d bids, want %d", now, s.Count, s.Open, want)
		}
		if c.rows > fewRows || c.bytes > fewBytes {
			t.Errorf("at %d: %d rows of %d bytes were read", now, c.rows, c.bytes)
		}
	}
	o = store.NewOverlay()
	o.Begin(topics.BlockRef{Number: 2}, true)
	if place(bids); o.Bytes() > 4*fewBytes {
		t.Errorf("another bid takes %d bytes in memory", o.Bytes())
	}
}

func FuzzDecodeBidNode(f *testing.F) {
	leaf := &bidNode{entries: []bidEntry{{key: bidKey{7, *uint256.NewInt(9)}, price: *uint256.NewInt(300), best: *uint256.NewInt(9), count: 1}}}
	inner := &bidNode{inner: true, entries: []bidEntry{leaf.sum(3, bidKey{7, *uint256.NewInt(9)})}}
	f.Add(leaf.append(nil, 1))
	f.Add(inner.append(nil, 4))
	f.Add([]byte{kindLeaf})
	f.Fuzz(func(t *testing.T, row []byte) {
		n, next, err := decodeBidNode(row)
		if err != nil {
			return
		}
		again := n.append(nil, next)
		m, _, err := decodeBidNode(again)
		if err != nil || !bytes.Equal(again, m.append(nil, next)) {
			t.Fatalf("%x comes back as %x: %v", row, again, err)
		}
	})
}
