package engine

import (
	"errors"
	"fmt"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// Errors of View. Each wraps read.ErrUnavailable: another node may have the view, or this one a moment later.
var (
	ErrNotHere = fmt.Errorf("this node does not hold the partition: %w", read.ErrUnavailable)
	ErrNotYet  = fmt.Errorf("block is not applied yet: %w", read.ErrUnavailable)
	ErrNotKept = fmt.Errorf("block was reverted, or its view is no longer kept: %w", read.ErrUnavailable)
)

// ErrBroken: a topic violates an invariant (an incomplete block, a gap, a revert of a block that is not the
// last) or is not the topic that the state was built from. The task stops, because any further result would be
// wrong.
var ErrBroken = errors.New("a topic has lost records, or is not the one that the state was built from")

// errOldEnd: brokers that no longer lead a partition, or are behind, report a former end.
var errOldEnd = errors.New("the brokers report an end of a topic that is before its last known record")

// ErrApp: the application refused a record. The task stops.
var ErrApp = errors.New("application error")

// refusal is the error of a call of the application. One of the store, which it passes on, is not its own.
func refusal(what string, err error) error {
	if errors.Is(err, state.ErrIO) || errors.Is(err, state.ErrCorrupt) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrApp, what, err)
}

// ErrOlder: the state was made by an older version of the application that this one cannot continue.
var ErrOlder = errors.New("the state was built by a version of the application that this build cannot continue")

// continues is ErrOlder, or nil.
func (n *Node) continues(p progress) error {
	if p.Input >= 0 && p.App < n.since {
		return fmt.Errorf("%w: version %d, this build has %d and can continue from %d", ErrOlder, p.App, n.version, n.since)
	}
	return nil
}

// ErrUnusable: a task failed on its state, its changelog or its position in the raw topic, and failed again
// after its state was wiped and restored. The task stops.
var ErrUnusable = errors.New("state cannot be restored")

// RebuildError: a final block is reverted, whose undo records are gone. The task stops until the state is
// rebuilt.
type RebuildError struct {
	Partition int32
	Block     topics.BlockRef // the block to revert
	Floor     uint64          // the last block that cannot be reverted
}

// Error names the block and the floor.
func (e *RebuildError) Error() string {
	return fmt.Sprintf("partition %d: revert of block %d (%s), but blocks up to %d are final and have no undo records",
		e.Partition, e.Block.Number, e.Block.Hash, e.Floor)
}

// remedied adds to the error of a task that stopped what an operator can do about it.
func (n *Node) remedied(err error) error {
	_, deep := errors.AsType[*RebuildError](err)
	broken := errors.Is(err, ErrBroken)
	switch {
	case !deep && !broken && !errors.Is(err, ErrOlder) && !errors.Is(err, ErrUnusable):
		return err
	case n.commands != nil:
		return fmt.Errorf("%w: restore its topics, or run the former build; commands expire, so it cannot be rebuilt from them", err)
	case broken:
		return fmt.Errorf("%w: rebuild with `lienstream processors --rebuild`; if that fails too, ingest again under another --kafka-prefix", err)
	}
	return fmt.Errorf("%w: rebuild with `lienstream processors --rebuild`", err)
}

// stops reports whether an error needs an operator: a restart would fail in the same way.
func stops(err error) bool {
	var deep *RebuildError
	return errors.Is(err, ErrBroken) || errors.Is(err, state.ErrNewer) || errors.Is(err, ErrOlder) || errors.Is(err, ErrUnusable) || errors.Is(err, ErrApp) || errors.As(err, &deep)
}
