package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// published is what the topic holds: the barriers that may still be reverted and the one below them, oldest
// first.
type published struct {
	barriers []topics.BlockRef
	last     topics.BlockEnd           // the newest barrier; no hash: the topic is empty
	followed map[common.Address]joined // the tokens that are followed as of it, and since which block

	mark      mark // the filter of its transaction
	marked    bool // it has one
	unchecked unchecked
	headers   []kafka.Header // of the newest barrier that ends a transaction
}

// ErrTorn: partitions of the raw topic end at different blocks. Transactions span all partitions, so brokers
// have lost acknowledged records, and continuing would hide that.
var ErrTorn = errors.New("the raw topic has lost records: use another --kafka-prefix, or delete the topics and ingest again")

// readers is how many partitions are read back at a time.
const readers = 8

// readBack reads how the topic ends, and compares its filter with the deployment.
func (in *Ingester) readBack(ctx context.Context, tx *kafka.Transactor) (end published, err error) {
	err = kafka.Doubted(ctx, kafka.Doubt, ErrTorn, func() (err error) {
		end, err = in.readEnd(ctx)
		return err
	})
	if err != nil {
		return end, err
	}
	err = in.beating(ctx, tx, end, func(ctx context.Context) (err error) {
		end.followed, err = in.checkFilter(ctx, &end)
		return err
	})
	return end, err
}

// readEnd reads the topic's end from partition 0, since all partitions have the same barriers, and checks that
// the others end at the same barrier. The caller holds the transactional ID, so nothing is added meanwhile.
func (in *Ingester) readEnd(ctx context.Context) (published, error) {
	history, err := kafka.NewHistory(in.cfg.Kafka)
	if err != nil {
		return published{}, err
	}
	defer history.Close()
	var position published
	g, reading := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	g.Go(func() error {
		return in.barriers(reading, history, 0, func(b *topics.BlockEnd) (bool, error) {
			if position.barriers == nil {
				position.last = *b
			}
			position.barriers = append(position.barriers, b.Block)
			return b.Block.Number > position.last.Finalized, nil
		})
	})
	ends := make([]topics.BlockRef, in.cfg.Partitions)
	for partition := int32(1); partition < in.cfg.Partitions; partition++ {
		g.Go(func() error {
			return in.barriers(reading, history, partition, func(b *topics.BlockEnd) (bool, error) {
				ends[partition] = b.Block
				return false, nil
			})
		})
	}
	if err := g.Wait(); err != nil {
		return published{}, err
	}
	slices.Reverse(position.barriers)
	for partition, end := range ends {
		if partition > 0 && end != position.last.Block {
			return published{}, fmt.Errorf("%w: %s ends in partition %d at block %d %s, and in partition 0 at block %d %s", ErrTorn, in.topic,
				partition, end.Number, end.Hash, position.last.Block.Number, position.last.Block.Hash)
		}
	}
	if position.last.Block.Hash == (common.Hash{}) {
		return position, nil
	}
	if err := in.readMark(ctx, history, &position); err != nil {
		return published{}, fmt.Errorf("read the filter header of %s: %w", in.topic, err)
	}
	return position, nil
}

// barriers passes the barriers of a partition that are in force to take, each once, newest first, until it returns
// false. It holds none of them, however many there are.
func (in *Ingester) barriers(ctx context.Context, history *kafka.History, partition int32, take func(*topics.BlockEnd) (bool, error)) error {
	var (
		w   walk
		bad error
	)
	err := in.readRaw(ctx, history, partition, func(raw topics.Raw) bool {
		b, err := w.take(raw)
		more := err == nil
		if more && b != nil {
			more, err = take(b)
		}
		bad = err
		return more
	})
	if bad != nil {
		return bad
	}
	return err
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
			// Readers of the topic ignore it too: it is no barrier.
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

// walk processes the records of a partition from the last one backwards, and finds the barriers in force. A barrier
// may have been reverted, published again and repeated as a heartbeat.
//
// A revert names the barrier that was the last one after it. So between the newest record of that barrier and the
// revert nothing is in force: had it been reverted since, it could not have been the last one.
type walk struct {
	until topics.BlockRef  // the barrier below the reverted ones; no hash: nothing is skipped
	found *topics.BlockEnd // the last barrier in force that was found, which may be repeated
}

// take returns the barrier if it is one in force and was not found before.
func (w *walk) take(raw topics.Raw) (*topics.BlockEnd, error) {
	switch r := raw.(type) {
	case *topics.BlockRevert:
		if w.until.Hash == (common.Hash{}) {
			w.until = r.Head
		}
	case *topics.BlockEnd:
		if w.until.Hash != (common.Hash{}) && r.Block != w.until {
			return nil, nil //nolint:nilnil // not in force
		}
		w.until = topics.BlockRef{}
		above := w.found
		if above != nil && above.Block == r.Block {
			return nil, nil //nolint:nilnil // a repetition
		}
		w.found = r
		if above != nil && above.Linked && above.Previous != r.Block {
			return nil, fmt.Errorf("%w: block %d %s follows block %d %s, and in the topic block %d %s", ErrTorn,
				above.Block.Number, above.Block.Hash, above.Previous.Number, above.Previous.Hash, r.Block.Number, r.Block.Hash)
		}
		return r, nil
	}
	return nil, nil //nolint:nilnil // not a barrier
}
