package engine

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// An owner without changes commits nothing, so that on an idle chain the broker has little to do. But it must find out
// that it was fenced: by a node that woke up from a pause without knowing that the group reassigned its partition. Until
// that node is fenced in turn, readers accept nobody's answer for the partition. So the changelog's end is looked up: where
// it is beyond the owner's own last record, a commit tells.
const (
	// idleLook is how often that is done.
	idleLook = time.Second
	// idleInterval is how long an owner goes without a commit if the changelog's end is unknown, or if others wait for
	// the commit: it says which blocks are final, and to a standby that records changed nothing.
	idleInterval = 3 * time.Second
	// progressInterval is the longest time without a commit: a restart reads back this far.
	progressInterval = 30 * time.Second
)

// changelogEnds are the ends of all partitions of the changelog, for the owners of a node.
type changelogEnds struct {
	wanted atomic.Bool
	last   atomic.Pointer[endsAt]
}

type endsAt struct {
	asked time.Time
	ends  map[int32]int64 // by partition
}

// lookUpEnds looks up the ends while an owner needs them; an owner that commits all the time does not.
func (n *Node) lookUpEnds(ctx context.Context) error {
	for wait(ctx, idleLook) {
		if !n.ends.wanted.Swap(false) {
			continue
		}
		asked := time.Now()
		ends, err := n.history.Ends(ctx, n.changelog)
		if err != nil {
			n.logger.Debug("cannot look up the ends of the changelog", zap.Error(err))
			continue
		}
		n.ends.last.Store(&endsAt{asked, ends})
	}
	return ctx.Err()
}

// due is when to commit, or to check whether the owner may become visible, even without further records; zero:
// not at all.
func (t *task) due() time.Time {
	switch {
	case !t.settled:
		return time.Time{}
	case !t.dirty.IsZero() && t.far:
		return time.Now().Add(t.n.cfg.CommitInterval) // no more records
	case t.releases(), t.dirty.IsZero() && t.postponed > 0:
		return time.Now()
	case !t.dirty.IsZero() && t.tip:
		return t.since.Add(t.n.cfg.TipInterval)
	case !t.dirty.IsZero():
		return t.dirty.Add(t.n.cfg.CommitInterval)
	case !t.catchUpUntil.IsZero():
		return time.Now().Add(catchUpPoll)
	}
	if t.named() {
		return time.Now().Add(leaveLook)
	}
	return t.looked.Add(idleLook)
}

// progressDue reports whether an owner without changes has to commit its progress.
func (t *task) progressDue() (bool, error) {
	if t.releases() || t.postponed > 0 {
		return true, nil
	}
	now := time.Now()
	if now.Sub(t.looked) < idleLook {
		return false, nil
	}
	t.looked = now
	idle := now.Sub(t.since)
	t.n.ends.wanted.Store(true)
	known := t.n.ends.last.Load()
	if known != nil && known.asked.After(t.since) && t.looked.Sub(known.asked) < idleInterval {
		switch ours := t.store.Changelog + 1; { // with the marker of our last transaction
		case known.ends[t.r.partition] > ours:
			return true, nil
		case idle >= progressInterval:
			return true, nil
		case t.records == 0 && t.ready.Reverts == t.store.Progress.Reverts:
			settles, err := t.overlay.Settles(t.floor, t.ready.Floor)
			return settles && idle >= idleInterval, err
		}
	}
	return idle >= idleInterval, nil
}
