package engine

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lienstream/lienstream/processors/engine/read"
)

const (
	// maxStands bounds the moments that readers read at. As they advance, each leaves one behind with every block.
	maxStands = 16
	// standsFor is how long a moment is kept after a reader has named it. Readers name it every 100 ms.
	standsFor = 2 * time.Second
)

// stands are the moments that readers read at. While one partition is stuck, all others are read at its last block,
// however far ahead they are: their views of that block must be kept.
type stands struct {
	mu    sync.Mutex
	until map[read.Point]time.Time
	added atomic.Uint64 // how many there have been
}

// Keep implements read.Keeper.
func (n *Node) Keep(at read.Point) { n.stands.keep(at, time.Now()) }

func (s *stands) keep(at read.Point, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, until := range s.until {
		if now.After(until) {
			delete(s.until, other)
		}
	}
	if s.until == nil {
		s.until = map[read.Point]time.Time{}
	}
	if _, known := s.until[at]; !known {
		if len(s.until) == maxStands {
			delete(s.until, s.stalest())
		}
		s.added.Add(1)
	}
	s.until[at] = now.Add(standsFor)
}

// stalest is the one that nobody has told of for the longest time: nobody stands on it any longer. The lock is held.
func (s *stands) stalest() (at read.Point) {
	var least time.Time
	for p, until := range s.until {
		if least.IsZero() || until.Before(least) {
			at, least = p, until
		}
	}
	return at
}

// on are those that are to be kept now.
func (s *stands) on() (all []read.Point) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, until := range s.until {
		if time.Now().Before(until) {
			all = append(all, at)
		}
	}
	return all
}

// told are the last barriers that there are views of, and those that readers stand on. The lock is held.
func (r *replica) told(stood []read.Point) []read.Point {
	last := max(0, len(r.ring)-toldBlocks)
	told := make([]read.Point, 0, toldBlocks+maxStands)
	for _, at := range stood {
		if slices.ContainsFunc(r.ring[:last], func(b barrier) bool { return b.point() == at }) {
			told = append(told, at)
		}
	}
	for _, b := range r.ring[last:] {
		told = append(told, b.point())
	}
	return told
}

// tellStands has the mark tell of views that readers stand on since it was published: it may not move for long.
func (r *replica) tellStands() {
	added := r.stands.added.Load()
	if r.stood.Load() == added {
		return
	}
	stood := r.stands.on()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stood.Store(added)
	r.mark.Kept = r.told(stood)
}
