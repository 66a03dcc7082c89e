package httpapi

import (
	"sync"

	"golang.org/x/time/rate"
)

// Buckets are token buckets, one for each of many keys. Beyond maxClients that are not full, new keys share one.
type Buckets[K comparable] struct {
	mu sync.Mutex
	perKey[K, *rate.Limiter]
}

// NewBuckets lets each key take a number of tokens per second in the long run, and a burst at once.
func NewBuckets[K comparable](perSecond float64, burst int) *Buckets[K] {
	return &Buckets[K]{perKey: newPerKey[K](func() *rate.Limiter { return rate.NewLimiter(rate.Limit(perSecond), burst) }, full)}
}

// Take reports whether the key may take one more, and takes it.
func (b *Buckets[K]) Take(key K) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of(key).Allow()
}

func full(b *rate.Limiter) bool { return b.Tokens() >= float64(b.Burst()) }
