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

const (
	// jointLinger is how long a transaction waits for the tasks that have not come to its block: they have got its records
	// with the same fetch.
	jointLinger = 4 * time.Millisecond
	// jointPatience is how much longer it waits for those that are preparing what they commit.
	jointPatience = 50 * time.Millisecond
)

// jointTx is what one joint ID commits: one round after the other.
type jointTx struct {
	j  *joint
	id string
	tx *kafka.Transactor

	producing sync.Mutex // a Transactor is for one goroutine at a time

	mu        sync.Mutex
	members   map[*seat]read.Point // to which block each has come
	preparing map[*seat]bool       // those that will enter
	round     *round               // nil: none is open
	err       error
}

// round is one transaction.
type round struct {
	at      read.Point    // the block of the first that entered
	sending int           // tasks that have entered and not yet handed over all they have
	overdue bool          // it waits for nobody who is not preparing
	late    bool          // nor for these
	ending  bool          // nobody can enter any more
	done    chan struct{} // closed when it has ended, with err
	err     error
	linger  *time.Timer
	limit   *time.Timer
}

var errSeatLost = errors.New("the node has no joint transactions any more")

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

// decided waits until the open round has ended.
func (x *jointTx) decided(ctx context.Context) error {
	x.mu.Lock()
	r := x.round
	x.mu.Unlock()
	if r == nil {
		return nil
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaited reports whether the open round waits for somebody. The lock is held.
func (x *jointTx) awaited() bool {
	r := x.round
	if r.sending > 0 || !r.late && len(x.preparing) > 0 {
		return true
	}
	for _, at := range x.members {
		if !r.overdue && at.Before(r.at) {
			return true
		}
	}
	return false
}

// endIfComplete commits the open round once all that it waits for have handed over. The lock is held.
func (x *jointTx) endIfComplete() {
	r := x.round
	if r == nil || r.ending || x.awaited() {
		return
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

// prepare tells that a seat will enter.
func (x *jointTx) prepare(s *seat) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		return errSeatLost
	}
	x.preparing[s] = true
	return nil
}

// commit commits the records of a seat, up to a block, in one transaction with those of others. It returns errSeatLost if
// none of them was handed over.
func (x *jointTx) commit(ctx context.Context, s *seat, at read.Point) error {
	r, err := x.enter(ctx, s, at)
	if err != nil {
		return err
	}
	x.producing.Lock()
	for _, rec := range s.records {
		x.tx.Produce(x.j.ctx, rec) //nolint:contextcheck // the task may end before
	}
	x.producing.Unlock()
	if s.t.crash("handedOver") {
		s.Kill()
	}
	x.mu.Lock()
	r.sending--
	x.endIfComplete()
	x.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enter begins a transaction for a seat, or takes part in the one that has begun.
func (x *jointTx) enter(ctx context.Context, s *seat, at read.Point) (*round, error) {
	for {
		x.mu.Lock()
		delete(x.preparing, s)
		if x.err == nil && x.round == nil {
			if err := x.open(at); err != nil {
				x.failed(err)
			}
		}
		if x.err != nil {
			x.mu.Unlock()
			return nil, errSeatLost
		}
		r := x.round
		if !r.ending {
			r.sending++
			x.members[s] = at
			x.mu.Unlock()
			return r, nil
		}
		x.mu.Unlock()
		select {
		case <-r.done:
		case <-ctx.Done():
			return nil, ctx.Err()
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
		if x.round != r || r.ending {
			return
		}
		if r.overdue, r.late = true, r.overdue; r.late {
			clear(x.preparing) // nor does the next one wait for them
		} else {
			r.linger.Reset(jointPatience)
		}
		x.endIfComplete()
	})
	r.limit = time.AfterFunc(x.j.n.cfg.CommitTimeout, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.round == r && !r.ending {
			x.failed(fmt.Errorf("a task did not hand over all that it has within %s: %w", x.j.n.cfg.CommitTimeout, kafka.ErrUnknown))
		}
	})
	x.round = r
	return nil
}
