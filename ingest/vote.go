package ingest

import (
	"context"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// votes are those on what is to be final: one at a time, beside everything else.
type votes struct {
	running bool
	over    chan vote
	next    time.Time
}

// vote is the result of one.
type vote struct {
	due  topics.BlockRef
	most follow.Header
	err  error
}

func newVotes() votes { return votes{over: make(chan vote, 1)} }

// finalizeMore puts the next block that is to be final to the vote: where none waits for it, at most one every
// FinalizedEvery.
func (s *session) finalizeMore(ctx context.Context, g *errgroup.Group) {
	if s.votes.running || time.Now().Before(s.votes.next) {
		return
	}
	due, ok := s.m.Due()
	if !ok {
		return
	}
	s.votes.running = true
	g.Go(func() error {
		most, err := s.in.client.Vote(ctx, due.Number, true)
		s.votes.over <- vote{due, most, err}
		return nil
	})
}

// voted takes the result of a vote.
func (s *session) voted(v vote) {
	s.votes.running = false
	if v.err != nil || v.most.Hash != v.due.Hash || !s.m.Backfills() && !s.m.Held() {
		s.votes.next = time.Now().Add(s.in.cfg.FinalizedEvery)
	}
	switch {
	case v.err != nil:
		s.disputed(v.err)
	case v.most.Hash == v.due.Hash:
		s.disputed(nil)
		s.m.Vouched(v.due)
	default:
		s.in.log.Warn("most endpoints have another block than was ingested", zap.Uint64("block", v.due.Number), zap.Stringer("hash", v.due.Hash), zap.Stringer("theirs", v.most.Hash))
		s.challenge(v.most)
	}
}

// low takes a head that is too low to be followed. If it is on another chain, that of the higher ones may be made up.
func (s *session) low(h follow.Header) {
	if s.m.Contradicts(h.BlockRef) {
		s.challenge(h)
	}
}

func (s *session) challenge(h follow.Header) {
	if s.m.Challenge(h) {
		s.drop()
	}
}

// disputed records why the endpoints' chain is not known; nil: it is.
func (s *session) disputed(err error) {
	what := ""
	if err != nil {
		what = err.Error()
	}
	if was := s.in.status.get().Disputed; (was == "") != (what == "") {
		if err != nil {
			s.in.log.Warn("nothing becomes final until the endpoints agree", zap.Error(err))
		} else {
			s.in.log.Info("the endpoints agree again")
		}
	}
	s.in.status.update(func(st *Status) { st.Disputed = what })
}
