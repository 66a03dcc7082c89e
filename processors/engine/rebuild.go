package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// rebuild begins a new generation of the changelog, which so far ends as last says: the state is dropped, and the raw topic is
// reprocessed from its start.
//
// What readers of the topics see: an entity topic gets every row again, and a tombstone for every row that no
// longer exists, as a compacted topic allows. An event topic gets no duplicates: events that the previous generation
// published are skipped. Reverts of blocks that were final, which a rebuild is meant to repair, are applied
// like any other: the raw topic is scanned once for them, and undo records are kept from the lowest such block
// until they have passed. The topic of final events is not corrected.
func (t *task) rebuild(ctx context.Context, last life) (now life, err error) {
	former, err := t.n.moved(ctx, t.r.partition, last.progress)
	if err != nil {
		return now, err
	}
	now = life{generation: last.generation + 1, progress: unopened().Progress}
	p := &now.progress
	p.Rebuild.Begin = last.end + 1
	p.Rebuild.Published, p.Rebuild.Settled = former.Input, former.Floor
	// An aborted rebuild had published no more than the generation before it.
	p.Rebuild.Published = max(p.Rebuild.Published, former.Rebuild.Published)
	p.Rebuild.Settled = max(p.Rebuild.Settled, former.Rebuild.Settled)
	if p.Rebuild.KeepFrom, p.Rebuild.KeepUntil, err = t.deepReverts(ctx, former); err != nil {
		return now, err
	}
	if err := t.n.wipe(t.r); err != nil {
		return now, err
	}
	t.n.logger.Warn("rebuilding from the raw topic", partitionField(t.r.partition), zap.Uint64("generation", now.generation),
		zap.Int64("published", p.Rebuild.Published), zap.Uint64("keepFrom", p.Rebuild.KeepFrom))
	return now, t.open(ctx, t.changelogRecord(keyProgress, sealProgress(now.generation, *p, 0)))
}

// life is how a changelog ends.
type life struct {
	generation uint64
	progress   progress // the last one
	end        int64    // offset of the last record; -1: it is empty
}

// lastLife reads how the changelog ends, also where a newer build wrote it. Records that cannot be decoded are skipped, because a
// rebuild repairs them too, but the generation is that of the newest record that names one.
func (n *Node) lastLife(ctx context.Context, partition int32) (life, error) {
	return n.lifeAfter(ctx, partition, noLife())
}

func noLife() life { return life{progress: unopened().Progress, end: -1} }

// lifeAfter is lastLife of a changelog that was known to end so before.
func (n *Node) lifeAfter(ctx context.Context, partition int32, before life) (life, error) {
	last, named := before, false
	err := n.history.ReadBack(ctx, n.changelog, partition, 0, func(r *kafka.Record) bool {
		if r.Offset <= before.end {
			return false
		}
		last.end = max(last.end, r.Offset)
		isProgress := bytes.Equal(r.Key, keyProgress)
		if r.Value == nil || bytes.Equal(r.Key, keyOpen) || named && !isProgress {
			return true
		}
		generation, payload, err := unseal(r.Key, r.Value)
		if err != nil && !errors.Is(err, state.ErrNewer) {
			return true
		}
		if !named {
			last.generation, named = generation, true
		}
		if !isProgress {
			return true
		}
		p, _, err := decodeProgress(payload)
		if err != nil {
			return true
		}
		last.progress = p
		return false
	})
	return last, err
}

// still reads how the changelog ends, and checks that our open record is its last record. If it is not, another owner was active
// while we read, and compaction may have replaced entries before our open record by later ones.
func (t *task) still(ctx context.Context) (last life, err error) {
	last, err = t.n.lastLife(ctx, t.r.partition)
	switch open := t.incarnation; {
	case err != nil:
	case last.end < open:
		err = fmt.Errorf("%w: our open record is at offset %d, the last record that the brokers report at %d", errOldEnd, open, last.end)
	case last.end > open:
		err = fmt.Errorf("%w: the changelog has records up to offset %d after our open record at %d", kafka.ErrFenced, last.end, open)
	}
	return last, err
}

// lastOffset is the offset of the last record of a partition; -1: it is empty.
func (n *Node) lastOffset(ctx context.Context, topic string, partition int32) (int64, error) {
	last := int64(-1)
	err := n.history.ReadBack(ctx, topic, partition, 1, func(r *kafka.Record) bool {
		last = r.Offset
		return false
	})
	return last, err
}

// deepReverts finds the reverts of blocks that were final: the lowest such block, and the offset after the last
// such revert. Below the former generation's input position these are the ones that it knew; at any other it would
// have stopped. The rest of the raw partition is scanned.
func (t *task) deepReverts(ctx context.Context, former progress) (from uint64, until int64, err error) {
	start, floor := int64(startOffset), uint64(0)
	if former.Input > former.Rebuild.KeepUntil { // the former generation passed them, and its floor is the chain's again
		start, floor = former.Input, former.Floor
		from, until = former.Rebuild.KeepFrom, former.Rebuild.KeepUntil
	}
	end, err := t.n.lastOffset(ctx, t.n.input, t.r.partition)
	if err != nil || end < start || end < 0 {
		return from, until, err
	}
	read, err := t.n.consumer.Open(t.n.input, t.r.partition, start)
	if err != nil {
		return 0, 0, err
	}
	defer read.Close()
	var (
		records []*kafka.Record
		decoder topics.RawDecoder
	)
	for {
		if records, err = read.Poll(ctx, records); err != nil {
			return 0, 0, fmt.Errorf("scan the raw topic for reverts: %w", err)
		}
		for _, rec := range records {
			if len(rec.Key) == 0 {
				switch raw, _ := decoder.Decode(rec.Value); raw := raw.(type) {
				case *topics.BlockEnd:
					floor = max(floor, raw.Finalized)
				case *topics.BlockRevert:
					if n := raw.Block.Number; n <= floor {
						if until == 0 || n < from {
							from = n
						}
						until = rec.Offset + 1
					}
				}
			}
			if rec.Offset >= end {
				return from, until, nil
			}
		}
	}
}
