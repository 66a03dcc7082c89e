package read

import (
	"context"
	"slices"
	"time"
)

type minBlockKey struct{}

// minBlockWait is how long a read waits for its minimum block.
const minBlockWait = time.Second

// WithMinBlock requires reads under the context to be as of this block number or a later one: a client that has
// seen a block, or written a command, reads it through any node. A read waits for the block up to a second and
// then fails with ErrStale. Zero requires nothing. If the input is commands, the number is that of CommandRef.
func WithMinBlock(ctx context.Context, number uint64) context.Context {
	if number == 0 {
		return ctx
	}
	return context.WithValue(ctx, minBlockKey{}, number)
}

// MinBlock is the block number set by WithMinBlock, or zero.
func MinBlock(ctx context.Context) uint64 {
	number, _ := ctx.Value(minBlockKey{}).(uint64)
	return number
}

// asideWait is how long a read waits for the frontier to come to a block that its own partitions have reached.
const asideWait = 250 * time.Millisecond

// whereabouts is where a block is that a read must not be before.
type whereabouts int

const (
	isNowhere whereabouts = iota // a second has not been enough
	isHere                       // behind the frontier, or what stands for it
	isAside                      // the partitions of the read have it, others do not
)

// await waits until a block can be read as of. Where others keep the frontier back, partitions that have the block may
// answer all the same: for the caller alone.
func (r *Router) await(ctx context.Context, partitions []int32, number uint64) whereabouts {
	timeout := time.NewTimer(minBlockWait)
	defer timeout.Stop()
	var since time.Time // when the partitions of the read had it
	for {
		f := r.nodes.frontier()
		switch reached := f.reached(partitions, number); {
		case f.valid && f.common.Block.Number >= number, !f.valid && reached:
			return isHere
		case reached && since.IsZero():
			since = time.Now()
		case reached && time.Since(since) >= asideWait:
			return isAside
		}
		if !f.wait(ctx, timeout.C) {
			return isNowhere
		}
	}
}

// awaitAnswerable waits, up to patience, until every partition has a holder that can answer. A node that starts, or takes
// over, answers as soon as it can, and nobody is asked before.
func (r *Router) awaitAnswerable(ctx context.Context, partitions []int32, atFrontier bool, patience time.Duration) {
	f := r.nodes.frontier()
	if f.answerable(partitions, atFrontier) {
		return
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for !f.answerable(partitions, atFrontier) && f.wait(ctx, timeout.C) {
		f = r.nodes.frontier()
	}
}

// wait returns when the frontier may be outdated; false: the time is up, or ctx is over.
func (f *frontier) wait(ctx context.Context, timeout <-chan time.Time) bool {
	age := time.NewTimer(frontierAge)
	defer age.Stop()
	select {
	case <-f.here:
	case <-f.beyond:
	case <-age.C: // an expired holder sends no notification
	case <-timeout:
		return false
	case <-ctx.Done():
		return false
	}
	return true
}

// answerable says whether every partition has a holder, and one that has come to the frontier if the read is to be as of
// it: some may have passed it before the last was restored.
func (f *frontier) answerable(partitions []int32, atFrontier bool) bool {
	return !slices.ContainsFunc(partitions, func(p int32) bool {
		m := &f.marks[p]
		return m.Role == "" || atFrontier && f.valid && m.Moment().Before(f.common)
	})
}

func (f *frontier) reached(partitions []int32, number uint64) bool {
	for _, p := range partitions {
		if f.marks[p].At.Number < number {
			return false
		}
	}
	return true
}
