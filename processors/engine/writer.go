package engine

import (
	"context"
	"fmt"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/topics/kafka"
)

// writer is what a commit is written to.
type writer interface {
	Begin(ctx context.Context) error
	Produce(ctx context.Context, r *kafka.Record)
	Flush(ctx context.Context) bool
	Commit(ctx context.Context) error
	Kill()
}

// alone is a Transactor of one task.
type alone struct{ *kafka.Transactor }

// Begin implements writer.
func (a alone) Begin(context.Context) error { return a.Transactor.Begin() }

// seat is a task's part in joint transactions. It belongs to the task's goroutine.
type seat struct {
	t     *task
	of    *jointTx
	round *round // entered, and not all produced; nil: none
}

// Begin implements writer.
func (s *seat) Begin(ctx context.Context) error { return s.of.enter(ctx, s, s.t.point()) }

// Produce implements writer.
func (s *seat) Produce(ctx context.Context, r *kafka.Record) {
	s.of.producing.Lock()
	defer s.of.producing.Unlock()
	s.of.tx.Produce(ctx, r)
}

// Flush implements writer: at the tip a commit is small, and is sent with those of the others.
func (s *seat) Flush(context.Context) bool { return false }

// Commit implements writer.
func (s *seat) Commit(ctx context.Context) error {
	x, r := s.of, s.round
	s.round = nil
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

// Kill implements writer.
func (s *seat) Kill() { s.of.tx.Kill() }

func (t *task) point() read.Point {
	return read.Point{Reverts: t.ready.Reverts, Number: t.ready.At.Number}
}

// choose decides what the next commit is written to.
func (t *task) choose() {
	together := t.app != nil && t.tip && t.catchUpUntil.IsZero() && !t.r.leaving.Load()
	if together && t.seat != nil && t.seat.of.alive() {
		t.out, t.next = t.seat, t.seat.of
		return
	}
	t.leave()
	if t.out, t.next = (alone{t.tx}), nil; together {
		t.next = t.n.joint.current()
	}
}

// writer is the joint ID that the progress of the next commit names.
func (t *task) writer() string {
	if t.next == nil {
		return ""
	}
	return t.next.id
}

// join takes a seat once a commit has named the joint ID.
func (t *task) join() {
	if t.seat != nil || t.next == nil {
		return
	}
	x, at := t.next, t.point()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err == nil {
		t.seat = &seat{t: t, of: x}
		x.members[t.seat] = at
	}
}

// leave gives up the seat. A transaction that has a part of what the task would commit is given up with it.
func (t *task) leave() {
	s := t.seat
	if s == nil {
		return
	}
	t.seat = nil
	x := s.of
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.members, s)
	if s.round != nil && s.round == x.round {
		x.failed(errLeft)
	}
	x.endIfComplete()
}

// pass tells that the task has nothing to commit up to where it is.
func (t *task) pass() {
	if t.seat == nil {
		return
	}
	x := t.seat.of
	x.mu.Lock()
	defer x.mu.Unlock()
	x.members[t.seat] = t.point()
	x.endIfComplete()
}

// releases reports whether the task has to leave the joint transactions, so that the partition's next owner need not fence
// them.
func (t *task) releases() bool { return t.seat != nil && t.r.leaving.Load() }

// transactor makes a producer for a transactional ID.
func (n *Node) transactor(id string) (*kafka.Transactor, error) {
	return kafka.NewTransactor(n.cfg.Kafka, id, kafka.TransactorOptions{Timeout: n.cfg.CommitTimeout, Logger: n.logger})
}

func (n *Node) transactionalID(partition int32) string {
	c := n.cfg.Catalogue
	return fmt.Sprintf("%s.%d.%s.%d", c.Prefix, c.ChainID, n.cfg.AppName, partition)
}
