package engine

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lienstream/lienstream/processors/engine/read"
)

const (
	// maxPins bounds the pinned moments. Each reader that moves on leaves one behind with every block.
	maxPins = 16
	// pinFor is how long a moment stays pinned. A reader pins it again every 100 ms.
	pinFor = 2 * time.Second
)

// pins are the moments that readers answer as of. While a partition makes no progress, all others are read at its last
// block, however far they are: their views of it must be kept.
type pins struct {
	mu    sync.Mutex
	until map[read.Point]time.Time
	added atomic.Uint64 // how many were ever pinned
}

// Keep implements read.Keeper.
func (n *Node) Keep(at read.Point) { n.pins.keep(at, time.Now()) }

func (s *pins) keep(at read.Point, now time.Time) {
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
		if len(s.until) == maxPins {
			delete(s.until, s.stalest())
		}
		s.added.Add(1)
	}
	s.until[at] = now.Add(pinFor)
}

// stalest is the moment that was pinned longest ago: no reader needs it any longer. The lock is held.
func (s *pins) stalest() (at read.Point) {
	var least time.Time
	for p, until := range s.until {
		if least.IsZero() || until.Before(least) {
			at, least = p, until
		}
	}
	return at
}

// current are the moments that are pinned now.
func (s *pins) current() (all []read.Point) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, until := range s.until {
		if time.Now().Before(until) {
			all = append(all, at)
		}
	}
	return all
}

// keptPoints are the last barriers that there are views of, and the pinned ones. The lock is held.
func (r *replica) keptPoints(pinned []read.Point) []read.Point {
	last := max(0, len(r.ring)-announcedBlocks)
	kept := make([]read.Point, 0, announcedBlocks+maxPins)
	for _, at := range pinned {
		if slices.ContainsFunc(r.ring[:last], func(b barrier) bool { return b.point() == at }) {
			kept = append(kept, at)
		}
	}
	for _, b := range r.ring[last:] {
		kept = append(kept, b.point())
	}
	return kept
}

// updateKept adds views that were pinned since to the published mark, which may not move for long.
func (r *replica) updateKept() {
	added := r.pins.added.Load()
	if r.pinsSeen.Load() == added {
		return
	}
	pinned := r.pins.current()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pinsSeen.Store(added)
	r.mark.Kept = r.keptPoints(pinned)
}
