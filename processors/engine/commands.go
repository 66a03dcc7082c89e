package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// CommandRef is the position of a view once the command at an offset is applied. It takes the place of a block;
// its number is the next offset. Positions compare only within one partition.
func CommandRef(offset int64, sent time.Time) topics.BlockRef {
	ref := topics.BlockRef{Number: uint64(offset) + 1, Timestamp: uint64(max(sent.Unix(), 0))}
	binary.BigEndian.PutUint64(ref.Hash[len(ref.Hash)-8:], ref.Number)
	return ref
}

// command applies a command. It is final at once: there is no undo and no pending event, and a commit may end
// after it.
func (a *applier) command(rec *kafka.Record) error {
	at := CommandRef(rec.Offset, rec.Timestamp)
	if a.dirty.IsZero() {
		a.dirty = time.Now()
	}
	a.overlay.Begin(at, false)
	release := a.overlay.ShareIterator()
	err := a.commands.ApplyCommand(a.overlay, Command{At: at, Partition: a.partition, Key: rec.Key, Value: rec.Value, Time: rec.Timestamp})
	err = errors.Join(err, release())
	if err == nil {
		err = a.overlay.Err()
	}
	if err != nil {
		return refusal("command", err)
	}
	a.records++
	a.now.Input, a.now.LeaderEpoch, a.now.At = rec.Offset+1, rec.LeaderEpoch, at
	a.now.Floor, a.now.Head, a.now.ObservedMs = at.Number, at.Number, rec.Timestamp.UnixMilli()
	a.settled = true
	return nil
}

// command applies a command, and commits when the commit is full.
func (t *task) command(ctx context.Context, rec *kafka.Record) error {
	if err := t.applier.command(rec); err != nil {
		return err
	}
	t.setFar(t.age(rec.Timestamp) >= farAge) // in a backlog few tasks at a time hold a commit
	if t.records >= t.n.cfg.CommitRecords || t.overlay.Bytes() >= t.n.commandBytes() {
		return t.settleCommands(ctx)
	}
	return nil
}

// commandBytes is how much a commit of commands may hold: a share of what all tasks may, and less than half a memtable. A
// larger batch Pebble keeps beside its memtables, until it is flushed and no view that was read before is left.
func (n *Node) commandBytes() int {
	return min(n.cfg.CommitBytes/len(n.replicas), n.cfg.Memory.MemTable/2)
}

// settleCommands commits the commands applied so far: clients wait for each of them.
func (t *task) settleCommands(ctx context.Context) error {
	if t.now.Input == t.ready.Input {
		return nil // the last command filled a commit
	}
	t.ready = t.now
	if !t.overlay.Empty() {
		return t.commit(ctx)
	}
	since := t.since
	t.reset()
	t.since = since
	t.publish(nil, t.applied(nil))
	return nil
}
