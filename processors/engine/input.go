package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// At the tip, where each block is visible at once, a block is close to the chain's head and has just been written.
// Reading old records again is a backfill, even if they were at the tip when they were written.
const (
	tipBlocks = read.TipBlocks
	tipAge    = 2 * time.Second
)

// Far behind the head: a backfill or a rebuild.
const (
	farBlocks   = 512
	farAge      = 10 * time.Second
	farInterval = 2 * time.Second
)

func atTip(b *topics.BlockEnd, age time.Duration) bool { return near(b) && age < tipAge }

// near reports whether a block is close to the chain's head as of its writing.
func near(b *topics.BlockEnd) bool { return b.Block.Number+tipBlocks >= b.Head }

// Far reports whether a block is so far behind the head that only a backfill is that far.
func Far(block, head uint64) bool { return head > block+farBlocks }

// applier applies records of the raw topic to an overlay. The result of a block does not depend on who applies
// it.
type applier struct {
	app       App
	commands  CommandApp // instead of app
	partition int32
	unread    func(rec *kafka.Record, err error) // called for a record that cannot be decoded; nil: not called

	overlay *state.Overlay
	now     progress  // as of the last record
	settled bool      // the last record was a Commit barrier
	dirty   time.Time // time of the first record in the overlay; zero: there is none
	records int       // number of records in the overlay

	raw     topics.RawDecoder
	inBlock bool // between a block's first record and its barrier
	block   topics.BlockRef
	seen    uint32 // records of the current block
	unknown uint32 // records since the last barrier that could not be decoded
}

// step applies a record. If the record is a barrier, it is returned and stays valid until the next record;
// again means that it repeats the barrier that the applier is at.
func (a *applier) step(rec *kafka.Record) (b *topics.BlockEnd, again bool, err error) {
	raw, err := a.raw.Decode(rec.Value)
	a.now.Input, a.now.LeaderEpoch = rec.Offset+1, rec.LeaderEpoch
	if errors.Is(err, topics.ErrLaterSchema) {
		return nil, false, fmt.Errorf("%w: %w", state.ErrNewer, err)
	}
	if err != nil {
		// It may be a foreign record: if the ingester wrote it, the count of the next barrier shows that.
		a.unknown++
		if a.unread != nil {
			a.unread(rec, err)
		}
		return nil, false, nil
	}
	switch raw := raw.(type) {
	case *topics.Log:
		return nil, false, a.apply(raw, raw.Block, rec.Offset)
	case *topics.Probe:
		return nil, false, a.apply(raw, raw.Block, rec.Offset)
	case *topics.Ledger:
		return nil, false, a.apply(raw, raw.Block, rec.Offset)
	case *topics.BlockEnd:
		again, err = a.blockEnd(raw, rec.Timestamp)
		return raw, again, err
	case *topics.BlockRevert:
		return nil, false, a.revert(raw, rec.Offset)
	}
	return nil, false, fmt.Errorf("%w: %T", ErrBroken, raw)
}

// foresee raises the floor to what the barriers among the next records call final. The ingester calls a block
// final only once many blocks follow it, so in a backfill a block's records come long before that barrier. A
// block that is known to be final when it is applied needs no undo record, and a rebuild does not encode its
// events again. Blocks that a record reverts, and later ones, are not final yet. known is what others have read ahead of
// them, before the next revert.
func (a *applier) foresee(records []*kafka.Record, known uint64) {
	if len(records) == 0 || records[0].Offset < a.now.Rebuild.KeepUntil {
		return
	}
	final, reverted := uint64(0), uint64(math.MaxUint64)
	for _, rec := range records {
		if len(rec.Key) > 0 {
			continue
		}
		switch raw, _ := a.raw.Decode(rec.Value); raw := raw.(type) {
		case *topics.BlockEnd:
			final = max(final, raw.Finalized)
		case *topics.BlockRevert:
			reverted = min(reverted, raw.Block.Number)
		}
	}
	a.now.Floor = max(a.now.Floor, known, min(final, max(reverted, 1)-1))
}

// apply passes a record to the application.
func (a *applier) apply(raw topics.Raw, block topics.BlockRef, offset int64) error {
	if !a.inBlock {
		if block.Number <= a.now.At.Number && a.now.At != (topics.BlockRef{}) {
			return fmt.Errorf("%w: record of block %d after the end of block %d", ErrBroken, block.Number, a.now.At.Number)
		}
		a.inBlock, a.block = true, block
		a.begin(block, offset)
	} else if block != a.block {
		return fmt.Errorf("%w: record of block %d (%s) within block %d (%s)", ErrBroken, block.Number, block.Hash, a.block.Number, a.block.Hash)
	}
	a.seen++
	a.records++
	a.settled = false
	if err := a.app.Apply(a.overlay, raw); err != nil {
		return refusal(fmt.Sprintf("block %d", block.Number), err)
	}
	return a.overlay.Err()
}

