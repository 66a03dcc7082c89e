package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// A node may be unable to own some partitions, and others not. What its build cannot read or continue it refuses in what it tells
// the group, whose leader then gives that, and nothing else, to members that do not refuse it. Where all do, the task stops, and
// stays where it is. A node whose disk loses what it stores leaves the group, if others have the partition.

var errUnfit = errors.New("a task has stopped, and another node has its partition")

// unfitness is an error for which a partition cannot be owned here, and which outlives its task. That a state is not too old any
// more a standby sees. Else only an owner that gets past it shows that the build can own the partition again: a standby may follow
// what it could not have made. Zero: none is known.
type unfitness struct {
	err   error
	since time.Time
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
