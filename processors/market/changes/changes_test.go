package changes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/processors/market/rules"
	"github.com/lienstream/lienstream/topics"
)

// fakeView is where a partition is; the log reads nothing else of a view.
type fakeView struct {
	state.View
	at topics.BlockRef
}

func (v fakeView) At() topics.BlockRef { return v.at }

func block(n uint64, fork byte) topics.BlockRef {
	return topics.BlockRef{Number: n, Hash: common.Hash{31: byte(n), 30: byte(n >> 8), 0: fork}, Timestamp: 1000 + n}
}

func changed(ids ...uint64) (all []engine.Change) {
	for _, id := range ids {
		all = append(all, engine.Change{Table: deals.Deals, Key: deals.Key(uint256.NewInt(id)), Row: []byte{1}})
	}
	return all
}

func idsSince(t testing.TB, l *Log, since *query.Moment, upTo topics.BlockRef) (string, error) {
	t.Helper()
	c, err := l.ChangedSince(0, since, upTo)
	ids := map[uint64]bool{}
	for _, k := range c.Keys {
		ids[deals.ID(k[:]).Uint64()] = true
	}
	return fmt.Sprint(slices.Sorted(maps.Keys(ids))), err
}

func TestChangesSince(t *testing.T) {
	l := New()
	p := engine.Partition{}
	land := func(at topics.BlockRef, reverts uint64, ids ...uint64) {
		p.Reverts = reverts
		l.Applied(p, fakeView{at: at}, changed(ids...))
	}
	l.Opened(p, fakeView{at: block(10, 0)})
	land(block(11, 0), 0, 1, 2)
	land(block(12, 0), 0)
	land(block(13, 0), 0, 3)
	// Block 13 is reverted, with what it did to deal 3; then 13' touches deal 4.
	land(block(12, 0), 1, 3)
	land(block(13, 1), 1, 4)

	at := func(n uint64, fork byte, reverts uint64) *query.Moment {
		return &query.Moment{Block: block(n, fork), Reverts: reverts}
	}
	for _, c := range []struct {
		name  string
		since *query.Moment
		upTo  topics.BlockRef
		want  string
		err   error
	}{
		{"from the start", at(10, 0, 0), block(13, 1), "[1 2 3 4]", nil},
		{"one block", at(10, 0, 0), block(11, 0), "[1 2]", nil},
		{"an empty block", at(11, 0, 0), block(12, 0), "[3]", nil}, // the later block 12: with the revert
		{"from an orphan", at(13, 0, 0), block(13, 1), "[3 4]", nil},
		{"up to an orphan", at(12, 0, 0), block(13, 0), "[3]", nil},
		{"after the revert", at(12, 0, 1), block(13, 1), "[4]", nil},
		{"nothing", at(13, 1, 1), block(13, 1), "[]", nil},
		{"only where it is", nil, block(13, 1), "[]", nil},
		{"too old", at(9, 0, 0), block(13, 1), "[]", query.ErrMomentUnknown},
		{"another chain", at(11, 7, 0), block(13, 1), "[]", query.ErrMomentUnknown},
		{"ahead", at(14, 1, 1), block(13, 1), "[]", query.ErrUnavailable},
		{"block not known", at(10, 0, 0), block(13, 7), "[]", query.ErrUnavailable},
	} {
		if got, err := idsSince(t, l, c.since, c.upTo); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %s %v, want %s %v", c.name, got, err, c.want, c.err)
		}
	}
	if _, err := l.ChangedSince(1, nil, block(13, 1)); !errors.Is(err, query.ErrUnavailable) {
		t.Errorf("a partition that is not here: %v", err)
	}
}

