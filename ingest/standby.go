package ingest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/pause"
)

// standBy waits until the active ingester was silent for TakeoverAfter. An active ingester writes a barrier every
// Heartbeat even on an idle chain, so a topic that gets no records has no writer. first: an ingester that has just
// started does not wait if the topic was never written. One that was fenced always waits; otherwise two would fence
// each other for ever.
func (in *Ingester) standBy(ctx context.Context, first bool) error {
	in.status.phase(PhaseStandby)
	in.log.Info("standing by", zap.String("topic", in.topic), zap.Duration("takeover", in.cfg.TakeoverAfter))
	admin, err := kafka.NewAdmin(in.cfg.Kafka)
	if err != nil {
		return fmt.Errorf("stand by: %w", err)
	}
	defer admin.Close()
	var before []int64
	since := time.Now()
	for {
		ends, err := admin.EndOffsets(ctx, in.topic)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			// An unavailable broker says nothing about the other ingester.
			in.log.Warn("cannot read the end of the topic", zap.String("topic", in.topic), zap.Error(err))
			since = time.Now()
		case first && before == nil && !slices.ContainsFunc(ends, func(at int64) bool { return at > 0 }):
			in.log.Info("the raw topic has no writer yet, taking over", zap.String("topic", in.topic))
			return nil
		case !slices.Equal(before, ends):
			stable, err := admin.StableOffsets(ctx, in.topic)
			if err != nil || grew(before, ends, stable) {
				since = time.Now()
			}
			before = ends
		case time.Since(since) >= in.cfg.TakeoverAfter:
			in.log.Info("the active ingester writes nothing, taking over", zap.String("topic", in.topic))
			return nil
		}
		if err := pause.For(ctx, in.cfg.Heartbeat/4); err != nil {
			return err
		}
	}
}

// grew reports whether a topic has records that it had not before. Where one record alone was added, and all transactions before it have
// ended, it is the end of one that was aborted, as brokers do with that of an ingester that is gone. stable may be
// newer than ends.
func grew(before, ends, stable []int64) bool {
	if len(before) != len(ends) || len(stable) != len(ends) {
		return true
	}
	for p, end := range ends {
		if end != before[p] && (end != before[p]+1 || stable[p] != end) {
			return true
		}
	}
	return false
}

// beating repeats the topic's last barrier while work before a session's first block goes on, so that no standby takes
// over from an ingester that is starting. As in a session, only while an endpoint returns the head: another ingester
// may have one that does. The barrier keeps its headers: whether the deployment fits them is perhaps not known yet.
func (in *Ingester) beating(ctx context.Context, tx *kafka.Transactor, end published, work func(context.Context) error) error {
	if end.last.Block.Hash == (common.Hash{}) {
		return work(ctx) // there is no barrier yet
	}
	p := newPublisher(tx, in.topic, in.cfg.Partitions, in.decoder, end)
	p.headers = func() []kafka.Header { return end.headers }
	over := make(chan struct{})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(over)
		return work(ctx)
	})
	g.Go(func() error {
		every := in.cfg.Heartbeat / 2
		beat := time.NewTicker(every)
		defer beat.Stop()
		for {
			select {
			case <-over:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			case <-beat.C:
			}
			bounded, cancel := context.WithTimeout(ctx, every)
			_, err := in.client.Head(bounded, end.last.Block.Number)
			cancel()
			if err != nil {
				continue
			}
			if err := p.repeat(ctx, end.last.Head, end.last.Finalized, end.last.Safe); err != nil {
				return err
			}
			in.metrics.heartbeats.Inc()
		}
	})
	return g.Wait()
}
