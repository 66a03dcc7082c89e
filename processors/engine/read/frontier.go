package read

import (
	"sync"
	"time"

	"github.com/lienstream/lienstream/topics"
)

// Notifier lets many goroutines wait for the next change. Its zero value is ready for use, and costs almost
// nothing while nobody waits.
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

// Notify wakes all that wait.
func (n *Notifier) Notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

// frontier is how far each partition is: the furthest that a holder reported or an answer showed. Every request
// needs it, so it is kept until something changes.
type frontier struct {
	marks        []Watermark // ascending by partition; zero where there is no holder
	known        bool        // all partitions have a holder
	lowest       Watermark
	here, beyond <-chan struct{}
	taken        time.Time
}

// frontierAge is how long a frontier is used without a check: an expired lease is no notification.
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

// frontier is computed after taking the channels that tell when it is outdated.
func (n *nodes) frontier() *frontier {
	if t := n.last.Load(); t != nil && !t.over() {
		return t
	}
	t := &frontier{taken: time.Now(), beyond: n.notifier.Moved()}
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

// Current reports whether an answer from these partitions (nil: all) is still the latest: their lowest
// watermark is at the given block. It uses no network, and no lock while nothing changes, so it can be called
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
