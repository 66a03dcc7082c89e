package engine

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// Pauses before a failed task restarts.
const (
	minPause    = 20 * time.Millisecond
	fencedPause = 500 * time.Millisecond
	maxPause    = 5 * time.Second
)

// hold runs a replica in a role until ctx is done.
func (n *Node) hold(ctx context.Context, r *replica, role topics.HolderRole) {
	if role == "" {
		if err := r.close(); err != nil {
			n.logger.Warn("close state", partitionField(r.partition), zap.Error(err))
		}
		return
	}
	held := n.metrics.held.WithLabelValues(label(r.partition), string(role))
	held.Set(1)
	defer held.Set(0)
	r.take(role)
	defer func() { // the disk and the brokers are another holder's from now on
		r.refused(false)
		r.heard()
	}()
	pause := minPause
	for ctx.Err() == nil {
		r.worked = false
		var err error
		if role == topics.RoleOwner {
			err = n.own(ctx, r)
		} else {
			err = n.follow(ctx, r)
		}
		if ctx.Err() != nil {
			return
		}
		if r.leaving.Load() { // the partition belongs to another node
			r.fail()
			n.logger.Info("partition was taken over by another node", partitionField(r.partition), zap.Error(err))
			return
		}
		if err = n.mend(ctx, r, err); err == nil {
			continue
		}
		if stops(err) {
			err = n.remedied(err)
			n.logger.Error("task stopped", partitionField(r.partition), zap.Error(err))
			n.metrics.stopped.WithLabelValues(label(r.partition)).Set(1)
			select {
			case <-r.again: // of before
			default:
			}
			r.setState(topics.StateStopped, err)
			select {
			case <-r.again:
			case <-ctx.Done():
			}
			n.metrics.stopped.WithLabelValues(label(r.partition)).Set(0)
			continue
		}
		r.fail()
		r.refused(reason(err) == reasonDisk)
		n.metrics.restarts.WithLabelValues(label(r.partition), reason(err)).Inc()
		n.logger.Warn("restarting task", partitionField(r.partition), zap.String("role", string(role)), zap.Error(err))
		pause = r.pause(err, pause, time.Now())
		wait(ctx, pause)
		pause = min(2*pause, maxPause)
	}
}

// pause is how long a task that failed waits before it starts again; next is what it would wait after one more failure.
func (r *replica) pause(err error, next time.Duration, now time.Time) time.Duration {
	fenced := errors.Is(err, kafka.ErrFenced)
	if r.worked && (!fenced || now.Sub(r.fenced) > contested) {
		next = minPause
	}
	if !fenced {
		return next
	}
	// Another node takes itself for the owner. The group decides that soon; until then do not compete with it.
	r.fenced = now
	return max(next, fencedPause)
}

// mend wipes a store that is corrupt, or whose position in a log is gone, so that it is restored from the
// changelog. It does so once: a second failure is not the disk's fault. A store that would have to be read on through what a newer
// build wrote is wiped where a rebuild has ended that, and so what the store has, too.
func (n *Node) mend(ctx context.Context, r *replica, err error) error {
	if errors.Is(err, state.ErrNewer) {
		generation, is := n.outlived(ctx, r)
		if !is {
			return err // the store is intact, for a build that can read it
		}
		r.rewind = false
		r.reborn(generation)
		n.metrics.restarts.WithLabelValues(label(r.partition), "rebuilt").Inc()
		n.logger.Warn("wiping the state, which is from before a rebuild, and restoring it from the changelog", partitionField(r.partition),
			zap.Uint64("generation", generation), zap.Error(err))
		return n.wipe(r)
	}
	if !errors.Is(err, state.ErrCorrupt) && !errors.Is(err, errChangelog) && !errors.Is(err, kafka.ErrOutOfRange) {
		return err
	}
	if r.wiped {
		return fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	r.wiped = true
	r.rewind = errors.Is(err, kafka.ErrOutOfRange)
	n.metrics.restarts.WithLabelValues(label(r.partition), reason(err)).Inc()
	n.logger.Warn("wiping the state and restoring it from the changelog", partitionField(r.partition), zap.Error(err))
	return n.wipe(r)
}

const reasonDisk = "disk"

// reason is the metric label of an error.
func reason(err error) string {
	switch {
	case errors.Is(err, kafka.ErrFenced):
		return "fenced"
	case errors.Is(err, kafka.ErrUnknown):
		return "unknown"
	case errors.Is(err, kafka.ErrOutOfRange):
		return "range"
	case errors.Is(err, state.ErrCorrupt):
		return "corrupt"
	case errors.Is(err, errChangelog):
		return "changelog"
	case errors.Is(err, errCompacted):
		return "compacted"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, state.ErrIO), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EIO), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EROFS):
		return reasonDisk
	}
	return "other"
}
