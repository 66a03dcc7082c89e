// Package engine runs the tasks of the processors: one per partition, with exactly-once semantics, each owned
// by one node. It knows Kafka and state, but no entity.
//
//	node.go       who holds which partition, and what is done about errors
//	task.go       an owner: fence, restore, loop; input.go and commit.go are its two halves
//	joint.go      one transaction of all tasks at the tip, and how its ID is fenced; round.go and writer.go: a task's part in it
//	sending.go    sends records in the transaction of a commit; events of final blocks before the commit
//	scout.go      reads ahead of the tasks to learn which blocks are final; memory.go: the sizes that follow from --memory
//	idle.go       an owner without changes
//	commands.go   input other than the chain: commands of users
//	restore.go    a changelog into a store; changelog.go its records
//	standby.go    a follower of the changelog that serves reads
//	replica.go    a partition's store and the views of its last barriers
//	rebuild.go    a new generation, from the raw topic
//	owners.go     nodes announce what they hold
//	membership.go the place in the consumer group, given up if the disk fails (diskhealth.go) or a broker is unreachable (cutoff.go)
//	topic.go      whether a topic was replaced or truncated; clock.go: how old its records are; lag.go: how far behind a task is
//
// Non-obvious:
//   - A restore ends at the offset of the task's own open record. A high watermark is no such end: it includes
//     records of undecided transactions.
//   - A changelog that is compacted while it is read yields incomplete commits. Progress has the number of
//     records of its commit, so that a standby notices.
//   - A standby that knew only the owner's commits could not be read together with other partitions after the
//     owner dies, as the last progress of their owners differs. So it follows the barriers of the raw topic
//     too.
//   - At the tip a block is visible before its commit, which takes longer than all other steps. Its result is
//     determined by the raw topic, where the block is committed; only the output topics have it later.
//   - The store has no write-ahead log; a killed process restores the last megabytes from the changelog.
package engine

import (
	"time"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// App is the application that the engine runs. It must be deterministic.
type App interface {
	// Tables lists every table that Apply uses.
	Tables() []*state.Table
	// Apply applies a *topics.Log, a *topics.Probe or a *topics.Ledger. It must depend on nothing but w and rec, and must not
	// keep rec, whose memory is reused. An error stops the task; a log that cannot be decoded is an unknown
	// event, not an error.
	Apply(w state.Writer, rec topics.Raw) error
}

// Versioned is an application, of blocks or of commands, with a version. The version of any other is 0.
type Versioned interface {
	// Version must change whenever the result of a record changes. A state of version `since` or later is
	// continued; an older or a newer one stops the task.
	Version() (version, since uint32)
}

// BarrierApp is an App that is also called at the end of each block, including blocks without records, and told when the
// ingester wrote the barrier. It must write little: each write costs a commit.
type BarrierApp interface {
	App
	EndBlock(w state.Writer, partition int32, b *topics.BlockEnd, written time.Time) error
	// Idle is called when the barrier of the last block is repeated, since there is no newer block: what was not safe or
	// final before may be by now. What it writes and emits may stay when a reorg takes the block back, and standbys that
	// are ahead of their owner lack it.
	Idle(w state.Writer, partition int32, b *topics.BlockEnd, written time.Time) error
}

// CommandApp is an application whose input is its command topic. There are no blocks and no undo: an applied
// command is final.
type CommandApp interface {
	// Tables lists every table that ApplyCommand uses.
	Tables() []*state.Table
	// ApplyCommand applies a command. It must depend on nothing but w and c; the time is c.Time. A refusal must
	// be written to the state, where the sender reads the outcome. An error stops the task.
	ApplyCommand(w state.Writer, c Command) error
}

// Command is a record of a command topic. At is the position of the first view that includes it.
type Command struct {
	At        topics.BlockRef
	Partition int32
	Key       []byte // its hash selects the partition; empty if the command is for the whole partition
	Value     []byte
	Time      time.Time // the broker's timestamp of the record
}

// Observer is told what a task owns and publishes, in the task's goroutine: it must not block. A view is valid
// during the call only.
type Observer interface {
	// Opened: this node now owns the partition, with this state. The state may be older than the last one
	// passed to Applied, which at the tip is called before the commit.
	Opened(p Partition, view state.View)
	// Applied: the partition moved to view.At(). Changes is empty for a block without records.
	Applied(p Partition, view state.View, changes []Change)
	// Closed: this node no longer owns the partition.
	Closed(p Partition)
}

// Partition identifies one ownership of a partition.
type Partition struct {
	ID          int32
	Incarnation int64  // offset of the owner's open record in the changelog: later owners have greater ones
	Reverts     uint64 // blocks ever reverted in this partition: the same on all partitions at the same block
	Head        uint64 // the chain's head as the ingester saw it
}

// Change is a row that was written; Row is nil if it was deleted.
type Change struct {
	Table *state.Table
	Key   []byte
	Row   []byte
}
