package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// What counts as the tip, where each block is a commit: close to the chain's head and just written. An old
// record was at the tip when it was written; reading it again is a backfill.
const (
	tipBlocks = 64
	tipAge    = 2 * time.Second
)

// What counts as far behind: a backfill, or a rebuild.
const (
	farBlocks   = 512
	farAge      = 10 * time.Second
	farInterval = time.Second
)

// Far says that a block is so far behind the head that only a backfill passes it.
func Far(block, head uint64) bool { return head > block+farBlocks }

// step applies a record of the raw topic.
func (t *task) step(ctx context.Context, rec *kafka.Record) error {
	raw, err := t.raw.Decode(rec.Value)
	if err != nil {
		// It stays in the raw topic, for whoever will know it. Had it been a barrier, the next one's
		// count tells.
		t.unknown++
		t.n.metrics.unknown.WithLabelValues(label(t.r.partition)).Inc()
		t.n.logger.Warn("raw record passed over", partitionField(t.r.partition), zap.Int64("offset", rec.Offset), zap.Error(err))
		t.now.Input = rec.Offset + 1
		return nil
	}
	t.now.Input = rec.Offset + 1
	switch raw := raw.(type) {
	case *topics.Log:
		return t.apply(raw, raw.Block, rec.Offset)
	case *topics.Probe:
		return t.apply(raw, raw.Block, rec.Offset)
	case *topics.BlockEnd:
		return t.blockEnd(ctx, raw, rec.Timestamp)
	case *topics.BlockRevert:
		return t.revert(raw, rec.Offset)
	}
	return fmt.Errorf("%w: %T", ErrBroken, raw)
}

// apply hands a record to the application.
func (t *task) apply(raw topics.Raw, block topics.BlockRef, offset int64) error {
	if !t.inBlock {
		if block.Number <= t.now.At.Number && t.now.At != (topics.BlockRef{}) {
			return fmt.Errorf("%w: record of block %d after block %d ended", ErrBroken, block.Number, t.now.At.Number)
		}
		t.inBlock, t.block = true, block
		t.begin(block, offset)
	} else if block != t.block {
		return fmt.Errorf("%w: record of block %d (%s) within block %d (%s)", ErrBroken, block.Number, block.Hash, t.block.Number, t.block.Hash)
	}
	t.seen++
	t.records++
	t.settled = false
	if err := t.n.app.Apply(t.overlay, raw); err != nil {
		return fmt.Errorf("%w: block %d: %w", ErrApp, block.Number, err)
	}
	return t.overlay.Err()
}

func (t *task) begin(block topics.BlockRef, offset int64) {
	if t.dirty.IsZero() {
		t.dirty = time.Now()
	}
	t.overlay.Begin(block, block.Number > t.now.Floor)
	if b := t.now.Rebuild; offset < b.Published {
		t.overlay.Published(block.Number <= b.Settled)
	}
}

// blockEnd ends a block.
func (t *task) blockEnd(ctx context.Context, b *topics.BlockEnd, written time.Time) error {
	if same(b.Block, t.now.At) {
		return t.heartbeat(ctx, b, written)
	}
	switch at := t.now.At; {
	case at != (topics.BlockRef{}) && b.Block.Number <= at.Number:
		return fmt.Errorf("%w: block %d ends after block %d", ErrBroken, b.Block.Number, at.Number)
	case at != (topics.BlockRef{}) && b.Block.Number == at.Number+1 && b.Parent != at.Hash:
		return fmt.Errorf("%w: parent of block %d is %s, but block %d is %s", ErrBroken, b.Block.Number, b.Parent, at.Number, at.Hash)
	case t.inBlock && b.Block != t.block:
		return fmt.Errorf("%w: records of block %d (%s) end as block %d (%s)", ErrBroken, t.block.Number, t.block.Hash, b.Block.Number, b.Block.Hash)
	case b.Records < t.seen || b.Records > t.seen+t.unknown:
		return fmt.Errorf("%w: block %d ends after %d records (%d unknown), %d were written", ErrBroken, b.Block.Number, t.seen, t.unknown, b.Records)
	}
	t.inBlock, t.seen, t.unknown = false, 0, 0
	t.now.At = b.Block
	t.chain(b, written)
	if !b.Commit {
		t.settled = false
		return nil
	}
	return t.settle(ctx, b, written)
}

