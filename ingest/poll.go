package ingest

import (
	"context"
	"math"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/topics"
)

// poll is the result of polling the head.
type poll struct {
	head rpc.Announcement
	err  error
}

// tags is what came of a question about the endpoints' finalized and safe block. The client keeps the latter.
type tags struct {
	finalized *uint64 // nil: unavailable
}

// safeEvery: the safe block is fetched once in this many intervals of the finalized block.
const safeEvery = 5

// poll polls the head, one poll at a time, and at intervals the tags.
func (s *session) poll(ctx context.Context, g *errgroup.Group) {
	s.askTags(ctx, g)
	if s.polling {
		return
	}
	s.polling, s.polledAt = true, time.Now()
	verified := s.m.Tip().Number
	g.Go(func() error {
		var p poll
		p.head, p.err = s.in.client.Head(ctx, verified)
		s.polls <- p
		return nil
	})
}

// askTags fetches the finalized block, and less often the safe one, beside the head: slow answers do not delay it.
func (s *session) askTags(ctx context.Context, g *errgroup.Group) {
	if s.asking || s.known && time.Since(s.askedAt) < s.in.cfg.FinalizedEvery {
		return
	}
	s.asking, s.askedAt = true, time.Now()
	withSafe := s.known && s.in.cfg.Finality == FinalityTag && time.Since(s.safeAt) >= safeEvery*s.in.cfg.FinalizedEvery
	if withSafe {
		s.safeAt = time.Now()
	}
	g.Go(func() error {
		var t tags
		if n, err := s.final(ctx); err == nil {
			t.finalized = &n
		} else {
			s.in.log.Debug("cannot fetch the finalized block", zap.Error(err))
		}
		if withSafe {
			if err := s.in.client.AskSafe(ctx); err != nil {
				s.in.log.Debug("cannot fetch the safe block", zap.Error(err))
			}
		}
		s.tags <- t
		return nil
	})
}

// tagged takes the tags. again: the head must be polled, because no head counted without them.
func (s *session) tagged(t tags) (again bool) {
	s.asking = false
	if t.finalized == nil {
		return false
	}
	final := topics.BlockRef{Number: *t.finalized, Hash: s.in.client.FinalizedHash(*t.finalized)}
	if s.m.Names(final) { // heads still count: they lead to its chain
		s.in.log.Warn("the finalized block is not the block that was ingested: nothing becomes final until its chain is followed",
			zap.Uint64("block", final.Number), zap.Stringer("hash", final.Hash))
		s.in.client.RecheckChain()
	}
	again = !s.known
	s.finalized, s.known = *t.finalized, true
	return again
}

// safeUpTo is the number up to which the verified chain is safe, as far as endpoints have said so of its own blocks. What took
// the place of a safe block is not safe until one of them says so.
func (s *session) safeUpTo() uint64 {
	safe, known := s.m.Shared(s.safe)
	if !known { // the chain has become shorter
		safe = s.m.Floor()
	}
	if b := s.in.client.Safe(s.m.Shared); b.Number > min(safe, s.m.Floor()) {
		s.safe, safe = b, b.Number
	}
	return safe
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
	if !s.in.client.Counts(p.head) {
		return nil
	}
	return s.announce(p.head, s.in.client.Newest())
}

// pollAgain is when to poll the head after a hint: endpoints may send hints at any rate.
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
