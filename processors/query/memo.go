package query

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/lienstream/lienstream/topics"
)

// memo keeps the last answer to a question that everybody asks alike. What is true as of a block stays true:
// as long as the lowest watermark is the answer's block, no better one can be had.
//
// Invariant: one asks at a time, and who waits for it takes over what it found.
type memo[T any] struct {
	last *atomic.Pointer[Answer[T]]
	turn chan struct{}
}

func newMemo[T any]() memo[T] {
	return memo[T]{last: new(atomic.Pointer[Answer[T]]), turn: make(chan struct{}, 1)}
}

// of returns the answer as of the lowest watermark, which ask finds where nobody did before. Its value is
// shared: nobody may change it.
func (m memo[T]) of(ctx context.Context, r *Router, ask func(context.Context) (Answer[T], error)) (Answer[T], error) {
	if a, ok := m.at(r.lowestAt()); ok {
		return a, nil
	}
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return Answer[T]{}, ctx.Err()
	}
	if a, ok := m.at(r.lowestAt()); ok {
		return a, nil
	}
	a, err := ask(ctx)
	if err == nil {
		m.last.Store(&a)
	}
	return a, err
}

func (m memo[T]) at(block topics.BlockRef, known bool) (Answer[T], bool) {
	a := m.last.Load()
	if a == nil || !known || a.At.Hash != block.Hash || a.At.Number != block.Number {
		return Answer[T]{}, false
	}
	return *a, true
}

func (r *Router) lowestAt() (topics.BlockRef, bool) {
	w, err := r.Lowest()
	return w.At, err == nil
}

// memos are memos of questions about one thing each, the latest asked about.
type memos[K comparable, T any] struct {
	mu       sync.Mutex
	bound    int
	now, old map[K]memo[T] // what is not asked about while now fills up is forgotten
}

func newMemos[K comparable, T any](bound int) *memos[K, T] {
	return &memos[K, T]{bound: bound, now: map[K]memo[T]{}}
}

// about is the memo of a thing.
func (m *memos[K, T]) about(key K) memo[T] {
	m.mu.Lock()
	defer m.mu.Unlock()
	if found, ok := m.now[key]; ok {
		return found
	}
	found, ok := m.old[key]
	if !ok {
		found = newMemo[T]()
	}
	if len(m.now) >= m.bound {
		m.old, m.now = m.now, map[K]memo[T]{}
	}
	m.now[key] = found
	return found
}
