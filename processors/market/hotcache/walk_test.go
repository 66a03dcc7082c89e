package hotcache

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/query"
)

// TestWalkWhileListingsChange: whatever is listed, edited, funded or cancelled between pages, a listing that
// stayed as it was is returned exactly once, for every sort and filter.
func TestWalkWhileListingsChange(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		rapid.Check(t, func(rt *rapid.T) {
			ctx := context.Background()
			cfg := testConfig(url, 3)
			cfg.Prefix = fmt.Sprintf("walk%d", runs.Add(1))
			w, r := newTestWriter(t, cfg, nil), newPatientReader(t, cfg)
			n, closeNode := newNode(t, cfg.Partitions, 1)
			defer closeNode()
			defer func() { _, _ = w.client.Close(), r.client.Close() }()
			w.source = n
			l := newLedger()
			n.observe(w)
			number := uint64(1)
			// move lands a block of random events and writes it.
			move := func(events int) {
				number++
				at := block(number, 0)
				at.Timestamp = 1_000_000 // nothing expires by itself: what stays must be told from what goes
				var all []contracts.Event
				for range events {
					if e := l.event(rt, at); e != nil {
						all = append(all, e)
					}
				}
				l.end(at)
				n.land(at, all...)
				n.settle(t)
				if err := w.flush(ctx); err != nil {
					rt.Fatal(err)
				}
			}
			move(rapid.IntRange(5, 30).Draw(rt, "listings"))
			q := l.ask(rt)
			q.After = nil
			stayed := l.page(n.lowest().At, query.ListingsQuery{Sort: q.Sort, Lane: q.Lane, Term: q.Term, Asset: q.Asset, Limit: 1 << 20})
			seen := map[uint64]int{}
			for pages := 0; ; pages++ {
				got, err := r.Listings(ctx, q, n.lowest())
				if err != nil {
					rt.Fatalf("page %d: %v", pages, err)
				}
				for _, it := range got.Value.Items {
					seen[it.Deal.ID.Uint64()]++
				}
				if q.After = got.Value.Next; q.After == nil {
					break
				}
				move(rapid.IntRange(0, 4).Draw(rt, "changes"))
			}
			for _, before := range stayed.Items {
				id := before.Deal.ID.Uint64()
				now := l.deals[id].Deal
				if now.State != contracts.DealListedState || now.TermsHash != before.Deal.TermsHash {
					continue
				}
				if seen[id] != 1 {
					rt.Fatalf("%+v: listing %d stayed and was returned %d times", q, id, seen[id])
				}
			}
		})
	})
}

// TestNoTornPage: each block cancels one listing and lists another, mostly in another partition, so that at
// every block there are equally many. Readers ask while the partitions move one after the other.
func TestNoTornPage(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		const partitions, listings, enough, atMost = 4, 10, 50, 100_000
		cfg := testConfig(url, partitions)
		cfg.MaxLag, cfg.MaxFailures = time.Hour, 1<<30
		n, closeNode := newNode(t, partitions, 1)
		t.Cleanup(closeNode)
		s := &stack{node: n, w: newTestWriter(t, cfg, n), r: newPatientReader(t, cfg)}
		s.observe(s.w)
		s.run(t)
		var first []contracts.Event
		for id := uint64(1); id <= listings; id++ {
			first = append(first, listing(id))
		}
		s.land(block(2, 0), first...)
		s.settle(t)
		s.answers(t, block(2, 0), listings)

		var g errgroup.Group
		done := make(chan struct{})
		var hits atomic.Int64
		for range 3 {
			g.Go(func() error {
				for {
					select {
					case <-done:
						return nil
					default:
					}
					got, err := s.r.Listings(context.Background(), newest, s.lowest())
					if miss := Miss(""); errors.As(err, &miss) {
						continue
					}
					if err != nil {
						return err
					}
					if len(got.Value.Items) != listings {
						return fmt.Errorf("%d listings at block %d", len(got.Value.Items), got.At.Number)
					}
					if top, want := got.Value.Items[0].Deal.ID.Uint64(), got.At.Number-2+listings; top != want {
						return fmt.Errorf("block %d begins with listing %d, not %d", got.At.Number, top, want)
					}
					hits.Add(1)
				}
			})
		}
		top := uint64(2)
		for (hits.Load() < enough || missed(s.r, MissTorn) == 0) && top < atMost {
			top++
			b := top
			s.land(block(b, 0), &contracts.DealCancelled{DealID: word(b - 2)}, listing(b-2+listings))
			for p := range int32(partitions) {
				s.advance(t, p, 1)
			}
		}
		s.answers(t, block(top, 0), listings)
		close(done)
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if hits.Load() < enough || missed(s.r, MissTorn) == 0 {
			t.Errorf("%d hits and %v torn: the test does not reach what it is about", hits.Load(), missed(s.r, MissTorn))
		}
		t.Logf("%d blocks, %d hits, %v torn, %v foreign", top, hits.Load(), missed(s.r, MissTorn), missed(s.r, MissForeign))
	})
}

