package engine

import (
	"sync"
	"time"

	"github.com/lienstream/lienstream/processors/engine/read"
)

const (
	// maxStands bounds the moments that readers stand on: one each, and mostly the same.
	maxStands = 16
	// standsFor is how long one is kept that a reader has told of. It tells every 100 ms.
	standsFor = 2 * time.Second
)

// stands are the moments that readers answer as of. Where a partition stands still, all others are read at its last
// block, however far they are: their views of it must not go.
type stands struct {
	mu    sync.Mutex
	until map[read.Point]time.Time
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
	if _, known := s.until[at]; known || len(s.until) < maxStands {
		s.until[at] = now.Add(standsFor)
	}
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
