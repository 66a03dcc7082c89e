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

// takeTurn waits, far behind the head, until the task may apply and send. So few tasks share the memory: for commits that are
// large, in which a row that is written often is sent and stored once, and for the rows that they read.
func (t *task) takeTurn(ctx context.Context) error {
	if !t.far || t.turn.has {
		return nil
	}
	if t.turn.rank, t.turn.left = rankNew, max(t.end-t.now.Input, 0); !t.dirty.IsZero() {
		t.turn.rank, t.turn.left = rankBegun, 0 // its transaction may be open, so it is next whoever comes after it
	}
	if err := t.turn.begin(ctx); err != nil {
		return err
	}
	t.turned = t.now.Input
	t.keepRows(max(int(t.n.far.Load())/committers, 1))
	return nil
}

// passTurn ends the task's turn after a commit, once the turn has lasted long enough, or if a task waits that has begun a commit.
// A task that has passed its turn on keeps no rows until the next one.
func (t *task) passTurn() {
	switch {
	case !t.far:
		t.endTurn()
	case t.turn.awaited(rankBegun) || t.now.Input-t.turned >= t.n.cfg.turn:
		t.endTurn()
		t.keepRows(0)
	}
}

// endTurn gives others their turn.
func (t *task) endTurn() {
	t.turn.end()
	t.keepRows(1)
}

// keepRows sets how many shares of the memory for rows the task has: there is one for each partition, and those that have a turn
// have those of the others too.
func (t *task) keepRows(shares int) { t.r.store.KeepRows(shares * t.n.cfg.Memory.Rows) }

// patience is how long a task that has a turn waits for records before others have it.
func (t *task) patience() time.Duration {
	if t.now.Input <= t.end { // they are there
		return fetchPatience
	}
	return turnPatience
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

const (
	// turnRecords is how many records a turn is for: those of a partition whose rows have room in the memory, so that most of
	// these are read once. Of a larger partition many are read again.
	turnRecords = 250_000
	// turnPatience is how long a task waits for records that may not be there, fetchPatience for those that are: a fetch takes less.
	turnPatience  = 50 * time.Millisecond
	fetchPatience = time.Second
)
