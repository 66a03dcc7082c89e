package read

import (
	"slices"
	"sync"
	"time"

	"github.com/lienstream/lienstream/topics"
)

// Broadcast lets many goroutines wait for the next change. Its zero value is ready for use, and costs almost
// nothing while nobody waits.
type Broadcast struct {
	mu   sync.Mutex
	next chan struct{}
}

// Moved returns a channel that the next call of Notify closes.
func (n *Broadcast) Moved() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}

// Notify wakes all that wait.
func (n *Broadcast) Notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

// frontier is how far each partition is: the furthest that a holder told, or that an answer showed; and how far
// they all are. It is asked for with every request, so it is kept until something moves.
type frontier struct {
	marks        []Watermark // ascending by partition; zero where there is no holder
	known        bool        // all partitions have a holder
	lowest       Watermark
	common       Moment // as of which all reads are answered, if it is valid
	valid        bool
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
	t := &frontier{taken: time.Now(), beyond: n.changed.Moved()}
	if n.local != nil {
		t.here = n.local.Moved()
	}
	held := n.held()
	n.mu.Lock()
	defer n.mu.Unlock()
	t.marks, t.known = n.furthest(held)
	if n.shared {
		n.advance(t.marks, held)
		t.common, t.valid = n.common, n.valid
		n.keep()
	}
	for p := range t.marks {
		if t.marks[p].Moment().Before(n.floor[p]) {
			t.marks[p].At, t.marks[p].Reverts = n.floor[p].Block, n.floor[p].Reverts
		}
	}
	if t.known {
		t.lowest = lowestOf(t.marks)
	}
	if t.valid {
		t.lowest.At, t.lowest.Reverts = t.common.Block, t.common.Reverts
	}
	n.last.Store(t)
	return t
}

// keep makes this process keep the views that are read, as watch does for other nodes. The lock is held.
func (n *nodes) keep() {
	if k, ok := n.local.(Keeper); ok && n.valid {
		k.Keep(n.common.Point())
	}
}

const (
	// MaxStandstill is how long partitions that stand still keep the others back. It is an owner's lease by default, too.
	MaxStandstill = 5 * time.Minute
	// maxBehind is the same where none is at the tip: in a backfill they leave out other blocks each, and share few.
	maxBehind = 10 * time.Second
	// maxTried is how many moments are tried: partitions are a few blocks apart, or share none.
	maxTried = 16
	// TipBlocks is how far behind the chain's head the tip is, here and for the tasks.
	TipBlocks = 64
)

// advance moves the common moment on: to the latest one that every partition which anybody holds can be read at. It is
// called with the lock held.
//
// Invariants:
//  1. it never goes back, nor lies before anything that was shown;
//  2. it is valid while every partition can be read at it, or will be: those that are beyond it keep views of it, and
//     those that are not will come to it. Where somebody has lost it, or it was overtaken long ago, it is not: then each
//     read is as of what its own partitions share, until there is a moment again that all do.
func (n *nodes) advance(best []Watermark, held []*Watermark) {
	shown := n.shownLast()
	var after []Moment // moments that a partition is at, and that may be common; the latest first
	for i := range best {
		m := best[i].Moment()
		beyond := m != (Moment{}) && (n.common == (Moment{}) || n.common.Before(m))
		if beyond && len(after) < maxTried && !slices.Contains(after, m) {
			after = append(after, m)
		}
	}
	slices.SortFunc(after, func(a, b Moment) int {
		if a.Before(b) {
			return 1
		}
		return -1
	})
	for _, m := range after {
		if !m.Before(shown) && n.all(best, held, m, (*Watermark).has) {
			n.common, n.valid, n.overtaken = m, true, time.Time{}
			return
		}
	}
	switch {
	case len(after) == 0:
		n.overtaken = time.Time{}
	case n.overtaken.IsZero():
		n.overtaken = n.now()
	}
	n.valid = n.common != (Moment{}) && !n.common.Before(shown) &&
		(n.overtaken.IsZero() || n.now().Sub(n.overtaken) < patienceWith(best)) &&
		n.all(best, held, n.common, func(w *Watermark, m Moment) bool {
			return w.has(m) || w.Kept == nil || best[w.Partition].Moment().Before(m)
		})
}

// patienceWith is how long to wait for a moment that partitions share.
func patienceWith(best []Watermark) time.Duration {
	var first, latest uint64
	for i := range best {
		first, latest = max(first, best[i].At.Number), max(latest, best[i].Latest)
	}
	if first+TipBlocks < latest {
		return maxBehind
	}
	return MaxStandstill
}

// all says whether something holds of a holder of every partition that there is a holder of.
func (n *nodes) all(best []Watermark, held []*Watermark, m Moment, of func(*Watermark, Moment) bool) bool {
	for p := range best {
		if best[p].Role == "" {
			continue // nobody holds it: reads of others go on without it
		}
		found := false
		n.eachHolder(int32(p), held, func(w *Watermark) { found = found || of(w, m) })
		if !found {
			return false
		}
	}
	return true
}

// eachHolder calls fn for what the holders of the newest incarnation of a partition say of it. The lock is held.
func (n *nodes) eachHolder(p int32, held []*Watermark, fn func(*Watermark)) {
	if w := held[p]; w != nil && w.Incarnation >= n.newest[p] {
		fn(w)
	}
	for _, h := range n.others {
		if w, ok := h.marks[p]; ok && w.Incarnation >= n.newest[p] {
			fn(&w)
		}
	}
}

// held is what this process holds, by partition; nil: not here.
func (n *nodes) held() []*Watermark {
	held := make([]*Watermark, len(n.newest))
	if n.local == nil {
		return held
	}
	for _, w := range n.local.Watermarks() {
		if w.Partition >= 0 && int(w.Partition) < len(held) {
			held[w.Partition] = &w
		}
	}
	return held
}

// shownLast is the latest moment that any partition was shown as of. The lock is held.
func (n *nodes) shownLast() (last Moment) {
	for _, m := range n.floor {
		if last.Before(m) {
			last = m
		}
	}
	return last
}

// watermarks is the furthest of the newest incarnation for each partition, ascending by partition. False:
// one has no holder.
func (n *nodes) watermarks() ([]Watermark, bool) {
	held := n.held()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.furthest(held)
}

// furthest is watermarks with the lock held.
func (n *nodes) furthest(held []*Watermark) ([]Watermark, bool) {
	for _, w := range held { // what other nodes hold was claimed when they told
		if w != nil {
			n.claim(*w)
		}
	}
	best := make([]Watermark, len(n.newest))
	all := true
	for p := range best {
		known := false
		n.eachHolder(int32(p), held, func(w *Watermark) {
			if !known || best[p].before(w) {
				best[p], known = *w, true
			}
		})
		all = all && known
	}
	return best, all
}

// asOf is what an unpinned read is to be as of: false where each read goes by its own partitions.
func (r *Router) asOf() (Moment, bool) {
	t := r.nodes.frontier()
	if !t.valid {
		return Moment{}, false
	}
	return t.common, true
}

// Current says whether an answer that was read from these partitions (nil: all) is still the latest that can
// be had: it is as of the frontier, or of their lowest watermark where there is none. It costs no network, nor a
// lock while nothing moves: it is for every request.
func (r *Router) Current(at topics.BlockRef, from []int32) bool {
	t := r.nodes.frontier()
	if t.valid {
		return t.common.Block.Same(at)
	}
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
	return lowest.At.Same(at)
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
