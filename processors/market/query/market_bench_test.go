package query_test

import (
	"fmt"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
)

// benchMarket is 20,000 deals, of which wallet 1 has 200, each fifth with a bid, and a market around them.
func benchMarket(b *testing.B) *marketNode {
	const perBlock = 500
	m := newMarketNode(b, deployment)
	m.mine(b, 1,
		initialize(b, stknPool, tkn, stkn, 0), initialize(b, tknPool, usdg, tkn, 0), initialize(b, thinPool, tkn, stock, 0),
		provide(stknPool, 1<<32, -6000, 6000, 1<<40), provide(tknPool, 1<<33, -6000, 6000, 1<<50), provide(thinPool, 1<<34, -6000, 6000, 1<<40),
		allow(tknPool), allow(thinPool), asset(stock, contracts.LaneStock, 18),
		&contracts.EpochOpened{N: 1, StartsAt: m.time})
	for first := uint64(1); first <= 20_000; first += perBlock {
		var events []contracts.Event
		for id := first; id < first+perBlock; id++ {
			e := listing(id)
			e.Borrower, e.ListedAt, e.Token = common.BytesToAddress([]byte{1, byte(id >> 8), byte(id)}), m.time, stock
			if id%100 == 0 {
				e.Borrower = address(1)
			}
			e.Cap = word(1_000 + id*7919%50_000)
			if id%100 == 1 { // a position
				e.Kind, e.Lane, e.Token, e.AmountOrTokenID = contracts.KindPosition, contracts.LanePosition, manager, word(id)
				events = append(events, hold(id, address(0x77)), provide(tknPool, id, -60, 60, id))
			}
			events = append(events, e)
			if id%5 == 0 {
				events = append(events, &contracts.BidPlaced{DealID: e.DealID, BidID: word(id), Lender: address(2), Price: word(7), TermsHash: e.TermsHash})
			}
			if id%3 == 0 {
				events = append(events, &contracts.DealFunded{DealID: e.DealID, Lender: address(3), Price: word(900 + id%99), Fee: word(4), FundedAt: m.time + id%5000})
			}
		}
		m.mine(b, 3600, events...)
	}
	return m
}

// BenchmarkPortfolio reads a wallet of 200 deals.
func BenchmarkPortfolio(b *testing.B) {
	m := benchMarket(b)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if a, err := m.router.Portfolio(b.Context(), address(1)); err != nil || len(a.Value.AsBorrower) != 200 {
				b.Error(len(a.Value.AsBorrower), err)
				return
			}
		}
	})
}

// BenchmarkStats reads them as of a block that nobody has asked for, and again.
func BenchmarkStats(b *testing.B) {
	m := benchMarket(b)
	for name, land := range map[string]bool{"new block": true, "same block": false} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if land {
					b.StopTimer()
					m.mine(b, 1)
					b.StartTimer()
				}
				if _, err := m.router.Stats(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPool(b *testing.B) {
	m := benchMarket(b)
	for name, land := range map[string]bool{"new block": true, "same block": false} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if land {
					b.StopTimer()
					m.mine(b, 1)
					b.StartTimer()
				}
				if _, err := m.router.Pool(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPositions reads a page of 50 of them.
func BenchmarkPositions(b *testing.B) {
	m := benchMarket(b)
	for b.Loop() {
		a, err := m.router.Positions(b.Context(), query.PositionsQuery{Owner: address(0x77), Limit: 50})
		if err != nil || len(a.Value.Items) != 50 {
			b.Fatal(len(a.Value.Items), err)
		}
	}
}

// BenchmarkListingOfManyBids lists 20 deals, one of which has a bid or 20,000 of them: the figure is by how much slower
// that is. There are as many bids in both, else on a deal that is not listed any more.
func BenchmarkListingOfManyBids(b *testing.B) {
	const listed, many = 20, 20_000
	took := map[int]float64{}
	for _, bids := range []int{1, many} {
		m := newMarketNode(b, deployment)
		next := uint64(0)
		place := func(deal uint64, n int) (events []contracts.Event) {
			for range n {
				next++
				events = append(events, &contracts.BidPlaced{
					DealID: word(deal), BidID: word(next), Lender: address(2), Price: word(1), Expiry: 1<<39 + next, TermsHash: listing(deal).TermsHash,
				})
			}
			return events
		}
		for id := uint64(1); id <= listed; id++ {
			m.mine(b, 1, append([]contracts.Event{listing(id)}, place(id, 1)...)...)
		}
		m.mine(b, 1, place(listed, bids-1)...)
		gone := append([]contracts.Event{listing(listed + 1)}, place(listed+1, many-bids)...)
		m.mine(b, 1, append(gone, &contracts.DealCancelled{DealID: word(listed + 1)})...)
		b.Run(fmt.Sprint(bids), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				a, err := m.router.Listings(b.Context(), query.ListingsQuery{Limit: listed})
				if err != nil || len(a.Value.Items) != listed || a.Value.Items[0].Acceptable.Count != uint64(bids) {
					b.Fatal(len(a.Value.Items), err)
				}
			}
			took[bids] = float64(b.Elapsed()) / float64(b.N)
			if one := took[1]; one > 0 && bids > 1 {
				b.ReportMetric(took[bids]/one, "times-one-bid")
			}
		})
	}
}
