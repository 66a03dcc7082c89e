package query_test

import (
	"errors"
	"testing"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// All bids of a deal, in whatever state and on whatever terms, come page by page, each once, and those of no
// other deal.
func TestBidsOfADealComeInPages(t *testing.T) {
	n := newNode(t, topics.RoleOwner, 1, span(partitions)...)
	place := func(deal, bid uint64) contracts.Event {
		return &contracts.BidPlaced{DealID: word(deal), BidID: word(bid), Lender: address(9), Price: word(bid), TermsHash: [32]byte{byte(bid % 2)}}
	}
	events := []contracts.Event{listing(1), listing(2), listing(3), place(2, 1000), place(3, 1001)}
	const bids = 25
	for id := uint64(1); id <= bids; id++ {
		events = append(events, place(1, id*1_000_003))
	}
	events = append(events, &contracts.BidWithdrawn{DealID: word(1), BidID: word(3 * 1_000_003)})
	n.land(t, partitions, block(1), events...)
	for name, r := range map[string]query.Reader{
		"local": localRouter(t, n, partitions), "remote": remoteRouter(t, partitions, map[string]*holder{"a": serve(t, n)}),
	} {
		for _, limit := range []int{1, 7, bids, query.MaxLimit} {
			next := uint64(1)
			for q := (query.DealListQuery{Deal: word(1), Limit: limit}); ; {
				page, err := r.Bids(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				for _, b := range page.Value.Items {
					if b.ID != word(next*1_000_003) || b.DealID != word(1) {
						t.Fatalf("%s, %d a page: bid %s of deal %s, want the %d.", name, limit, b.ID.Dec(), b.DealID.Dec(), next)
					}
					next++
				}
				if q.After = page.Value.Next; q.After == nil {
					break
				}
			}
			if next != bids+1 {
				t.Errorf("%s, %d a page: %d bids", name, limit, next-1)
			}
		}
		if a, err := r.Bids(t.Context(), query.DealListQuery{Deal: word(4), Limit: 1}); !errors.Is(err, query.ErrNotFound) || a.At != block(1) {
			t.Errorf("%s: no such deal: %v as of %v", name, err, a.At)
		}
		for _, limit := range []int{-1, 0, query.MaxLimit + 1} {
			if _, err := r.Bids(t.Context(), query.DealListQuery{Deal: word(1), Limit: limit}); err == nil || errors.Is(err, query.ErrUnavailable) {
				t.Errorf("%s: limit %d: %v", name, limit, err)
			}
		}
	}
}

// A deal with more bids than an answer holds has the newest, says that there are more, and counts all.
func TestDealWithManyBidsHasTheNewest(t *testing.T) {
	const bids = query.MaxBids + 50
	n := newNode(t, topics.RoleOwner, 1, span(partitions)...)
	events := []contracts.Event{listing(1), listing(2)}
	for id := uint64(1); id <= bids; id++ {
		events = append(events, &contracts.BidPlaced{DealID: word(1), BidID: word(id), Lender: address(9), Price: word(1), Expiry: 1 << 39, TermsHash: listing(1).TermsHash})
	}
	n.land(t, partitions, block(1), events...)
	r := remoteRouter(t, partitions, map[string]*holder{"a": serve(t, n)})
	for id, want := range map[uint64]int{1: bids, 2: 0} {
		deal := word(id)
		a, err := r.DealWithReward(t.Context(), &deal)
		if err != nil {
			t.Fatal(err)
		}
		d := &a.Value
		if d.Acceptable.Count != uint64(want) || d.Truncated != (want > query.MaxBids) || len(d.Bids) != min(want, query.MaxBids) {
			t.Fatalf("deal %d: %d bids of %d, truncated %t", id, len(d.Bids), d.Acceptable.Count, d.Truncated)
		}
		for i, b := range d.Bids {
			if b.ID != word(uint64(bids-query.MaxBids+1+i)) {
				t.Fatalf("bid %d is the %s.", i, b.ID.Dec())
			}
		}
	}
}
