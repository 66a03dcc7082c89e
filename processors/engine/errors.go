package engine

import (
	"errors"
	"fmt"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// What View answers where it has no view. Each is a read.ErrUnavailable: another node, or this one a
// moment later, may have it.
var (
	ErrNotHere = fmt.Errorf("this node does not hold the partition: %w", read.ErrUnavailable)
	ErrNotYet  = fmt.Errorf("block is not applied yet: %w", read.ErrUnavailable)
	ErrNotKept = fmt.Errorf("block was reverted, or its view is no longer kept: %w", read.ErrUnavailable)
)

// ErrBroken means that a topic breaks a promise: half a block, a gap, a revert of what is not the last block; or
// that it is not the one that the state was made of. The task stops: whatever it did next would be wrong.
var ErrBroken = errors.New("a topic has lost records, or is not the one that the state was built from: " +
	"rebuild with `lienstream processors --rebuild`; if that fails too, ingest again under another --kafka-prefix")

// ErrApp means that the application refused a record. The task stops.
var ErrApp = errors.New("application error")

// ErrOlder means that an older version of the application made the state, which this one does not carry on.
var ErrOlder = errors.New("the state was built by a version of the application that this build cannot continue: rebuild with `lienstream processors --rebuild`")

// ErrUnusable means that a task failed on its state, its changelog or its place in the raw topic, and did
// so again after it had wiped the state and restored it from the start. The task stops.
var ErrUnusable = errors.New("state cannot be restored: rebuild with `lienstream processors --rebuild`")

// ErrRebuild means that a block is reverted that was final: its undo is gone. The task stops until the
// state is rebuilt.
type ErrRebuild struct {
	Partition int32
	Block     topics.BlockRef // to be reverted
	Floor     uint64          // the last block that cannot be
}

// Error names the block, the floor and the way out.
func (e *ErrRebuild) Error() string {
	return fmt.Sprintf("partition %d: revert of block %d (%s), but blocks up to %d are final and have no undo records: rebuild with `lienstream processors --rebuild`",
		e.Partition, e.Block.Number, e.Block.Hash, e.Floor)
}

// stops says that an error needs a person: starting again would meet it again.
func stops(err error) bool {
	var deep *ErrRebuild
	return errors.Is(err, ErrBroken) || errors.Is(err, state.ErrNewer) || errors.Is(err, ErrOlder) || errors.Is(err, ErrUnusable) || errors.Is(err, ErrApp) || errors.As(err, &deep)
}
