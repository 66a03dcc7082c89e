package read

import (
	"context"
	"time"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// Watermark is how far a holder of a partition is.
type Watermark struct {
	Partition   int32
	Role        topics.Role
	Incarnation int64 // of the owner whose changes the state holds; a later owner's is greater
	At          topics.BlockRef
	Latest      uint64    // the chain's head as the ingester saw it
	ObservedAt  time.Time // when the ingester saw it
	Reverts     uint64    // blocks ever reverted: alike on all partitions at the same block
}

// Moment is the point in the history that all partitions share.
func (w *Watermark) Moment() Moment { return Moment{Block: w.At, Reverts: w.Reverts} }

// before says that w is an earlier point in the partition's history than v, whoever its owner was: a new
// owner may begin before what the last one showed of its overlay.
func (w *Watermark) before(v *Watermark) bool { return w.Moment().Before(v.Moment()) }

// Moment is a point in the history that all partitions share. A block number may come twice, the pair of the
// reverts before it and the number never does: moments ascend by it.
type Moment struct {
	Block   topics.BlockRef
	Reverts uint64 // blocks reverted before it
}

// Before says that m is an earlier point than n.
func (m Moment) Before(n Moment) bool {
	return m.Reverts < n.Reverts || m.Reverts == n.Reverts && m.Block.Number < n.Block.Number
}

// At makes a view say how many blocks were reverted before it. That of a Source which keeps views of blocks
// that were reverted since must: else it is taken for as late as the watermark is.
func At(v state.View, reverts uint64) state.View { return &dated{v, reverts} }

type dated struct {
	state.View
	reverts uint64
}

// momentOf is where a view is; the watermark is of its partition, from before it was opened.
func momentOf(v state.View, w *Watermark) Moment {
	if d, ok := v.(*dated); ok {
		return Moment{d.At(), d.reverts}
	}
	return Moment{v.At(), w.Reverts}
}

// Source is a node as the read API sees it: partitions held, and views of them. It is safe for
// concurrent use.
type Source interface {
	// View opens the partition's state as of the block `at`, number and hash, or the latest where it is
	// nil. ErrUnavailable: the node does not hold the partition, or not, not yet or no longer at that
	// block.
	View(ctx context.Context, partition int32, at *topics.BlockRef) (state.View, error)
	// Watermarks lists the partitions that the node holds and can answer for.
	Watermarks() []Watermark
	// Moved returns a channel that is closed once a watermark is at another block, comes or goes: before
	// anybody can see that, by Watermarks or by View.
	Moved() <-chan struct{}
}
