package query

import (
	"sync"
	"time"

	"github.com/lienstream/lienstream/topics"
)

// Moves lets many wait for whatever moves next. It is ready for use, and costs next to nothing while nobody
// waits.
type Moves struct {
	mu   sync.Mutex
	next chan struct{}
}

// Moved returns a channel that the next call of Tell closes.
func (m *Moves) Moved() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next == nil {
		m.next = make(chan struct{})
	}
	return m.next
}

// Tell ends all waits.
func (m *Moves) Tell() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next != nil {
		close(m.next)
		m.next = nil
	}
}

// tide is how far each partition is: the furthest that a holder told, or that an answer showed. It is asked
// for with every request, so it is kept until something moves.
type tide struct {
	marks        []Watermark // ascending by partition
	known        bool        // all of them
	lowest       Watermark
	here, beyond <-chan struct{}
	taken        time.Time
}

// tideAge is how long a tide is taken for granted: an owner that loses its lease moves nothing.
const tideAge = 10 * time.Millisecond

func (t *tide) over() bool {
	select {
	case <-t.here:
		return true
	case <-t.beyond:
		return true
	default:
		return time.Since(t.taken) > tideAge
	}
}

// tide is taken after the channels that say when it is over.
func (n *nodes) tide() *tide {
	if t := n.last.Load(); t != nil && !t.over() {
		return t
	}
	t := &tide{taken: time.Now(), beyond: n.moves.Moved()}
	if n.local != nil {
		t.here = n.local.Moved()
	}
	t.marks, t.known = n.watermarks()
	n.mu.Lock()
	for p := range t.marks {
		if t.marks[p].before(n.floor[p]) {
			t.marks[p] = n.floor[p]
		}
	}
	n.mu.Unlock()
	if t.known {
		t.lowest = lowestOf(t.marks)
	}
	n.last.Store(t)
	return t
}

// Current implements Reader: the lowest watermark of the partitions is that block.
func (r *Router) Current(at topics.BlockRef, from []int32) bool {
	t := r.nodes.tide()
	if !t.known {
		return false
	}
	lowest := &t.lowest
	if from != nil {
		lowest = &t.marks[from[0]]
		for _, p := range from[1:] {
			if t.marks[p].lower(lowest) {
				lowest = &t.marks[p]
			}
		}
	}
	return lowest.At.Number == at.Number && lowest.At.Hash == at.Hash
}

// lower says that w is less far than v in the history that all partitions share: a partition that has yet to
// see a revert is behind those that have, whatever the numbers of their blocks.
func (w *Watermark) lower(v *Watermark) bool {
	return w.Reverts < v.Reverts || w.Reverts == v.Reverts && w.At.Number < v.At.Number
}

func lowestOf(marks []Watermark) Watermark {
	lowest := &marks[0]
	for i := range marks {
		if marks[i].lower(lowest) {
			lowest = &marks[i]
		}
	}
	return *lowest
}
