package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// A node may be unable to own some partitions, and others not. What its build cannot read or continue it refuses in what it tells
// the group, whose leader then gives that, and nothing else, to members that do not refuse it. Where all do, the task stops, and
// stays where it is. A node whose disk loses what it stores leaves the group, if others have the partition.

var errUnfit = errors.New("a task has stopped, and another node has its partition")

// unfitness is an error for which a partition cannot be owned here, and which outlives its task. That a state is not too old any
// more a standby sees. Else only an owner that gets past it shows that the build can own the partition again: a standby may follow
// what it could not have made. And a rebuild ends it, as that begins a new life of the changelog. Zero: none is known.
type unfitness struct {
	err   error
	since time.Time
	life  uint64 // generation of the changelog that it is of, or one before
}

func (u unfitness) ofBuild() bool {
	return errors.Is(u.err, ErrOlder) || errors.Is(u.err, state.ErrNewer)
}

func (u unfitness) ofDisk() bool {
	return errors.Is(u.err, ErrUnusable) && errors.Is(u.err, state.ErrCorrupt)
}

// fits notes that the build can own the partition.
func (r *replica) fits() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unfit.ofBuild() {
		r.unfit = unfitness{}
	}
}

// continued notes that the build can continue the state as it is now: it was rebuilt, if it was too old.
func (r *replica) continued() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.Is(r.unfit.err, ErrOlder) {
		r.unfit = unfitness{}
	}
}

// lives notes of which generation of the changelog that is which the holder begins with.
func (r *replica) lives(generation uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.life = max(r.life, generation)
}

// reborn notes that the changelog has begun a new life: what the build could not own it may now.
func (r *replica) reborn(generation uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.life = max(r.life, generation); !r.unfit.ofBuild() {
		return
	}
	r.unfit = unfitness{}
	select {
	case r.again <- struct{}{}:
	default:
	}
}

// rebuildLook is how often it is looked whether a partition that this build cannot own was rebuilt.
const rebuildLook = 30 * time.Second

// lookForRebuilds has the node try partitions again that it could not own, once they were rebuilt. It reads only what was added to
// the changelog since it last looked.
func (n *Node) lookForRebuilds(ctx context.Context) error {
	known := map[int32]life{}
	for wait(ctx, n.cfg.rebuildLook) {
		for _, r := range n.replicas {
			u := r.unfitness()
			if !u.ofBuild() {
				continue
			}
			before, looked := known[r.partition]
			if !looked {
				before = noLife()
			}
			last, err := n.lifeAfter(ctx, r.partition, before)
			if err != nil {
				n.logger.Debug("cannot look up the last rebuild", partitionField(r.partition), zap.Error(err))
				continue
			}
			if known[r.partition] = last; last.generation > u.life {
				n.logger.Info("a partition was rebuilt that this build could not own", partitionField(r.partition), zap.Uint64("generation", last.generation))
				r.reborn(last.generation)
			}
		}
	}
	return ctx.Err()
}

// outlived reports whether a store is of a past life of the changelog, and which generation is the last: whoever reads on drops what
// the store has, whatever its build is. So is an empty one that was to be restored from before the last rebuild.
func (n *Node) outlived(ctx context.Context, r *replica) (generation uint64, is bool) {
	if r.store == nil {
		return 0, false // in a layout of another build: of which life is not known
	}
	meta, err := r.store.Meta()
	if err != nil || meta == nil && !r.rewind {
		return 0, false
	}
	var pos position
	if meta != nil {
		if pos, err = decodePosition(meta); err != nil && !errors.Is(err, state.ErrNewer) {
			return 0, false
		}
	}
	last, err := n.lastLife(ctx, r.partition)
	if err != nil {
		n.logger.Warn("cannot look up the last rebuild", partitionField(r.partition), zap.Error(err))
		return 0, false
	}
	if meta == nil {
		return last.generation, last.progress.Rebuild.Begin > 0
	}
	return last.generation, last.generation > pos.Generation
}

func (r *replica) unfitness() unfitness {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.unfit
}

// refuses are the partitions that this build cannot own.
func (n *Node) refuses() (refused []int32) {
	for _, r := range n.replicas {
		if r.unfitness().ofBuild() {
			refused = append(refused, r.partition)
		}
	}
	return refused
}

// unfit returns an error for which the node leaves the group: a partition stopped for a reason of its own, and another node has
// it. A disk is a node's own. What a build cannot read, a standby of the same build may follow that never reads it: only an owner
// shows that another build can. The group's leader may be of a build that does not know of refusals, and leave the node what it
// was assigned.
func (n *Node) unfit(assigned func(int32) bool) error {
	for _, r := range n.replicas {
		u := r.unfitness()
		unheeded := u.ofBuild() && assigned(r.partition) && time.Since(u.since) > n.cfg.SessionTimeout
		if u.ofDisk() && n.live.served(n.cfg.Instance, r.partition) ||
			unheeded && n.live.owned(n.cfg.Instance, r.partition) && n.live.succeeded(n.cfg.Instance, r.partition, 0) {
			return fmt.Errorf("%w: partition %d: %w", errUnfit, r.partition, u.err)
		}
	}
	return nil
}
