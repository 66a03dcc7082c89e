package query_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// An answer that comes to span one more partition is as of that partition's block: where that is before what
// was shown, there is none until it has caught up.
func TestASpanningReadDoesNotGoBack(t *testing.T) {
	n := newNode(t, topics.RoleOwner, 1, span(partitions)...)
	n.land(t, partitions, block(1), listing(1))
	r, err := query.NewRouter(query.Config{Partitions: partitions, Local: n, Patience: 20 * time.Millisecond}, contracts.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	n.advance(t, owned, block(2)) // the partition of deal 1 is ahead of the others
	if page, err := r.Listings(t.Context(), query.ListingsQuery{Limit: 1}); err != nil || page.At != block(1) {
		t.Fatalf("before: as of %v, %v", page.At, err)
	}
	if d, err := r.Deal(t.Context(), uint256.NewInt(1)); err != nil || d.At != block(2) {
		t.Fatalf("the deal is as of %v, %v", d.At, err)
	}
	if page, err := r.Listings(t.Context(), query.ListingsQuery{Limit: 1}); !errors.Is(err, query.ErrUnavailable) {
		t.Errorf("after an answer as of block 2 one as of %v, %v", page.At, err)
	}
	for _, p := range span(partitions) {
		if p != owned {
			n.advance(t, p, block(2))
		}
	}
	if page, err := r.Listings(t.Context(), query.ListingsQuery{Limit: 1}); err != nil || page.At != block(2) {
		t.Errorf("once they have caught up: as of %v, %v", page.At, err)
	}
}

// Who names the least block waits for it, and is told where it does not come.
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
					a, err := r.Deal(ctx, uint256.NewInt(1))
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