func (a *applier) begin(block topics.BlockRef, offset int64) {
	if a.dirty.IsZero() {
		a.dirty = time.Now()
	}
	a.overlay.Begin(block, block.Number > a.now.Floor)
	if b := a.now.Rebuild; offset < b.Published {
		a.overlay.Published(block.Number <= b.Settled)
	}
}

// blockEnd ends a block. A repeated barrier is a heartbeat of the ingester on an idle chain.
func (a *applier) blockEnd(b *topics.BlockEnd, written time.Time) (again bool, err error) {
	if b.Block.Same(a.now.At) {
		if a.inBlock {
			return true, fmt.Errorf("%w: second end of block %d within block %d", ErrBroken, b.Block.Number, a.block.Number)
		}
		a.unknown = 0
		a.chain(b, written)
		return true, nil
	}
	switch at := a.now.At; {
	case at != (topics.BlockRef{}) && b.Block.Number <= at.Number:
		return false, fmt.Errorf("%w: end of block %d after the end of block %d", ErrBroken, b.Block.Number, at.Number)
	case b.Linked && !b.Previous.Same(at):
		return false, missing(b, at)
	case at != (topics.BlockRef{}) && b.Block.Number == at.Number+1 && b.Parent != at.Hash:
		return false, fmt.Errorf("%w: parent of block %d is %s, but block %d is %s", ErrBroken, b.Block.Number, b.Parent, at.Number, at.Hash)
	case a.inBlock && b.Block != a.block:
		return false, fmt.Errorf("%w: the records are of block %d (%s), their end of block %d (%s)", ErrBroken, a.block.Number, a.block.Hash, b.Block.Number, b.Block.Hash)
	case b.Records > a.seen && b.Records <= a.seen+a.unknown:
		return false, fmt.Errorf("%w: block %d has %d records that cannot be decoded", state.ErrNewer, b.Block.Number, b.Records-a.seen)
	case b.Records != a.seen:
		return false, fmt.Errorf("%w: block %d has %d records (%d not decodable), its end says %d", ErrBroken, b.Block.Number, a.seen, a.unknown, b.Records)
	}
	if err := a.endBlock(b, written); err != nil {
		return false, err
	}
	a.inBlock, a.seen, a.unknown = false, 0, 0
	a.now.At = b.Block
	a.settled = b.Commit
	a.chain(b, written)
	return false, nil
}

// missing is the error of a barrier that does not follow the last one.
func missing(b *topics.BlockEnd, at topics.BlockRef) error {
	if at == (topics.BlockRef{}) {
		return fmt.Errorf("%w: the raw topic begins with block %d, whose predecessor is block %d (%s)", ErrBroken, b.Block.Number, b.Previous.Number, b.Previous.Hash)
	}
	return fmt.Errorf("%w: the predecessor of block %d is block %d (%s), but the last block read is %d (%s)",
		ErrBroken, b.Block.Number, b.Previous.Number, b.Previous.Hash, at.Number, at.Hash)
}

// endBlock calls a BarrierApp.
func (a *applier) endBlock(b *topics.BlockEnd, written time.Time) error {
	app, ok := a.app.(BarrierApp)
	if !ok {
		return nil
	}
	if !a.inBlock {
		a.begin(b.Block, a.now.Input-1)
	}
	if err := app.EndBlock(a.overlay, a.partition, b, written); err != nil {
		return refusal(fmt.Sprintf("end of block %d", b.Block.Number), err)
	}
	return a.overlay.Err()
}

// chain records what a barrier says about the chain.
func (a *applier) chain(b *topics.BlockEnd, written time.Time) {
	a.now.Head, a.now.ObservedMs = b.Head, written.UnixMilli()
	final := b.Finalized
	if k := a.now.Rebuild; a.now.Input <= k.KeepUntil {
		final = min(final, max(k.KeepFrom, 1)-1)
	}
	a.now.Floor = max(a.now.Floor, final)
}

// revert reverts the last block.
func (a *applier) revert(b *topics.BlockRevert, offset int64) error {
	switch {
	case a.inBlock:
		return fmt.Errorf("%w: revert of block %d within block %d", ErrBroken, b.Block.Number, a.block.Number)
	case !b.Block.Same(a.now.At):
		return fmt.Errorf("%w: revert of block %d (%s), but the last block is %d (%s)", ErrBroken, b.Block.Number, b.Block.Hash, a.now.At.Number, a.now.At.Hash)
	case b.Head.Number >= b.Block.Number && b.Head.Hash != (common.Hash{}):
		return fmt.Errorf("%w: revert of block %d to block %d", ErrBroken, b.Block.Number, b.Head.Number)
	case b.Block.Number <= a.now.Floor:
		return &RebuildError{Partition: a.partition, Block: b.Block, Floor: a.now.Floor}
	}
	if err := a.overlay.Revert(b.Block, offset < a.now.Rebuild.Published); err != nil {
		return fmt.Errorf("revert block %d: %w", b.Block.Number, err)
	}
	a.unknown = 0
	a.now.At = b.Head
	a.now.Reverts++
	a.settled = false
	if a.dirty.IsZero() {
		a.dirty = time.Now()
	}
	return nil
}

