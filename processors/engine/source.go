package engine

import (
	"context"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// A node is a read.Source of its partitions.

// View opens a view of a partition: the latest, or the one of a recent barrier by number and hash.
func (n *Node) View(ctx context.Context, partition int32, at *topics.BlockRef) (state.View, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if partition < 0 || int(partition) >= len(n.replicas) {
		return nil, ErrNotHere
	}
	return n.replicas[partition].view(at)
}

// Watermark implements read.Marker.
func (n *Node) Watermark(partition int32) (read.Watermark, bool) {
	if partition < 0 || int(partition) >= len(n.replicas) {
		return read.Watermark{}, false
	}
	return n.replicas[partition].watermark()
}

// Watermarks lists the partitions that this node can answer for.
func (n *Node) Watermarks() []read.Watermark {
	all := make([]read.Watermark, 0, len(n.replicas))
	for _, r := range n.replicas {
		if m, ok := r.watermark(); ok {
			all = append(all, m)
		}
	}
	return all
}

// Moved implements read.Source.
func (n *Node) Moved() <-chan struct{} { return n.changed.Moved() }
