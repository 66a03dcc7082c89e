package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	t       *task
	of      *jointTx
	records []*kafka.Record // of the next commit
}

// Begin implements writer.
func (s *seat) Begin(context.Context) error { return s.of.prepare(s) }

// Produce implements writer: records are collected, and handed over together.
func (s *seat) Produce(_ context.Context, r *kafka.Record) { s.records = append(s.records, r) }

// Flush implements writer: at the tip a commit is small, and is sent with those of the others.
func (s *seat) Flush(context.Context) bool { return false }

// Commit implements writer. Where the joint ID is fenced, it need not be for this task's partition.
func (s *seat) Commit(ctx context.Context) error {
	err := s.of.commit(ctx, s, s.t.point())
	switch {
	case errors.Is(err, errSeatLost):
		err = s.alone(ctx)
	case errors.Is(err, kafka.ErrFenced) && !s.t.tx.Taken(ctx):
		err = fmt.Errorf("%w: another of the node's partitions was taken over: %v", kafka.ErrUnknown, err) //nolint:errorlint // this one was not
	}
	clear(s.records) // they are the outbox's
	s.records = s.records[:0]
	return err
}

// alone commits under the partition's ID, because the joint ID was lost before anything was written under it. That the
// progress names it costs the next owner one more to fence.
func (s *seat) alone(ctx context.Context) error {
	if err := s.t.tx.Begin(); err != nil {
		return err
	}
	for _, r := range s.records {
		s.t.tx.Produce(ctx, r)
	}
	return s.t.tx.Commit(ctx)
}

// Kill implements writer.
func (s *seat) Kill() { s.of.tx.Kill() }

func (t *task) point() read.Point {
	return read.Point{Reverts: t.ready.Reverts, Number: t.ready.At.Number}
}

// choose decides what the next commit is written to.
func (t *task) choose() {
	together := t.app != nil && t.tip && t.catchUpUntil.IsZero() && !t.r.leaving.Load() && time.Since(t.r.fenced) > contested
	seated := together && t.seat != nil && t.seat.of.alive()
	if seated && time.Since(t.renewed) < t.n.cfg.renewal {
		t.out, t.next = t.seat, t.seat.of
		return
	}
	t.out, t.renewed = alone{t.tx}, time.Now()
	switch {
	case seated:
		t.next = t.seat.of
	case together:
		t.leave()
		t.next = t.n.joint.current()
	default:
		t.leave()
		t.next = nil
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
		t.pass()
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

// leave gives up the seat.
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
	delete(x.preparing, s)
	x.endIfComplete()
}

// pass tells the joint transaction that the task has nothing to commit up to its position.
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

// named reports whether the partition's next owner would fence a joint ID.
func (t *task) named() bool { return t.store.Progress.Writer != "" }

// releases reports whether the task has to leave the joint transactions, so that the partition's next owner need not fence
// them.
func (t *task) releases() bool { return t.named() && t.r.leaving.Load() }

// transactor makes a producer for a transactional ID.
func (n *Node) transactor(id string) (*kafka.Transactor, error) {
	return kafka.NewTransactor(n.cfg.Kafka, id, kafka.TransactorOptions{Timeout: n.cfg.CommitTimeout, Logger: n.logger})
}

func (n *Node) transactionalID(partition int32) string {
	c := n.cfg.Catalogue
	return fmt.Sprintf("%s.%d.%s.%d", c.Prefix, c.ChainID, n.cfg.AppName, partition)
}
