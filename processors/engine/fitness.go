package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// A node may be unable to own some partitions, and others not. It refuses the partitions that its build cannot read or continue:
// the group's leader then assigns these, and no others, to members that do not refuse them. Where all members refuse a partition,
// its task stops, and the partition stays where it is. A node whose disk loses data leaves the group, if others have the partition.

var errOwnedElsewhere = errors.New("a task has stopped, and another node has its partition")

// ownError is an error that keeps this node from owning a partition, and outlives its task. A standby clears ErrOlder once it has
// applied a rebuilt state. Any other error is cleared by an owner that gets past it, since a standby may follow what its build
// could not have written, or by a rebuild, which begins a new generation of the changelog. Zero: none is known.
type ownError struct {
	err        error
	since      time.Time
	generation uint64 // of the changelog when it occurred, or an earlier one
}

func (u ownError) ofBuild() bool {
	return errors.Is(u.err, ErrOlder) || errors.Is(u.err, state.ErrNewer)
}

func (u ownError) ofDisk() bool {
	return errors.Is(u.err, ErrUnusable) && errors.Is(u.err, state.ErrCorrupt)
}

// clearBuildError notes that the build can own the partition.
func (r *replica) clearBuildError() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ownErr.ofBuild() {
		r.ownErr = ownError{}
	}
}

// clearOlder notes that the build can continue the state as it is now: if it was too old, it was rebuilt.
func (r *replica) clearOlder() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.Is(r.ownErr.err, ErrOlder) {
		r.ownErr = ownError{}
	}
}

// setGeneration notes the generation of the changelog that the holder begins with.
func (r *replica) setGeneration(generation uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation = max(r.generation, generation)
}

// rebuiltElsewhere notes that another node has rebuilt the partition: this build may be able to own it now.
func (r *replica) rebuiltElsewhere(generation uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.generation = max(r.generation, generation); !r.ownErr.ofBuild() {
		return
	}
	r.ownErr = ownError{}
	select {
	case r.retry <- struct{}{}:
	default:
	}
}

// rebuildLook is how often it is looked whether a partition that this build cannot own was rebuilt.
const rebuildLook = 30 * time.Second

// lookForRebuilds has the node try partitions again that it could not own, once they were rebuilt. It reads only what was added to
// the changelog since it last looked.
func (n *Node) lookForRebuilds(ctx context.Context) error {
	known := map[int32]changelogEnd{}
	for wait(ctx, n.cfg.rebuildLook) {
		for _, r := range n.replicas {
			u := r.ownError()
			if !u.ofBuild() {
				continue
			}
			before, looked := known[r.partition]
			if !looked {
				before = emptyEnd()
			}
			last, err := n.readEndAfter(ctx, r.partition, before)
			if err != nil {
				n.logger.Debug("cannot look up the last rebuild", partitionField(r.partition), zap.Error(err))
				continue
			}
			if known[r.partition] = last; last.generation > u.generation {
				n.logger.Info("a partition was rebuilt that this build could not own", partitionField(r.partition), zap.Uint64("generation", last.generation))
				r.rebuiltElsewhere(last.generation)
			}
		}
	}
	return ctx.Err()
}

// rebuiltSince reports whether the partition was rebuilt since the store was written, and the last generation: a holder of any
// build then drops what the store has.
func (n *Node) rebuiltSince(ctx context.Context, r *replica) (generation uint64, is bool) {
	if r.store == nil {
		return 0, false // in a layout of another build: its generation is not known
	}
	meta, err := r.store.Meta()
	if err != nil || meta == nil {
		return 0, false
	}
	pos, err := decodePosition(meta)
	if err != nil && !errors.Is(err, state.ErrNewer) {
		return 0, false
	}
	last, err := n.readEnd(ctx, r.partition)
	if err != nil {
		n.logger.Warn("cannot look up the last rebuild", partitionField(r.partition), zap.Error(err))
		return 0, false
	}
	return last.generation, last.generation > pos.Generation
}

func (r *replica) ownError() ownError {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.ownErr
}

// refuses are the partitions that this build cannot own.
func (n *Node) refuses() (refused []int32) {
	for _, r := range n.replicas {
		if r.ownError().ofBuild() {
			refused = append(refused, r.partition)
		}
	}
	return refused
}

// ownedElsewhere returns an error for which the node leaves the group: a partition stopped for a reason of this node alone, and
// another node has it. The reason is its disk; or its build, where an owner of another build has got past it: a standby of the
// same build may follow without ever reading what it cannot. For a build the node leaves only if it keeps the assignment for
// longer than a session: the group's leader may be of a build that does not know of refusals.
func (n *Node) ownedElsewhere(assigned func(int32) bool) error {
	for _, r := range n.replicas {
		u := r.ownError()
		unheeded := u.ofBuild() && assigned(r.partition) && time.Since(u.since) > n.cfg.SessionTimeout
		if u.ofDisk() && n.live.served(n.cfg.Instance, r.partition) ||
			unheeded && n.live.owned(n.cfg.Instance, r.partition) && n.live.succeeded(n.cfg.Instance, r.partition, 0) {
			return fmt.Errorf("%w: partition %d: %w", errOwnedElsewhere, r.partition, u.err)
		}
	}
	return nil
}
