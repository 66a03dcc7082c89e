package hotcache

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
)

// filled is a Redis of 10,000 listings in 16 partitions, a tenth of which have bids.
func filled(b *testing.B, url string) *stack {
	b.Helper()
	cfg := testConfig(url, 16)
	n, closeNode := newNode(b, cfg.Partitions, 1)
	b.Cleanup(closeNode)
	s := &stack{node: n, w: newTestWriter(b, cfg, n), r: newPatientReader(b, cfg)}
	s.observe(s.w)
	var events []contracts.Event
	for id := uint64(1); id <= 10_000; id++ {
		e := listing(id)
		e.Lane, e.Token, e.Cap = contracts.Lane(id%4), address(byte(id%20)), word(1_000+id%997)
		if id%2 == 0 {
			e.Term *= 3
		}
		events = append(events, e)
		if id%10 == 0 {
			events = append(events, &contracts.BidPlaced{DealID: e.DealID, BidID: word(id), Price: word(1), TermsHash: e.TermsHash})
		}
	}
	s.land(block(2, 0), events...)
	s.settle(b)
	if err := s.w.flush(context.Background()); err != nil {
		b.Fatal(err)
	}
	return s
}

func onBothB(b *testing.B, bench func(b *testing.B, s *stack)) {
	b.Run("redis-server", func(b *testing.B) { bench(b, filled(b, startRedis(b).url())) })
	b.Run("miniredis", func(b *testing.B) {
		url, closer, err := Embedded()
		if err != nil {
			b.Fatal(err)
		}
		defer closer()
		bench(b, filled(b, url))
	})
}

func BenchmarkPage(b *testing.B) {
	onBothB(b, func(b *testing.B, s *stack) {
		lane, term, token := contracts.Lane(1), uint32(7*86_400), address(5)
		for name, q := range map[string]query.ListingsQuery{
			"newest":      {Limit: 50},
			"cost":        {Limit: 50, Sort: query.SortCost},
			"lane":        {Limit: 50, Lane: &lane},
			"asset, term": {Limit: 50, Asset: &token, Term: &term},
		} {
			b.Run(name, func(b *testing.B) {
				var took []time.Duration
				for b.Loop() {
					start := time.Now()
					got, err := s.r.Listings(context.Background(), q, s.lowest())
					took = append(took, time.Since(start))
					if err != nil || len(got.Value.Items) != 50 {
						b.Fatalf("%d items, %v", len(got.Value.Items), err)
					}
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			})
		}
	})
}

// BenchmarkCommit is a block that changes 8 listings in up to 8 of 16 partitions.
func BenchmarkCommit(b *testing.B) {
	onBothB(b, func(b *testing.B, s *stack) {
		next, number := uint64(20_001), uint64(2)
		for b.Loop() {
			b.StopTimer()
			var events []contracts.Event
			for range 4 {
				events = append(events, listing(next), &contracts.DealCancelled{DealID: word(next - 20_000)})
				next++
			}
			number++
			s.land(block(number, 0), events...)
			s.settle(b)
			b.StartTimer()
			if err := s.w.flush(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRebuild builds all of 10,000 listings anew.
func BenchmarkRebuild(b *testing.B) {
	s := filled(b, startRedis(b).url())
	ctx := context.Background()
	for b.Loop() {
		b.StopTimer()
		if err := s.w.client.FlushAll(ctx).Err(); err != nil {
			b.Fatal(err)
		}
		for id, w := range s.w.states {
			s.w.lost(id, w, "bench")
		}
		b.StartTimer()
		if err := s.w.flush(ctx); err != nil {
			b.Fatal(err)
		}
	}
	info, err := s.w.client.InfoMap(ctx, "memory").Result()
	if err != nil {
		b.Fatal(err)
	}
	b.Log("used_memory:", info["Memory"]["used_memory_human"])
}
