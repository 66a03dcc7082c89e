package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// A node may be unable to own some partitions. It refuses those that its build cannot read or continue in its metadata for the
// group, whose leader gives them, and no others, to members that do not refuse them. If all members refuse a partition, its task
// stops and stays where it is. A node whose disk corrupts the state leaves the group, if another node has the partition.

var errUnfit = errors.New("a task has stopped, and another node has its partition")

// unfitness is an error for which this node cannot own a partition; it outlives the task. A standby clears ErrOlder once it has
// applied a rebuilt state. Any other error is cleared only by an owner that gets past it, because a standby may follow what it
// could not have written, or by a rebuild, which begins a new generation of the changelog. Zero: none is known.
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

// lives records the generation of the changelog with which the holder begins.
func (r *replica) lives(generation uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.life = max(r.life, generation)
}

// reborn records that the changelog has begun a new generation, which this build may be able to own.
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
				n.logger.Info("retrying a partition that this build could not own: it was rebuilt", partitionField(r.partition), zap.Uint64("generation", last.generation))
				r.reborn(last.generation)
			}
		}
	}
	return ctx.Err()
}

// outlived reports whether a store is of an older generation of the changelog, and which generation is the newest: a reader that
// continues drops the store's rows, whatever its build. So is an empty one that was to be restored from before the last rebuild.
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

// unfit returns an error for which the node leaves the group: a partition stopped for a reason that concerns this node alone, and
// another node has the partition. A bad disk is such a reason. A build that cannot read the partition is one only if another node
// owns it: a standby of the same build may follow without reading. This is for group leaders of builds that do not know refusals,
// and leave the partition assigned to this node.
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
