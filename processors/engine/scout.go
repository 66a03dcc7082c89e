package engine

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// scout reads one partition of the raw topic ahead of the tasks that are far behind the head, for what is final there. All
// partitions have the same barriers and reverts, in the same order, so one of them tells for all, and for a fraction of
// what a task needs for its records. What a task has fetched reaches no further than the window of blocks that may be
// reverted, where blocks have many logs.
type scout struct {
	starts chan rawPoint // where to begin, of a task

	mu    sync.Mutex
	final map[era]uint64 // the highest block that a barrier calls final
}

// maxEras bounds the eras that are remembered. Forgetting one only means that undo is written needlessly.
const maxEras = 1024

// era is a stretch of the raw topic between two reverts.
type era struct {
	topic   kafka.TopicID
	reverts uint64 // before it
}

// rawPoint is a place in a partition of the raw topic.
type rawPoint struct {
	era
	partition int32
	input     int64
}

func newScout() *scout { return &scout{starts: make(chan rawPoint), final: map[era]uint64{}} }

// foresees returns the highest block that is final by the barriers before the next revert, as far as is known, for a task at
// the given place. If nobody reads ahead, it starts that.
func (s *scout) foresees(at rawPoint) uint64 {
	select {
	case s.starts <- at:
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.final[at.era]
}

func (s *scout) saw(in era, final uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.final[in]; !known && len(s.final) >= maxEras {
		clear(s.final)
	}
	s.final[in] = max(s.final[in], final)
}

// runScout reads ahead for as long as a task is far behind the head.
func (n *Node) runScout(ctx context.Context) error {
	for {
		select {
		case at := <-n.scout.starts:
			if err := n.readAhead(ctx, at); err != nil && ctx.Err() == nil {
				n.logger.Warn("cannot read ahead to learn which blocks are final: the backfill is slower", partitionField(at.partition), zap.Error(err))
				wait(ctx, maxPause)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (n *Node) readAhead(ctx context.Context, at rawPoint) error {
	r, err := kafka.NewReader(n.cfg.Kafka, n.input, at.partition, at.input, kafka.ReaderOptions{MaxBytes: n.cfg.FetchBytes})
	if err != nil {
		return err
	}
	defer r.Close()
	var (
		records []*kafka.Record
		decoder topics.RawDecoder
	)
	for n.far.Load() > 0 {
		short, cancel := context.WithTimeout(ctx, time.Second)
		records, err = r.Poll(short, records)
		cancel()
		if err != nil && short.Err() == nil || ctx.Err() != nil {
			return err
		}
		for _, rec := range records {
			if len(rec.Key) > 0 {
				continue
			}
			switch raw, _ := decoder.Decode(rec.Value); raw := raw.(type) {
			case *topics.BlockEnd:
				n.scout.saw(at.era, raw.Finalized)
			case *topics.BlockRevert:
				at.reverts++
			}
		}
	}
	return nil
}
