package read

import (
	"context"
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

// await waits until holders of all of the partitions are at a block. False: they are not.
func (r *Router) await(ctx context.Context, partitions []int32, number uint64, wait time.Duration) bool {
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for {
		f := r.nodes.frontier()
		if f.reached(partitions, number) {
			return true
		}
		age := time.NewTimer(frontierAge)
		select {
		case <-f.here:
		case <-f.beyond:
		case <-age.C: // an expired holder sends no notification
		case <-timeout.C:
			age.Stop()
			return r.nodes.frontier().reached(partitions, number)
		case <-ctx.Done():
			age.Stop()
			return false
		}
		age.Stop()
	}
}

func (f *frontier) reached(partitions []int32, number uint64) bool {
	for _, p := range partitions {
		if f.marks[p].At.Number < number {
			return false
		}
	}
	return true
}
