package ingest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/pause"
)

// standBy waits until the active ingester was silent for TakeoverAfter. An active ingester writes a barrier every
// Heartbeat even on an idle chain, so a topic that does not grow has no writer. first: an ingester that has just
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
			before, since = ends, time.Now()
		case time.Since(since) >= in.cfg.TakeoverAfter:
			in.log.Info("the active ingester writes nothing, taking over", zap.String("topic", in.topic))
			return nil
		}
		if err := pause.For(ctx, in.cfg.Heartbeat/4); err != nil {
			return err
		}
	}
}
