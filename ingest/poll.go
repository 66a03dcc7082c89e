package ingest

import (
	"context"
	"math"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/ingest/rpc"
)

// poll is the result of polling the head.
type poll struct {
	head      rpc.Announcement
	finalized *uint64 // nil: not polled, or unavailable
	safe      uint64  // 0: not polled, or unavailable
	asked     bool    // polled, but unavailable
	err       error
}

// safeEvery is how many polls of the finalized block there are for each of the safe block.
const safeEvery = 5

// poll polls the head, and at intervals the finalized and the safe block; one poll at a time.
func (s *session) poll(ctx context.Context, g *errgroup.Group) {
	if s.polling {
		return
	}
	s.polling, s.polledAt = true, time.Now()
	withFinalized := !s.known || time.Since(s.askedAt) >= s.in.cfg.FinalizedEvery
	withSafe := s.known && s.in.cfg.Finality == FinalityTag && time.Since(s.safeAt) >= safeEvery*s.in.cfg.FinalizedEvery
	if withSafe {
		s.safeAt = time.Now()
	}
	verified, known := s.m.Tip().Number, s.known
	g.Go(func() error {
		var p poll
		p.head, p.err = s.in.client.Head(ctx, verified)
		if p.err == nil && withFinalized {
			if n, err := s.final(ctx); err == nil {
				p.finalized = &n
			} else if p.asked = true; !known {
				p.err = err
			}
		}
		if p.err == nil && withSafe {
			p.safe, _ = s.in.client.Safe(ctx) // on an error it keeps its value
		}
		s.polls <- p
		return nil
	})
}

// final is the number up to which the chain, or the configuration, guarantees that nothing changes.
func (s *session) final(ctx context.Context) (uint64, error) {
	if s.in.cfg.Finality == FinalityWindow {
		return math.MaxUint64, nil
	}
	return s.in.client.Finalized(ctx)
}

func (s *session) polled(p poll) error {
	s.polling = false
	if p.err != nil {
		s.in.log.Debug("cannot fetch the head", zap.Error(p.err))
		return nil //nolint:nilerr // the next poll tries again, and the head's age shows the failure
	}
	if p.asked {
		s.askedAt = time.Now()
	}
	if p.safe > 0 {
		s.safe = p.safe
	}
	if p.finalized != nil {
		s.finalized, s.known, s.askedAt = *p.finalized, true, time.Now()
	}
	if !s.in.client.Counts(p.head) {
		return nil
	}
	return s.announce(p.head, s.in.client.Newest())
}

// pollAgain is when to poll the head because something hints at another one: any endpoint may hint, as often as it likes.
func (s *session) pollAgain() time.Duration {
	return max(0, s.in.cfg.PollInterval-time.Since(s.polledAt))
}

// pollAfter is when to poll the head next: rarely while heads are announced.
func (s *session) pollAfter() time.Duration {
	if s.in.client.Subscribed() {
		return s.in.cfg.PollBackup
	}
	return s.in.cfg.PollInterval
}