// settle is a Commit barrier: where a commit may end.
func (t *task) settle(ctx context.Context, b *topics.BlockEnd, written time.Time) error {
	t.ready, t.settled = t.now, true
	t.distance(b, written)
	if t.overlay.Empty() {
		// Nothing to commit. The watermark moves now, progress with the next commit or in a while.
		t.dirty = time.Time{}
		t.move()
		t.publish(nil, t.applied(nil))
		return nil
	}
	if t.full() || t.tip || t.ready.Input > t.end && !t.ended {
		t.ended = t.ready.Input > t.end
		return t.commit(ctx)
	}
	return nil
}

// move asks for a commit in a while, of progress only if nothing else comes.
func (t *task) move() {
	if t.moved.IsZero() {
		t.moved = time.Now()
	}
}

// chain notes what a barrier says of the chain.
func (t *task) chain(b *topics.BlockEnd, written time.Time) {
	t.now.Head, t.now.ObservedMs = b.Head, written.UnixMilli()
	final := b.Finalized
	if k := t.now.Rebuild; t.now.Input <= k.KeepUntil {
		final = min(final, max(k.KeepFrom, 1)-1)
	}
	t.now.Floor = max(t.now.Floor, final)
}

// heartbeat is the last barrier again: the chain is quiet and the ingester alive.
func (t *task) heartbeat(ctx context.Context, b *topics.BlockEnd, written time.Time) error {
	if t.inBlock {
		return fmt.Errorf("%w: block %d ended again within block %d", ErrBroken, b.Block.Number, t.block.Number)
	}
	t.unknown = 0
	t.chain(b, written)
	if !t.settled && b.Commit {
		return t.settle(ctx, b, written) // the first barrier after a revert may be the one it went back to
	}
	if t.settled {
		if t.now.Floor > t.ready.Floor {
			t.move() // a commit tells what is final now
		}
		t.ready = t.now
		t.r.observe(b.Head, written)
	}
	return nil
}

// full says that a commit spans enough.
func (t *task) full() bool {
	c := &t.n.cfg
	if t.overlay.Bytes() >= c.CommitBytes/int(max(t.n.far.Load(), 1)) {
		return true
	}
	if t.far {
		return time.Since(t.dirty) >= farInterval
	}
	return t.records >= c.CommitRecords || time.Since(t.dirty) >= c.CommitInterval
}

// distance notes whether the task is at the tip, or far behind it, as a barrier tells.
func (t *task) distance(b *topics.BlockEnd, written time.Time) {
	t.tip = b.Block.Number+tipBlocks >= b.Head && time.Since(written) < tipAge
	far := Far(b.Block.Number, b.Head) || time.Since(written) >= farAge
	switch {
	case far && !t.far:
		t.n.far.Add(1)
	case t.far && !far:
		t.n.far.Add(-1)
	}
	t.far = far
}

// revert takes the last block back.
func (t *task) revert(b *topics.BlockRevert, offset int64) error {
	switch {
	case t.inBlock:
		return fmt.Errorf("%w: revert of block %d within block %d", ErrBroken, b.Block.Number, t.block.Number)
	case !same(b.Block, t.now.At):
		return fmt.Errorf("%w: revert of block %d (%s), but the last is %d (%s)", ErrBroken, b.Block.Number, b.Block.Hash, t.now.At.Number, t.now.At.Hash)
	case b.Head.Number >= b.Block.Number && b.Head.Hash != (common.Hash{}):
		return fmt.Errorf("%w: revert of block %d to block %d", ErrBroken, b.Block.Number, b.Head.Number)
	case b.Block.Number <= t.now.Floor:
		return &ErrRebuild{Partition: t.r.partition, Block: b.Block, Floor: t.now.Floor}
	}
	if err := t.overlay.Revert(b.Block, offset < t.now.Rebuild.Published); err != nil {
		return fmt.Errorf("revert block %d: %w", b.Block.Number, err)
	}
	t.unknown = 0
	t.now.At = b.Head
	t.now.Reverts++
	t.settled = false
	if t.dirty.IsZero() {
		t.dirty = time.Now()
	}
	t.n.metrics.reverts.WithLabelValues(label(t.r.partition)).Inc()
	return nil
}
