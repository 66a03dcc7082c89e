package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/topics/kafka"
)

// jointLinger is how long a transaction waits for the tasks that have not come to its block: they have got its records with
// the same fetch.
const jointLinger = 4 * time.Millisecond

// jointTx is what one joint ID commits: one round after the other.
type jointTx struct {
	j  *joint
	id string
	tx *kafka.Transactor

	producing sync.Mutex // a Transactor is for one goroutine at a time

	mu      sync.Mutex
	members map[*seat]read.Point // to which block each has come
	round   *round               // nil: none is open
	err     error
}

// round is one transaction.
type round struct {
	at      read.Point    // the block of the first that entered
	sending int           // tasks that have entered and not yet produced all they have
	overdue bool          // it waits for nobody who has not entered
	ending  bool          // nobody can enter any more
	done    chan struct{} // closed when it has ended, with err
	err     error
	linger  *time.Timer
	limit   *time.Timer
}

var (
	errLeft     = fmt.Errorf("a task left the transaction: %w", kafka.ErrUnknown)
	errSeatLost = errors.New("the node has no joint transactions any more")
)

func (x *jointTx) alive() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err == nil
}

// fail ends all: what is in progress is committed by nobody once it was fenced.
func (x *jointTx) fail(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.failed(err)
}

// failed is fail for who holds the lock.
func (x *jointTx) failed(err error) {
	if x.err != nil {
		return
	}
	x.err = err
	if x.j.ctx.Err() == nil {
		x.j.n.logger.Warn("joint transactions ended", zap.String("transactionalID", x.id), zap.Error(err))
	}
	if x.round != nil && !x.round.ending {
		x.finish(x.round, err)
	}
	x.j.wg.Go(x.tx.Close)
}

// finish tells those of a round how it ended. The lock is held.
func (x *jointTx) finish(r *round, err error) {
	r.ending, r.err = true, err
	r.linger.Stop()
	r.limit.Stop()
	x.round = nil
	close(r.done)
}

// endIfComplete commits the open round once all that it waits for have produced. The lock is held.
func (x *jointTx) endIfComplete() {
	r := x.round
	if r == nil || r.ending || r.sending > 0 {
		return
	}
	if !r.overdue {
		for _, at := range x.members {
			if at.Reverts < r.at.Reverts || at.Reverts == r.at.Reverts && at.Number < r.at.Number {
				return
			}
		}
	}
	r.ending = true
	x.j.wg.Go(func() {
		err := x.tx.Commit(x.j.ctx)
		x.mu.Lock()
		defer x.mu.Unlock()
		if err != nil {
			x.failed(err)
		}
		x.finish(r, err)
	})
}

// enter begins a transaction for a seat, or takes part in the one that has begun.
func (x *jointTx) enter(ctx context.Context, s *seat, at read.Point) error {
	for {
		x.mu.Lock()
		if x.err != nil {
			x.mu.Unlock()
			return errSeatLost
		}
		if x.round == nil {
			if err := x.open(at); err != nil {
				x.failed(err)
				x.mu.Unlock()
				return errSeatLost
			}
		}
		r := x.round
		if !r.ending {
			r.sending++
			s.round, x.members[s] = r, at
			x.mu.Unlock()
			return nil
		}
		x.mu.Unlock()
		select {
		case <-r.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// open begins a round. The lock is held.
func (x *jointTx) open(at read.Point) error {
	if err := x.tx.Begin(); err != nil {
		return err
	}
	r := &round{at: at, done: make(chan struct{})}
	r.linger = time.AfterFunc(jointLinger, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if r.overdue = true; x.round == r {
			x.endIfComplete()
		}
	})
	r.limit = time.AfterFunc(x.j.n.cfg.CommitTimeout, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.round == r && !r.ending {
			x.failed(fmt.Errorf("a task did not produce all that it has within %s: %w", x.j.n.cfg.CommitTimeout, kafka.ErrUnknown))
		}
	})
	x.round = r
	return nil
}
