package query

import (
	"context"
	"time"

	"github.com/lienstream/lienstream/processors/state"
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

// before says that w is an earlier point in the partition's history than v. Within an incarnation the
// count of reverts comes first: a block number may fall, a count never does.
func (w Watermark) before(v Watermark) bool {
	if w.Incarnation != v.Incarnation {
		return w.Incarnation < v.Incarnation
	}
	if w.Reverts != v.Reverts {
		return w.Reverts < v.Reverts
	}
	return w.At.Number < v.At.Number
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
