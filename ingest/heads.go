package ingest

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/rpc"
)

// takeHeads takes the heads that subscriptions reported. One that must be confirmed, or does not match its hash, is a
// reason to poll.
func (s *session) takeHeads(ask *time.Timer) (err error) {
	all, hint := s.in.client.Announced()
	for _, a := range all {
		switch {
		case !a.New:
		case a.Number < s.m.Floor():
			s.in.metrics.low.Inc() // only a poll decides whether the chain ends there
		case !s.in.client.Plausible(a.Number, s.m.Tip().Number):
			hint = true
		default:
			err = errors.Join(err, s.announce(a, all))
		}
	}
	if hint {
		ask.Reset(s.pollAgain())
	}
	return err
}

// announce passes a head to the machine, once the finalized block is known: final blocks are never reverted, so
// finality must not be guessed too high. all are the newest heads of all endpoints.
func (s *session) announce(a rpc.Announcement, all []rpc.Announcement) error {
	if !s.known {
		return nil
	}
	if a.Number < s.m.Floor() && highest(all) >= s.m.Floor() {
		s.in.metrics.low.Inc()
		return nil
	}
	now := time.Now()
	taken, err := s.m.Announce(a.Header, s.finalized)
	if taken {
		s.followedHead = a
	}
	if err != nil {
		s.in.client.RecheckChain() // it may be another chain
	}
	switch {
	case err == nil:
		s.shortAt = time.Time{}
	case s.shortAt.IsZero():
		s.shortAt = now
		s.in.log.Warn("the chain ends below the topic, waiting", zap.Duration("patience", s.in.cfg.ShortPatience), zap.Error(err))
	case now.Sub(s.shortAt) > s.in.cfg.ShortPatience:
		return err
	}
	s.in.status.update(func(st *Status) { st.Head, st.HeadAt = s.head(), now })
	return nil
}

// head is the published head of the chain: the verified block, and above that the head that two endpoints reached, or
// a confirmed one.
func (s *session) head() uint64 {
	return max(s.m.Tip().Number, min(s.m.Head(), s.in.client.HeadOfTwo()))
}

func highest(all []rpc.Announcement) (top uint64) {
	for _, a := range all {
		top = max(top, a.Number)
	}
	return top
}
