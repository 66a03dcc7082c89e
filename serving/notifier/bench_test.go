package notifier_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
)

// BenchmarkPost: signed subscriptions on Apache Kafka, by 16 clients at a time, from the request until it is applied and
// answered; an operation is one of them. The goal is a p99 of 50 ms.
func BenchmarkPost(b *testing.B) {
	h := newHouse(b, "apache")
	const clients, perWallet = 16, 100
	bodies := make([]string, 0, b.N)
	for len(bodies) < b.N {
		key, err := crypto.GenerateKey()
		check(b, err)
		wallet := strings.ToLower(addressOf(key).Hex())
		for i := range min(perWallet, b.N-len(bodies)) {
			m := h.message(wallet, "email", "ann@example.com", h.now+int64(i))
			bodies = append(bodies, postBody(wallet, "email", "ann@example.com", allPrefs, m, sign(b, key, m)))
		}
	}
	took := make([]time.Duration, b.N)
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for client := range clients {
		wg.Go(func() {
			// Each client has wallets of its own, whose messages it sends in order.
			for {
				from := int(next.Add(perWallet)) - perWallet
				for i := from; i < min(from+perWallet, b.N); i++ {
					began := time.Now()
					if got := h.local(client%2, bodies[i]); got != `200 {"ok":true}` {
						b.Error(fmt.Sprint(i, got))
						return
					}
					took[i] = time.Since(began)
				}
				if from >= b.N {
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	slices.Sort(took)
	for name, q := range map[string]int{"p50-ms": 50, "p99-ms": 99} {
		b.ReportMetric(float64(took[(len(took)-1)*q/100].Microseconds())/1000, name)
	}
}

// local subscribes from this machine, which is not limited.
func (h *house) local(node int, body string) string {
	req := httptest.NewRequest(http.MethodPost, "/notify", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.RemoteAddr = "127.0.0.1:1000"
	return h.answer(node, req)
}
