package hotcache

import (
	"sync"
	"sync/atomic"
)

// breaker is a circuit breaker for Redis. It opens after a number of failures in a row and closes after a
// successful probe; requests are never used as probes.
type breaker struct {
	limit    int
	isOpen   atomic.Bool
	mu       sync.Mutex
	failures int
	opened   chan struct{} // holds a token when a probe is due
}

func newBreaker(limit int) *breaker {
	return &breaker{limit: limit, opened: make(chan struct{}, 1)}
}

func (b *breaker) open() bool { return b.isOpen.Load() }

// failed counts a failure, and reports whether it opened the breaker.
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

// succeeded resets the count of failures. A late response does not close an open breaker.
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
