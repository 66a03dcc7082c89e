package support

import (
	"fmt"
	"math/big"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
)

// quantile of a sorted list.
func quantile(all []time.Duration, of float64) time.Duration {
	slices.Sort(all)
	return all[min(len(all)-1, int(of*float64(len(all))))]
}

// BenchmarkDemand is a 402 at 16 connections.
func BenchmarkDemand(b *testing.B) {
	w := newWorld(b)
	s := w.start(w.deps(w.relayer("relayer")))
	report := body("Bench")
	took := make([]time.Duration, b.N)
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range 16 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				began := time.Now()
				if got := s.post("", report); got.status != 402 {
					b.Errorf("%d %s", got.status, got.body)
					return
				}
				took[i-1] = time.Since(began)
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(quantile(took, 0.99).Microseconds()), "µs/p99")
	b.ReportMetric(float64(quantile(took, 0.5).Microseconds()), "µs/p50")
}

// BenchmarkCreated is a paid report, from the request to the 201.
func BenchmarkCreated(b *testing.B) {
	w := newWorld(b)
	s := w.start(w.deps(w.relayer("relayer")))
	payments := make([]string, b.N)
	for i := range payments {
		key, err := crypto.GenerateKey()
		check(b, err)
		w.fund(crypto.PubkeyToAddress(key.PublicKey), deposit)
		payments[i] = w.header(w.pay(key, fmt.Sprint(i)))
	}
	w.mine()
	took := make([]time.Duration, b.N)
	b.ResetTimer()
	for i, payment := range payments {
		began := time.Now()
		if got := s.post(payment, body("Bench")); got.status != 201 {
			b.Fatalf("%d %s", got.status, got.body)
		}
		took[i] = time.Since(began)
	}
	b.StopTimer()
	b.ReportMetric(float64(quantile(took, 0.99).Milliseconds())-w.blockTime.Seconds()*1000, "ms/p99-beyond-a-block")
	b.ReportMetric(float64(quantile(took, 0.5).Milliseconds()), "ms/p50")
	if w.balance(w.terms.Payee) != new(big.Int).Mul(big.NewInt(int64(b.N)), big.NewInt(deposit)).Int64() {
		b.Error("not every report was paid")
	}
}
