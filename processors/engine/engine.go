// Package engine runs the tasks of the processors: one partition each, exactly once, owned by one node.
// It knows Kafka and state, and no entity.
//
//	node.go       who holds which partition, and what is done about errors
//	task.go       an owner: fence, restore, loop; input.go and commit.go are its two halves
//	commands.go   input that is no chain: the commands of users
//	restore.go    a changelog into a store; changelog.go its records
//	standby.go    a follower of the changelog that serves reads
//	replica.go    a partition's store and the views of its last barriers
//	rebuild.go    a new epoch, from the raw topic
//	owners.go     what nodes tell each other
//	membership.go a place in the group, given up where the disk takes nothing
//	topic.go      whether a topic is still the one; clock.go how old its records are; lag.go how far behind
//
// Non-obvious:
//   - Only the offset of a task's own open record ends a restore. A high watermark does not: it counts what
//     is not decided yet.
//   - A changelog that is read while it is compacted shows commits that are no longer whole. Progress says
//     how many records its commit had, so that a standby notices.
//   - A standby that knows only what its owner commits could not be read together with other partitions
//     when the owner dies: the owners' last progress differs. It follows the barriers of the raw topic too.
//   - At the tip a block is shown before its commit, which takes longer than everything else there. A reader
//     sees what the raw topic, where the block is committed, comes to; only the topics have it later.
//   - The store has no write-ahead log, so a killed process restores the last megabytes from the changelog.
package engine

import (
	"time"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// App is what the engine runs: the entity families, pure.
type App interface {
	// Tables lists every table that Apply touches.
	Tables() []*state.Table
	// Apply applies a *topics.Log or a *topics.Probe. It must depend on nothing but w and rec, and
	// keep nothing of rec, whose memory is used again. An error stops the task: a log that cannot be decoded is
	// no error but an unknown event.
	Apply(w state.Writer, rec topics.Raw) error
}

// Versioned is an application, of blocks or of commands, that says which version it is. Without it, it is 0.
type Versioned interface {
	// Version is another one whenever what becomes of a record is. A state that was made by `since` or later is
	// carried on; one of before, or of a version to come, stops the task.
	Version() (version, since uint32)
}

// BarrierApp is an App that is told of the end of each block too, of those without records among them. It must
// write little: what it writes is a commit of its own.
type BarrierApp interface {
	App
	EndBlock(w state.Writer, partition int32, b *topics.BlockEnd) error
}

// CommandApp is an application whose input is its command topic. There are no blocks and there is no undo: a
// command that was applied stands.
type CommandApp interface {
	// Tables lists every table that ApplyCommand touches.
	Tables() []*state.Table
	// ApplyCommand applies a command. It must depend on nothing but w and c: time is c.Time, and what it
	// refuses it must write down, where whoever sent it reads the outcome. An error stops the task.
	ApplyCommand(w state.Writer, c Command) error
}

// Command is a record of a command topic. At is what a view that has it applied is at or past.
type Command struct {
	At    topics.BlockRef
	Key   []byte // its partition is that of the key: a wallet, or none where it is for the whole partition
	Value []byte
	Time  time.Time // when it was sent, as the broker has it
}

// Observer is told of what a task owns and shows, in the task's goroutine: it must not block. A view is
// valid during the call only.
type Observer interface {
	// Opened: this node now owns the partition, at this state. It may be behind what was last applied: what
	// is applied at the tip is told before it is committed.
	Opened(p Partition, view state.View)
	// Applied: the partition moved to view.At(). Changes is empty for a block that touched nothing.
	Applied(p Partition, view state.View, changes []Change)
	// Closed: this node no longer owns the partition.
	Closed(p Partition)
}

// Partition identifies an ownership of a partition.
type Partition struct {
	ID          int32
	Incarnation int64  // offset of the owner's open record in the changelog: a later owner's is greater
	Reverts     uint64 // blocks ever reverted in this partition: alike on all partitions at the same block
	Head        uint64 // the chain's head as the ingester saw it
}

// Change is a row that was written; a nil Row is a deletion.
type Change struct {
	Table *state.Table
	Key   []byte
	Row   []byte
}