func TestOwnerReturns(t *testing.T) {
	open := func(at topics.BlockRef, reverts uint64, want string) error {
		l := New()
		l.Opened(engine.Partition{}, fakeView{at: block(1, 0)})
		l.Applied(engine.Partition{}, fakeView{at: block(2, 0)}, changed(1))
		l.Applied(engine.Partition{}, fakeView{at: block(3, 0)}, nil)
		l.Closed(engine.Partition{})
		l.Opened(engine.Partition{Incarnation: 7, Reverts: reverts}, fakeView{at: at})
		l.Applied(engine.Partition{Incarnation: 7, Reverts: reverts}, fakeView{at: block(9, 0)}, changed(2))
		ids, err := idsSince(t, l, &query.Moment{Block: block(1, 0)}, block(9, 0))
		if err == nil && ids != want {
			t.Errorf("opened at %d: %s", at.Number, ids)
		}
		return err
	}
	if err := open(block(3, 0), 0, "[1 2]"); err != nil {
		t.Errorf("where it was: %v", err)
	}
	if err := open(block(2, 0), 0, "[1 2]"); err != nil {
		t.Errorf("before a block that touched nothing: %v", err)
	}
	if err := open(block(1, 0), 0, "[2]"); err != nil { // what it did after it does again
		t.Errorf("before a change: %v", err)
	}
	for name, err := range map[string]error{
		"ahead": open(block(4, 0), 0, ""), "on a fork": open(block(3, 1), 0, ""), "reverted": open(block(3, 0), 1, ""),
	} {
		if !errors.Is(err, query.ErrMomentUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLogIsBounded(t *testing.T) {
	l := New()
	l.Opened(engine.Partition{}, fakeView{at: block(0, 0)})
	var n uint64
	for range 3 * maxEntries {
		n++
		l.Applied(engine.Partition{}, fakeView{at: block(n, 0)}, changed(n, n+1, n+2, n+3, n+4))
	}
	own := l.partitions[0]
	count := 0
	for _, e := range own.entries[1:] {
		count += len(e.keys)
	}
	if len(own.entries) > maxEntries || own.keys > maxKeys || own.keys != count || cap(own.entries) > 4*maxEntries {
		t.Errorf("%d entries of %d, %d keys, counted %d", len(own.entries), cap(own.entries), own.keys, count)
	}
	if _, err := idsSince(t, l, &query.Moment{Block: own.entries[0].at.Block}, block(n, 0)); err != nil {
		t.Errorf("the oldest moment that is remembered: %v", err)
	}
	l.Applied(engine.Partition{}, fakeView{at: block(n+1, 0)}, changed(slices.Repeat([]uint64{1}, maxKeys+1)...))
	if len(own.entries) != 1 || own.keys != 0 {
		t.Errorf("after a commit beyond all bounds: %d entries, %d keys", len(own.entries), own.keys)
	}
}

// node is a partition on the real state, as the engine drives it.
type node struct {
	*Log
	read.Broadcast
	store *state.Store
	snaps []*state.Snapshot
	ats   []query.Moment
}

func (n *node) View(_ context.Context, _ int32, at *topics.BlockRef) (state.View, error) {
	for i, moment := range slices.Backward(n.ats) {
		if at == nil || moment.Block.Hash == at.Hash {
			return n.snaps[i].View(moment.Block), nil
		}
	}
	return nil, query.ErrUnavailable
}

func (n *node) Watermarks() []query.Watermark {
	last := n.ats[len(n.ats)-1]
	return []query.Watermark{{Role: topics.RoleOwner, At: last.Block, Reverts: last.Reverts, Incarnation: 1}}
}

// land commits an overlay; nil: a block that touched nothing.
func (n *node) land(t *rapid.T, o *state.Overlay, at query.Moment) {
	var all []engine.Change
	if o != nil {
		if err := o.Settle(0, 0, func(state.Event) {}); err != nil {
			t.Fatal(err)
		}
		err := o.Rows(func(r state.Row) error {
			if !r.Same {
				all = append(all, engine.Change{Table: r.Table, Key: slices.Clone(r.Key), Row: r.Value})
			}
			return nil
		})
		if err == nil {
			err = n.store.Commit(o, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	n.snaps, n.ats = append(n.snaps, n.store.Snapshot()), append(n.ats, at)
	n.Notify()
	view, err := n.View(context.Background(), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	n.Applied(engine.Partition{Reverts: at.Reverts}, view, all)
}

// TestWhoFollowsHasWhatIsThere: whoever takes over the changes since any moment has what a reader of all
// deals has, whatever was listed, bid, cancelled or reverted, and has dropped every listing that ended.
func TestWhoFollowsHasWhatIsThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cache := state.NewCache(state.DefaultMemory(), 1)
		defer cache.Close()
		family := deals.Family(func(state.Writer, *topics.Deal, *topics.Deal) error { return nil })
		store, err := state.Open(state.Options{Dir: "db", FS: vfs.NewMem(), Cache: cache, Tables: family.Tables})
		if err != nil {
			t.Fatal(err)
		}
		n := &node{Log: New(), store: store}
		defer func() {
			for _, s := range n.snaps {
				s.Release()
			}
			_ = store.Close()
		}()
		n.snaps, n.ats = append(n.snaps, store.Snapshot()), append(n.ats, query.Moment{Block: block(1, 0)})
		n.Opened(engine.Partition{}, fakeView{at: block(1, 0)})
		routing := query.DefaultConfig()
		routing.Partitions, routing.Local, routing.Registerer = 1, n, prometheus.NewRegistry()
		router, err := query.NewClient(routing, contracts.Deployment{})
		if err != nil {
			t.Fatal(err)
		}
		type follower struct {
			at   query.Moment
			rows map[string]string
		}
		followers := []follower{{at: n.ats[0], rows: map[string]string{}}}
		chain := []topics.BlockRef{block(1, 0)}
		fork, reverts, bid := byte(0), uint64(0), uint64(0)
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			o := store.NewOverlay()
			if len(chain) > 1 && rapid.IntRange(0, 3).Draw(t, "reorg") == 0 {
				for range rapid.IntRange(1, len(chain)-1).Draw(t, "depth") {
					if err := o.Revert(chain[len(chain)-1], false); err != nil {
						t.Fatal(err)
					}
					chain = chain[:len(chain)-1]
					reverts++
				}
				fork++
			}
			at := block(chain[len(chain)-1].Number+1, fork)
			chain = append(chain, at)
			o.Begin(at, true)
			for range rapid.IntRange(0, 3).Draw(t, "events") {
				id := *uint256.NewInt(rapid.Uint64Range(1, 8).Draw(t, "deal"))
				bid++
				e := []contracts.Event{
					&contracts.DealListed{DealID: id, Cap: *uint256.NewInt(2), MinPrice: *uint256.NewInt(1), ListingExpiry: at.Timestamp + bid%3},
					&contracts.BidPlaced{DealID: id, BidID: *uint256.NewInt(bid), Price: *uint256.NewInt(1)},
					&contracts.DealCancelled{DealID: id},
				}[rapid.IntRange(0, 2).Draw(t, "event")]
				if _, err := family.Apply(o, topics.EventMeta{}, e); err != nil {
					t.Fatal(err)
				}
			}
			n.land(t, o, query.Moment{Block: at, Reverts: reverts})

			all, err := router.Deals(t.Context(), query.DealsQuery{Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			for _, d := range all.Value.Items {
				want[d.Deal.ID.Dec()] = text(&d, at.Timestamp)
			}
			for i := range followers {
				f := &followers[i]
				c, err := router.Changes(t.Context(), &f.at)
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range c.Deals {
					delete(f.rows, d.ID.Dec())
					if d.Deal != nil {
						f.rows[d.ID.Dec()] = text(d.Deal, at.Timestamp)
					}
				}
				if f.at = c.At; !maps.Equal(f.rows, want) {
					t.Fatalf("follower %d at block %d has\n%v, there is\n%v", i, at.Number, f.rows, want)
				}
				if rapid.Bool().Draw(t, "fork") && len(followers) < 4 {
					followers = append(followers, follower{f.at, maps.Clone(f.rows)})
				}
			}
		}
	})
}

func text(d *query.DealWithBids, now uint64) string {
	listed := d.Deal.State == contracts.DealListedState && !rules.ListingExpired(d.Deal.ListingExpiry, now)
	return fmt.Sprint(d.Deal.State, d.Deal.ListingExpiry, d.Deal.OpenBids, listed)
}
