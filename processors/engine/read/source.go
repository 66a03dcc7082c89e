package read

import (
	"context"
	"slices"
	"time"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// Watermark is how far a holder of a partition is.
type Watermark struct {
	Partition   int32
	Role        topics.HolderRole
	Incarnation int64 // of the owner whose changes the state holds; a later owner's is greater
	At          topics.BlockRef
	Latest      uint64    // the chain's head as the ingester saw it
	ObservedAt  time.Time // when the ingester saw it
	Reverts     uint64    // blocks ever reverted: alike on all partitions at the same block

	// Kept are moments that the holder has views of: its own, the last ones before it, and what it was asked to keep.
	// Nil: it did not tell.
	Kept []Point
}

// has says whether the holder said that it can answer as of a moment.
func (w *Watermark) has(m Moment) bool {
	return w.Moment().Point() == m.Point() || slices.Contains(w.Kept, m.Point())
}

// Moment is the point in the history that all partitions share.
func (w *Watermark) Moment() Moment { return Moment{Block: w.At, Reverts: w.Reverts} }

// before reports whether w is an earlier point in the partition's history than v, whoever the owner was: a new
// owner may start before what the last one showed of its overlay.
func (w *Watermark) before(v *Watermark) bool { return w.Moment().Before(v.Moment()) }

// Moment is a point in the history that all partitions share. A block number may come twice, but never together
// with the same number of earlier reverts: moments are ordered by that pair.
type Moment struct {
	Block   topics.BlockRef
	Reverts uint64 // blocks reverted before it
}

// Point is a Moment by number alone.
type Point struct{ Reverts, Number uint64 }

// Point is the moment without its block's hash and time.
func (m Moment) Point() Point { return Point{m.Reverts, m.Block.Number} }

// Same reports whether both are the same block after as many reverts.
func (m Moment) Same(n Moment) bool { return m.Reverts == n.Reverts && m.Block.Same(n.Block) }

// Before says that m is an earlier point than n.
func (m Moment) Before(n Moment) bool { return m.Point().Before(n.Point()) }

// Before says that p is an earlier point than q.
func (p Point) Before(q Point) bool {
	return p.Reverts < q.Reverts || p.Reverts == q.Reverts && p.Number < q.Number
}

// At attaches the number of earlier reverts to a view. A Source that keeps views of blocks that were reverted
// since must attach it, or the view counts as being at the watermark.
func At(v state.View, reverts uint64) state.View { return &dated{v, reverts} }

type dated struct {
	state.View
	reverts uint64
}

// momentOf is the moment of a view; w is a watermark of its partition, taken before it was opened.
func momentOf(v state.View, w *Watermark) Moment {
	if d, ok := v.(*dated); ok {
		return Moment{d.At(), d.reverts}
	}
	return Moment{v.At(), w.Reverts}
}

// Source is a node as the read API sees it: partitions and their views. It is safe for concurrent use.
type Source interface {
	// View opens the partition's state as of the block `at`, number and hash, or the latest if it is nil.
	// ErrUnavailable: the node does not hold the partition, or not at that block.
	View(ctx context.Context, partition int32, at *topics.BlockRef) (state.View, error)
	// Watermarks lists the partitions that the node can answer for.
	Watermarks() []Watermark
	// Moved returns a channel that is closed when a watermark changes, comes or goes, before Watermarks or View
	// show the change.
	Moved() <-chan struct{}
}

// Marker is a Source that can tell the watermark of one partition alone, which costs less. False: it cannot answer for it.
type Marker interface {
	Watermark(partition int32) (Watermark, bool)
}

// Keeper is a Source that keeps a view for longer where it is asked to: readers answer as of it, and ask again
// while they do.
type Keeper interface {
	Keep(at Point)
}