// TestSamePagesAsProcessors: the router over the same node, and CachedReader before it, give the pages of Redis.
func TestSamePagesAsProcessors(t *testing.T) {
	url := embedded(t)
	ctx := context.Background()
	cfg := testConfig(url, 3)
	n, closeNode := newNode(t, cfg.Partitions, 1)
	t.Cleanup(closeNode)
	s := &stack{node: n, w: newTestWriter(t, cfg, n), r: newPatientReader(t, cfg)}
	s.observe(s.w)
	var events []contracts.Event
	for id := uint64(1); id <= 60; id++ {
		e := listing(id)
		e.Lane, e.Cap = contracts.Lane(id%4), word(1000+id%7)
		events = append(events, e)
		if id%3 == 0 {
			events = append(events, &contracts.BidPlaced{
				DealID: e.DealID, BidID: word(id), Price: word(id), TermsHash: e.TermsHash, Expiry: 1,
			})
		}
	}
	s.land(block(2, 0), events...)
	s.settle(t)
	if err := s.w.flush(ctx); err != nil {
		t.Fatal(err)
	}
	routing := query.DefaultConfig()
	routing.Partitions, routing.Local = cfg.Partitions, n
	router, err := query.NewClient(routing, contracts.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	over := NewCachedReader(router, s.r)
	for sort := range deals.Sorts {
		for _, limit := range []int{1, 7, 30, 60, 200} {
			q := query.ListingsQuery{Sort: sort, Limit: limit}
			for {
				want, err := router.Listings(ctx, q)
				if err != nil {
					t.Fatal(err)
				}
				got, err := over.Listings(ctx, q)
				if err != nil {
					t.Fatal(err)
				}
				same(t, q, want, got)
				if q.After = want.Value.Next; q.After == nil {
					break
				}
			}
		}
	}
	if missed(s.r, MissTorn)+missed(s.r, MissCold)+missed(s.r, MissForeign)+missed(s.r, MissError) > 0 {
		t.Error("some pages were not from Redis")
	}
	if err := admin(t, url).FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := over.Listings(ctx, newest); err != nil || len(got.Value.Items) != 50 {
		t.Errorf("over an empty Redis: %d items, %v", len(got.Value.Items), err)
	}
}

func same(t *testing.T, q query.ListingsQuery, want, got query.Answer[query.Page[query.DealWithBids]]) {
	t.Helper()
	if got.At != want.At || string(got.Value.Next) != string(want.Value.Next) || len(got.Value.Items) != len(want.Value.Items) {
		t.Fatalf("%+v: at %d with %d items, want %d with %d", q, got.At.Number, len(got.Value.Items), want.At.Number, len(want.Value.Items))
	}
	for i := range want.Value.Items {
		a, b := want.Value.Items[i], got.Value.Items[i]
		if a.Deal != b.Deal || !cmp.Equal(a.Acceptable, b.Acceptable) {
			t.Fatalf("%+v: item %d is deal %s, want %s", q, i, b.Deal.ID.Dec(), a.Deal.ID.Dec())
		}
	}
}
