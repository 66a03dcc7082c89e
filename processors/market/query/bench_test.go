package query_test

import (
	"strconv"
	"testing"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

const (
	benchPartitions = 16
	benchListings   = 10_000
)

// benchNode holds 10,000 listings over 16 partitions, every other one with a bid.
func benchNode(b *testing.B) *node {
	n := newNode(b, topics.RoleOwner, 1, span(benchPartitions)...)
	var events []contracts.Event
	for id := range uint64(benchListings) {
		e := listing(id + 1)
		e.Lane, e.Cap = contracts.Lane(id%4), word(900+id*7919%1_000)
		events = append(events, e)
		if id%2 == 0 {
			events = append(events, &contracts.BidPlaced{DealID: e.DealID, BidID: word(id + 1), Price: word(7), TermsHash: e.TermsHash})
		}
	}
	n.land(b, benchPartitions, block(1), events...)
	return n
}

func BenchmarkListings(b *testing.B) {
	n := benchNode(b)
	r := localRouter(b, n, benchPartitions)
	meme := contracts.LaneMeme
	for name, q := range map[string]query.ListingsQuery{
		"newest":      {Sort: query.SortNewest},
		"cost":        {Sort: query.SortCost},
		"cap of lane": {Sort: query.SortCap, Lane: &meme},
	} {
		q.Limit = 50
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				page, err := r.Listings(b.Context(), q)
				if err != nil || len(page.Value.Items) != q.Limit {
					b.Fatal(len(page.Value.Items), err)
				}
			}
		})
	}
	remote := remoteRouter(b, benchPartitions, map[string]*holder{"a": serve(b, n)})
	b.Run("newest over HTTP", func(b *testing.B) {
		for b.Loop() {
			if _, err := remote.Listings(b.Context(), query.ListingsQuery{Limit: 50}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDeal(b *testing.B) {
	r := localRouter(b, benchNode(b), benchPartitions)
	for _, bids := range []uint64{0, 1} {
		b.Run(strconv.FormatUint(bids, 10)+" bids", func(b *testing.B) {
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				if _, err := r.DealWithReward(b.Context(), uint256.NewInt(i*2%benchListings+2-bids)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
