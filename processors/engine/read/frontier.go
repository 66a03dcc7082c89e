package read

import (
	"sync"
	"time"

	"github.com/lienstream/lienstream/topics"
)

// Notifier lets many wait for whatever moves next. It is ready for use, and costs next to nothing while nobody
// waits.
type Notifier struct {
	mu   sync.Mutex
	next chan struct{}
}

// Moved returns a channel that the next call of Notify closes.
func (n *Notifier) Moved() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}

// Notify ends all waits.
func (n *Notifier) Notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

// frontier is how far each partition is: the furthest that a holder told, or that an answer showed. It is asked
// for with every request, so it is kept until something moves.
type frontier struct {
	marks        []Watermark // ascending by partition; zero where nobody holds it
	known        bool        // all of them
	lowest       Watermark
	here, beyond <-chan struct{}
	taken        time.Time
}

// frontierAge is how long it is taken for granted: an owner that loses its lease moves nothing.
const frontierAge = 10 * time.Millisecond

func (f *frontier) over() bool {
	select {
	case <-f.here:
		return true
	case <-f.beyond:
		return true
	default:
		return time.Since(f.taken) > frontierAge
	}
}

// frontier is taken after the channels that say when it is over.
func (n *nodes) frontier() *frontier {
	if t := n.last.Load(); t != nil && !t.over() {
		return t
	}
	t := &frontier{taken: time.Now(), beyond: n.moves.Moved()}
	if n.local != nil {
		t.here = n.local.Moved()
	}
	t.marks, t.known = n.watermarks()
	n.mu.Lock()
	for p := range t.marks {
		if t.marks[p].Moment().Before(n.floor[p]) {
			t.marks[p].At, t.marks[p].Reverts = n.floor[p].Block, n.floor[p].Reverts
		}
	}
	n.mu.Unlock()
	if t.known {
		t.lowest = lowestOf(t.marks)
	}
	n.last.Store(t)
	return t
}

// Current says whether an answer that was read from these partitions (nil: all) is still the latest that can
// be had: their lowest watermark is that block. It costs no network, nor a lock while nothing moves: it is
// for every request.
func (r *Router) Current(at topics.BlockRef, from []int32) bool {
	t := r.nodes.frontier()
	if !t.known {
		return false
	}
	lowest := &t.lowest
	if from != nil {
		lowest = &t.marks[from[0]]
		for _, p := range from[1:] {
			if t.marks[p].before(lowest) {
				lowest = &t.marks[p]
			}
		}
	}
	return lowest.At.Number == at.Number && lowest.At.Hash == at.Hash
}

func lowestOf(marks []Watermark) Watermark {
	lowest := &marks[0]
	for i := range marks {
		if marks[i].before(lowest) {
			lowest = &marks[i]
		}
	}
	return *lowest
}
