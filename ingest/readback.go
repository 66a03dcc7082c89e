package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// published is what the topic holds: the barriers that may still be reverted and the one below them, oldest
// first.
type published struct {
	barriers []topics.BlockRef
	last     topics.BlockEnd // the newest barrier; no hash: the topic is empty
}

// ErrTorn: partitions of the raw topic end at different blocks. Transactions span all partitions, so brokers
// have lost acknowledged records, and continuing would hide that.
var ErrTorn = errors.New("the raw topic has lost records: use another --kafka-prefix, or delete the topics and ingest again")

// readBack reads the topic's end from partition 0, since all partitions have the same barriers, and checks that
// the others end at the same barrier. The caller holds the transactional ID, so nothing is added meanwhile.
func (in *Ingester) readBack(ctx context.Context) (published, error) {
	history, err := kafka.NewHistory(in.cfg.Kafka)
	if err != nil {
		return published{}, err
	}
	defer history.Close()
	back := walk{whole: in.cfg.Rewind}
	if err := in.readRaw(ctx, history, 0, back.take); err != nil {
		return published{}, err
	}
	stands, err := back.result()
	if err != nil {
		return published{}, err
	}
	for partition := int32(1); partition < in.cfg.Partitions; partition++ {
		var last topics.BlockEnd
		err := in.readRaw(ctx, history, partition, func(raw topics.Raw) bool {
			if end, ok := raw.(*topics.BlockEnd); ok {
				last = *end
			}
			return last == topics.BlockEnd{}
		})
		if err != nil {
			return published{}, err
		}
		if last.Block != stands.last.Block {
			return published{}, fmt.Errorf("%w: %s ends in partition %d at block %d %s, and in partition 0 at block %d %s", ErrTorn, in.topic,
				partition, last.Block.Number, last.Block.Hash, stands.last.Block.Number, stands.last.Block.Hash)
		}
	}
	return stands, in.checkFilter(ctx, history, stands.last.Block)
}

// readRaw passes the records of a partition to take, from the last one backwards, until it returns false.
func (in *Ingester) readRaw(ctx context.Context, history *kafka.History, partition int32, take func(topics.Raw) bool) error {
	var later error
	err := history.ReadBack(ctx, in.topic, partition, 0, func(r *kafka.Record) bool {
		raw, err := topics.DecodeRaw(r.Value)
		if errors.Is(err, topics.ErrLaterSchema) {
			later = fmt.Errorf("partition %d offset %d: %w", partition, r.Offset, err)
			return false
		}
		if err != nil {
			// Readers of the topic ignore it too: it is no barrier of ours.
			in.metrics.unknown.Inc()
			in.log.Warn("skipped a raw record that cannot be decoded", zap.Int32("partition", partition), zap.Int64("offset", r.Offset), zap.Error(err))
			return true
		}
		return take(raw)
	})
	if err = errors.Join(err, later); err != nil {
		return fmt.Errorf("read back %s: %w", in.topic, err)
	}
	return nil
}

// walk processes the records of a partition from the last one backwards.
//
// A barrier may have been reverted, published again and repeated as a heartbeat. So walk collects records until
// it finds a final barrier that no revert covers; result then replays them forward.
type walk struct {
	whole   bool         // include final barriers
	seen    []topics.Raw // barriers and reverts, newest first
	last    *topics.BlockEnd
	pending map[common.Hash]int // reverts whose barrier was not found yet
	met     common.Hash         // the last barrier found, whose repetitions may follow
}

// take processes a record and reports whether to continue.
func (w *walk) take(raw topics.Raw) bool {
	switch r := raw.(type) {
	case *topics.BlockRevert:
		w.seen = append(w.seen, r)
		if w.pending == nil {
			w.pending = map[common.Hash]int{}
		}
		w.pending[r.Block.Hash]++
		w.met = common.Hash{}
	case *topics.BlockEnd:
		if r.Block.Hash == w.met {
			return true
		}
		w.seen = append(w.seen, r)
		w.met = r.Block.Hash
		if w.pending[r.Block.Hash] > 0 {
			w.pending[r.Block.Hash]--
			return true
		}
		if w.last == nil {
			w.last = r
		}
		return w.whole || r.Block.Number > w.last.Finalized
	}
	return true
}

// result replays the collected records.
func (w *walk) result() (published, error) {
	var p published
	for _, raw := range slices.Backward(w.seen) {
		switch r := raw.(type) {
		case *topics.BlockEnd:
			p.barriers = append(p.barriers, r.Block)
		case *topics.BlockRevert:
			n := len(p.barriers)
			if n == 0 || p.barriers[n-1] != r.Block {
				return published{}, fmt.Errorf("revert of block %d %s does not take back the barrier before it", r.Block.Number, r.Block.Hash)
			}
			p.barriers = p.barriers[:n-1]
		}
	}
	if w.last != nil {
		p.last = *w.last
	}
	return p, nil
}
