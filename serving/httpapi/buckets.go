package httpapi

import (
	"sync"

	"golang.org/x/time/rate"
)

// Buckets are token buckets, one for each of many keys.
//
// Invariant: at most maxClients are known. At the limit those that are full are forgotten, which changes nothing for
// their keys; if that is not enough, new keys share one.
type Buckets[K comparable] struct {
	rate  rate.Limit
	burst int

	mu     sync.Mutex
	known  map[K]*rate.Limiter
	others *rate.Limiter
}

// NewBuckets lets each key take so many a second in the long run, and a burst at once.
func NewBuckets[K comparable](perSecond float64, burst int) *Buckets[K] {
	b := &Buckets[K]{rate: rate.Limit(perSecond), burst: burst, known: map[K]*rate.Limiter{}}
	b.others = rate.NewLimiter(b.rate, burst)
	return b
}

// Take reports whether the key may take one more, and takes it.
func (b *Buckets[K]) Take(key K) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.known[key]
	if of == nil {
		of = b.admit(key)
	}
	return of.Allow()
}

func (b *Buckets[K]) admit(key K) *rate.Limiter {
	if len(b.known) >= maxClients {
		for k, of := range b.known {
			if of.Tokens() >= float64(b.burst) {
				delete(b.known, k)
			}
		}
		if len(b.known) >= maxClients {
			return b.others
		}
	}
	of := rate.NewLimiter(b.rate, b.burst)
	b.known[key] = of
	return of
}
