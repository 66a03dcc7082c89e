package httpapi

import "sync"

// Slots counts what is in use, for each of many keys and in all.
type Slots[K comparable] struct {
	each, all int

	mu    sync.Mutex
	used  map[K]int
	inUse int
}

// NewSlots bounds the slots in use for each key, and for all keys together; all is 0: any number.
func NewSlots[K comparable](each, all int) *Slots[K] {
	return &Slots[K]{each: each, all: all, used: map[K]int{}}
}

// Take reports whether there was a slot for the key. If so, Release must follow.
func (s *Slots[K]) Take(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[key] >= s.each || s.all > 0 && s.inUse >= s.all {
		return false
	}
	s.used[key]++
	s.inUse++
	return true
}

// Release gives a slot of the key back.
func (s *Slots[K]) Release(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inUse--
	if s.used[key]--; s.used[key] == 0 {
		delete(s.used, key)
	}
}
