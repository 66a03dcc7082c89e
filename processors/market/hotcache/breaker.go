package hotcache

import (
	"sync"
	"sync/atomic"
)

// breaker decides whether Redis is asked at all. It opens after a number of failures in a row and closes
// when a probe succeeds; a request is never the probe.
type breaker struct {
	limit    int
	isOpen   atomic.Bool
	mu       sync.Mutex
	failures int
	opened   chan struct{} // holds one token when a probe is due
}

func newBreaker(limit int) *breaker {
	return &breaker{limit: limit, opened: make(chan struct{}, 1)}
}

func (b *breaker) open() bool { return b.isOpen.Load() }

// failed counts a failure, and says whether it opened the breaker.
func (b *breaker) failed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures++
	if b.failures < b.limit || b.isOpen.Load() {
		return false
	}
	b.isOpen.Store(true)
	select {
	case b.opened <- struct{}{}:
	default:
	}
	return true
}

// succeeded ends a row of failures. An answer that was on its way when the breaker opened does not close it.
func (b *breaker) succeeded() {
	b.mu.Lock()
	b.failures = 0
	b.mu.Unlock()
}

func (b *breaker) close() {
	b.mu.Lock()
	b.failures = 0
	b.isOpen.Store(false)
	b.mu.Unlock()
}
