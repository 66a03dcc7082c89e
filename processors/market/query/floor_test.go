package query_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/polltest"
)

// Where a partition stands still all others are read at its last block, however far they are: a newer answer of one of
// them would keep those that span it from being given. A read that names a newer block gets it, alone.
func TestAPartitionThatStandsStillTakesNoReadAway(t *testing.T) {
	for _, where := range []string{"local", "remote"} {
		t.Run(where, func(t *testing.T) {
			n := newNode(t, topics.RoleOwner, 1, span(partitions)...)
			n.land(t, partitions, block(1), listing(1))
			var r *query.Client
			if where == "remote" {
				r = remoteRouter(t, partitions, map[string]*holder{"a": serve(t, n)})
			} else {
				routing := query.DefaultConfig()
				routing.Partitions, routing.Local, routing.Patience = partitions, n, 20*time.Millisecond
				r = runRouter(t, routing)
			}
			readAt := func(want topics.BlockRef) {
				t.Helper()
				d, err := r.DealWithReward(t.Context(), uint256.NewInt(1))
				if err != nil || d.At != want || !r.Current(d.At, d.From) {
					t.Errorf("the deal is as of %v, %v, want block %d", d.At, err, want.Number)
				}
				page, err := r.Listings(t.Context(), query.ListingsQuery{Limit: 1})
				if err != nil || page.At != want || !r.Current(page.At, nil) {
					t.Errorf("listings are as of %v, %v, want block %d", page.At, err, want.Number)
				}
				head, err := r.Head(t.Context())
				if err != nil || head.Indexed != want {
					t.Errorf("indexed is %v, %v, want block %d", head.Indexed, err, want.Number)
				}
			}
			polltest.Until(t, "all partitions are at the block", func() bool {
				n.mu.Lock()
				defer n.mu.Unlock()
				return n.stands.Number == 1 // so that what is read is known to be kept
			})
			still := (owned + 1) % partitions
			const ahead = 3 * keptViews
			for number := uint64(2); number <= ahead; number++ {
				n.advance(t, owned, block(number)) // the partition of deal 1
				if number%50 == 0 {
					readAt(block(1))
				}
			}
			for p := range n.parts {
				if p != owned && p != still {
					n.advance(t, p, block(ahead))
				}
			}
			readAt(block(1))

			named := read.WithMinBlock(t.Context(), ahead)
			if d, err := r.DealWithReward(named, uint256.NewInt(1)); err != nil || d.At != block(ahead) {
				t.Errorf("with block %d as the least the deal is as of %v, %v", ahead, d.At, err)
			}
			if page, err := r.Listings(named, query.ListingsQuery{Limit: 1}); !errors.Is(err, query.ErrStale) {
				t.Errorf("with block %d as the least listings are as of %v, %v", ahead, page.At, err)
			}
			readAt(block(1))

			n.advance(t, still, block(ahead-1)) // which the others have left out
			readAt(block(1))
			n.advance(t, still, block(ahead))
			polltest.Until(t, "all partitions are at the block", func() bool { w, err := r.Lowest(); return err == nil && w.At == block(ahead) })
			readAt(block(ahead))
		})
	}
}

// Where no node has a view of the block that all were read at any more, each read is as of what its own partitions
// share; and it does not go back once they have a block in common again.
func TestReadsGoOnWithoutABlockInCommon(t *testing.T) {
	n := newNode(t, topics.RoleOwner, 1, span(partitions)...)
	n.land(t, partitions, block(1), listing(1))
	r := localRouter(t, struct{ read.Source }{n}, partitions) // which keeps nothing for readers
	if page, err := r.Listings(t.Context(), query.ListingsQuery{Limit: 1}); err != nil || page.At != block(1) {
		t.Fatalf("listings are as of %v, %v", page.At, err)
	}
	const ahead = 2 * keptViews
	for number := uint64(2); number <= ahead; number++ {
		n.advance(t, owned, block(number))
	}
	if d, err := r.DealWithReward(t.Context(), uint256.NewInt(1)); err != nil || d.At != block(ahead) || !r.Current(d.At, d.From) {
		t.Errorf("the deal is as of %v, %v, want block %d", d.At, err, ahead)
	}
	if page, err := r.Listings(t.Context(), query.ListingsQuery{Limit: 1}); !errors.Is(err, query.ErrUnavailable) {
		t.Errorf("listings are as of %v, %v", page.At, err)
	}
	for _, p := range span(partitions) {
		if p != owned {
			n.advance(t, p, block(ahead-1)) // kept by all, and before what was shown
			n.advance(t, p, block(ahead))
		}
	}
	if page, err := r.Listings(t.Context(), query.ListingsQuery{Limit: 1}); err != nil || page.At != block(ahead) {
		t.Errorf("listings are as of %v, %v, want block %d", page.At, err, ahead)
	}
}

// A read that names the least block waits for it, and fails if it does not come.
func TestReadsWaitForTheirBlock(t *testing.T) {
	for _, where := range []string{"local", "remote"} {
		t.Run(where, func(t *testing.T) {
			n := newNode(t, topics.RoleOwner, 1, span(partitions)...)
			n.land(t, partitions, block(1), listing(1))
			r := localRouter(t, n, partitions)
			if where == "remote" {
				r = remoteRouter(t, partitions, map[string]*holder{"a": serve(t, n)})
			}
			for name, ask := range map[string]func(ctx context.Context) (topics.BlockRef, error){
				"one partition": func(ctx context.Context) (topics.BlockRef, error) {
					a, err := r.DealWithReward(ctx, uint256.NewInt(1))
					return a.At, err
				},
				"all of them": func(ctx context.Context) (topics.BlockRef, error) {
					a, err := r.Listings(ctx, query.ListingsQuery{Limit: 1})
					return a.At, err
				},
			} {
				at, err := ask(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if again, err := ask(read.WithMinBlock(t.Context(), at.Number)); err != nil || again != at {
					t.Errorf("%s: a block that is there: %v, %v", name, again, err)
				}
				next := block(at.Number + 1)
				type answer struct {
					at  topics.BlockRef
					err error
				}
				done := make(chan answer, 1)
				go func() {
					at, err := ask(read.WithMinBlock(context.Background(), next.Number))
					done <- answer{at, err}
				}()
				n.land(t, partitions, next)
				if got := <-done; got.err != nil || got.at.Number < next.Number {
					t.Errorf("%s: block %d came, and the answer is as of %d, %v", name, next.Number, got.at.Number, got.err)
				}
				began := time.Now()
				_, err = ask(read.WithMinBlock(t.Context(), next.Number+1))
				if took := time.Since(began); !errors.Is(err, query.ErrStale) || errors.Is(err, query.ErrUnavailable) || took < 900*time.Millisecond || took > 10*time.Second {
					t.Errorf("%s: a block that does not come: %v after %s", name, err, took)
				}
			}
		})
	}
}