// step applies a record of the raw topic.
func (t *task) step(ctx context.Context, rec *kafka.Record) error {
	if t.commands != nil {
		return t.command(ctx, rec)
	}
	settled, reverts := t.settled, t.now.Reverts
	b, again, err := t.applier.step(rec)
	if t.now.Reverts > reverts {
		t.n.metrics.reverts.WithLabelValues(label(t.r.partition)).Inc()
	}
	switch {
	case err != nil || b == nil:
		return err
	case again && settled:
		return t.heartbeat(ctx, b, rec)
	case again:
	default:
		if err := t.drain(ctx); err != nil {
			return err
		}
	}
	if b.Commit { // a repeated barrier is the one that a revert returned to
		t.settled = true
		return t.settle(ctx, b, rec.Timestamp)
	}
	return nil
}

// heartbeat takes over the chain's state from a repeated barrier, and calls a BarrierApp. A rebuild that passes it once more
// has nothing to add.
func (t *task) heartbeat(ctx context.Context, b *topics.BlockEnd, rec *kafka.Record) error {
	t.ready = t.now
	t.r.observe(b.Head, rec.Timestamp)
	t.age(rec.Timestamp)
	app, ok := t.app.(BarrierApp)
	if !ok || rec.Offset < t.now.Rebuild.Published {
		return nil
	}
	if t.overlay.Republished() { // what is emitted now is not
		if err := t.commit(ctx); err != nil {
			return err
		}
	}
	if err := app.Idle(t.overlay, t.r.partition, b, rec.Timestamp); err != nil {
		return refusal(fmt.Sprintf("after block %d", b.Block.Number), err)
	}
	if t.dirty.IsZero() && !t.overlay.Empty() {
		t.dirty = time.Now()
	}
	return t.overlay.Err()
}

// unreadable counts and logs a record that could not be decoded.
func (t *task) unreadable(rec *kafka.Record, err error) {
	t.n.metrics.unknown.WithLabelValues(label(t.r.partition)).Inc()
	t.n.logger.Warn("skipped a raw record that cannot be decoded", partitionField(t.r.partition), zap.Int64("offset", rec.Offset), zap.Error(err))
}

// settle handles a Commit barrier, after which a commit may end.
func (t *task) settle(ctx context.Context, b *topics.BlockEnd, written time.Time) error {
	t.ready = t.now
	t.uncommitted++
	t.ahead = false
	t.distance(b, written)
	if t.overlay.Empty() {
		// Nothing to commit: publish the new watermark now, and progress with the next commit (idle.go).
		t.dirty = time.Time{}
		t.publish(nil, t.applied(nil))
		t.pass()
		return nil
	}
	hidden := !t.catchUpUntil.IsZero() && near(b)
	switch {
	case t.full() || t.ready.Input > t.end && !t.ended || hidden && (t.tip || t.records > maxRecords):
		t.ended = t.ready.Input > t.end
		return t.commit(ctx)
	case t.tip:
		t.pass()
		return t.show(t.news())
	case hidden: // another partition may stand at this block
		snap, err := t.r.store.SnapshotWith(t.overlay)
		if err != nil {
			return err
		}
		t.publish(snap, nil)
	}
	return nil
}

// full reports whether a commit has enough records, bytes or time.
func (t *task) full() bool {
	c := &t.n.cfg
	t.hold()
	switch {
	case t.overlay.Bytes() >= t.commitBytes():
		return true
	case t.far:
		return time.Since(t.dirty) >= farInterval
	case t.releases():
		return true
	case t.tip && t.catchUpUntil.IsZero():
		return t.uncommitted >= tipCommit || t.now.Reverts > t.store.Progress.Reverts || time.Since(t.since) >= t.n.cfg.TipInterval
	}
	return t.records >= c.CommitRecords || time.Since(t.dirty) >= c.CommitInterval
}

// age is the age of the last record. Those that were there when the task began say nothing of the writer's clock.
func (t *task) age(written time.Time) time.Duration {
	return t.n.clock.age(written, t.now.Input > t.end+1)
}

// distance updates whether the task is at the tip or far behind, from a barrier.
func (t *task) distance(b *topics.BlockEnd, written time.Time) {
	age := t.age(written)
	t.tip = atTip(b, age)
	t.setFar(Far(b.Block.Number, b.Head) || age >= farAge)
}

func (t *task) setFar(far bool) {
	switch {
	case far && !t.far:
		t.n.far.Add(1)
	case t.far && !far:
		t.n.far.Add(-1)
	}
	t.far = far
	t.r.store.DeferCompactions(far)
}
