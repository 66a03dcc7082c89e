package engine

import (
	"context"
	"errors"
	"time"

	"github.com/lienstream/lienstream/topics/kafka"
)

// Ranks of the tasks far behind the head that wait for a turn.
const (
	rankBegun = iota // a part of a commit is in memory
	rankNew
)

// takeTurn waits, far behind the head, until the task may apply and send. It keeps the turn until its commit, or until it
// has to wait for records: so few commits share the memory, each is large, and a row that is written often is sent and
// stored once.
func (t *task) takeTurn(ctx context.Context) error {
	if !t.far {
		return nil
	}
	if t.turn.rank = rankNew; !t.dirty.IsZero() {
		t.turn.rank = rankBegun
	}
	return t.turn.begin(ctx)
}

// commitBytes is how much a commit of the task may hold: a share of three times the tasks that have a turn, as a store keeps its
// last commit in memory until it is flushed, or, while others hold all there is, of all that are far behind.
func (t *task) commitBytes() int {
	all, far := t.n.cfg.CommitBytes, int(max(t.n.far.Load(), 1))
	if int(t.n.overlays.Load()) < all {
		far = min(far, 3*committers)
	}
	return all / far
}

// hold counts what the overlay of a task far behind the head holds.
func (t *task) hold() {
	bytes := 0
	if t.far {
		bytes = t.overlay.Bytes()
	}
	t.n.overlays.Add(int64(bytes - t.held))
	t.held = bytes
}

// pollUntil returns no records at a time.
func pollUntil(ctx context.Context, read *kafka.PartitionReader, records []*kafka.Record, due time.Time) ([]*kafka.Record, error) {
	ctx, cancel := context.WithDeadlineCause(ctx, due, errDue)
	defer cancel()
	records, err := read.Poll(ctx, records)
	if err != nil && errors.Is(context.Cause(ctx), errDue) && errors.Is(err, context.DeadlineExceeded) {
		return records[:0], nil
	}
	return records, err
}

var errDue = errors.New("commit is due")

// turnPatience is how long a task waits for records before others have its turn: a fetch takes less.
const turnPatience = 50 * time.Millisecond
