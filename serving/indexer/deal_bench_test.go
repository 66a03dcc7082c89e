package indexer

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// BenchmarkDealsNotKept asks for one deal after the other, none of which is kept, a fifth with bids.
func BenchmarkDealsNotKept(b *testing.B) {
	const deals = 20_000
	m := newMarket(b)
	for id := uint64(1); id <= deals; {
		var events []any
		for last := id + 500; id < last; id++ {
			events = append(events, listed(id))
			if id%5 == 0 {
				events = append(events, bid(id, id, 1000, 1<<39, terms1))
			}
			if id%2 == 0 {
				events = append(events, funded(id))
			}
		}
		m.block(start+id, events...)
	}
	cfg := testConfig()
	cfg.HTTP.MaxCacheBytes = 1 << 20
	x, err := New(cfg, m.router(), zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	requests := make([]*http.Request, 50_000)
	for i := range requests {
		requests[i] = httptest.NewRequestWithContext(b.Context(), http.MethodGet, fmt.Sprintf("/deals/%d", 1+r.Uint64N(deals)), http.NoBody)
		requests[i].RemoteAddr = "127.0.0.1:1" // is not limited
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w := &sink{header: make(http.Header, 16)}
		if x.ServeHTTP(w, requests[i%len(requests)]); w.n < 500 {
			b.Fatal(w.n)
		}
	}
}
