package read

import "github.com/lienstream/lienstream/topics"

// Holder says who holds a partition and how far it is, as far as this router knows.
type Holder struct {
	Watermark        // of the holder that is furthest; At is zero if nobody holds the partition
	Owner     string // the instance that owns it; empty: unknown
	Standbys  int    // other holders
}

// Holders lists who holds each partition and how far it is, ascending by partition. It uses no network.
func (r *Router) Holders() []Holder { return r.nodes.holders(r.cfg.Instance) }

// holders needs the name of this process.
func (n *nodes) holders(self string) []Holder {
	var held []Watermark
	if n.local != nil {
		held = n.local.Watermarks()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]Holder, len(n.newest))
	counts := make([]int, len(n.newest))
	offer := func(instance string, w Watermark) {
		if w.Partition < 0 || int(w.Partition) >= len(all) {
			return
		}
		h := &all[w.Partition]
		if counts[w.Partition]++; counts[w.Partition] == 1 || h.before(&w) {
			h.Watermark = w
		}
		if w.Role == topics.RoleOwner && w.Incarnation >= n.newest[w.Partition] {
			h.Owner = instance
		}
	}
	for _, w := range held {
		offer(self, w)
	}
	for instance, h := range n.others {
		for _, w := range h.marks {
			offer(instance, w)
		}
	}
	for p := range all {
		all[p].Partition = int32(p)
		if all[p].Standbys = counts[p]; all[p].Owner != "" {
			all[p].Standbys--
		}
	}
	return all
}
