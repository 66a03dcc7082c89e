package ingest

import (
	"context"
	"errors"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/topics"
)

// votes run concurrently with everything else: at most one on the next final block, and one on the newest blocks.
//
// Any endpoint can cause a vote with a head that contradicts the known chain, at no cost. So no fetch waits for a
// vote, and an endpoint that caused one must wait for the next, longer each time that the vote changed nothing.
type votes struct {
	running     [voteKinds]bool
	over        chan vote
	next        time.Time    // of the next onFinal vote, if no block waits for it
	refused     bool         // the last onFinal vote did not confirm the block
	rivals      []rivalPause // by endpoint
	changed     time.Time    // when a change of chain was last under way: earlier heads may be of the replaced chain
	unconfirmed unconfirmedBlock
}

type voteKind uint8

const (
	onFinal       voteKind = iota
	onRival                // a head contradicts the known chain
	onUnconfirmed          // a block at the tip that perhaps only one endpoint has

	voteKinds
)

// rivalPause is how long an endpoint waits before it can ask for another vote.
type rivalPause struct {
	until time.Time
	wait  time.Duration
}

const minRivalPause, maxRivalPause = 200 * time.Millisecond, 5 * time.Second

// unconfirmedBlock is the oldest block at the tip that fewer than two endpoints have reported.
type unconfirmedBlock struct {
	block topics.BlockRef // zero hash: there is none
	since time.Time
	were  uint64          // the highest head of endpoints that ended below it
	seen  topics.BlockRef // the last block that two endpoints reported
	pace  pace
}

// pace is the rate of blocks that two endpoints reported.
type pace struct {
	number uint64 // of the last block
	at     time.Time
	every  time.Duration // average time between two blocks
}

// vote is the result of one.
type vote struct {
	kind  voteKind
	block topics.BlockRef // onFinal, onUnconfirmed: ours
	rival rpc.Announcement
	most  follow.Header
	below []follow.Header // onUnconfirmed: where most endpoints end, if that is below
	err   error
}

func newVotes(endpoints int) votes {
	return votes{over: make(chan vote, voteKinds), rivals: make([]rivalPause, endpoints)}
}

// finalizeMore starts a vote on the next block that is to be final: one every FinalizedEvery, or at once if blocks
// wait for it and the last vote confirmed its block.
func (s *session) finalizeMore(ctx context.Context, g *errgroup.Group) {
	waits := !s.votes.refused && (s.m.Backfills() || s.m.Held())
	if s.votes.running[onFinal] || !waits && time.Now().Before(s.votes.next) {
		return
	}
	due, ok := s.m.Due()
	if !ok {
		return
	}
	s.vote(g, vote{kind: onFinal, block: due}, func(v *vote) { v.most, v.err = s.in.client.Vote(ctx, due.Number, true) })
}

func (s *session) vote(g *errgroup.Group, v vote, ask func(*vote)) {
	s.in.client.Final(s.m.Floor())
	s.votes.running[v.kind] = true
	g.Go(func() error {
		ask(&v)
		s.votes.over <- v // has room
		return nil
	})
}

// contest starts a vote on a head that contradicts the known chain; without one, on a block at the tip that fewer than
// two endpoints have reported for a while.
func (s *session) contest(ctx context.Context, g *errgroup.Group) {
	now, tip := time.Now(), s.m.Tip()
	if s.m.Contested() {
		s.votes.changed = now
		return
	}
	if len(s.votes.rivals) < 2 || s.votes.running[onRival] || s.votes.running[onUnconfirmed] {
		return
	}
	all := s.in.client.Newest()
	for _, a := range all {
		if s.m.Contradicts(a.Header) && a.At.After(s.votes.changed) && now.After(s.votes.rivals[a.By].until) {
			at := min(a.Number, tip.Number)
			s.vote(g, vote{kind: onRival, rival: a}, func(v *vote) { v.most, v.err = s.in.client.Vote(ctx, at, false) })
			return
		}
	}
	u := &s.votes.unconfirmed
	u.update(s.m, all, now)
	if u.block.Hash != (common.Hash{}) && now.Sub(u.since) > u.patience(&s.in.cfg.RPC) {
		block, were := u.block, u.were
		s.vote(g, vote{kind: onUnconfirmed, block: block}, func(v *vote) { v.below, v.most, v.err = s.in.client.Lacked(ctx, block.Number, were) })
	}
}

// update finds the block.
func (u *unconfirmedBlock) update(m *follow.Machine, all []rpc.Announcement, now time.Time) {
	by := 0
	for _, a := range all {
		if a.Number >= u.block.Number && m.Has(a.BlockRef) {
			by++
		}
	}
	if by > 1 {
		u.seen = u.block
		u.pace.add(u.block.Number, now)
	}
	if by > 1 || !m.Has(u.block) {
		u.block, u.since = topics.BlockRef{}, now
	}
	if tip := m.Tip(); u.block.Hash == (common.Hash{}) && tip != u.seen && tip.Number+followLag >= m.Head() {
		u.block, u.since = tip, now
		u.others(all)
	}
}

func (p *pace) add(number uint64, now time.Time) {
	if number <= p.number {
		return
	}
	if !p.at.IsZero() {
		p.every += (now.Sub(p.at)/time.Duration(min(number-p.number, maxApart)) - p.every) / 8
	}
	p.number, p.at = number, now
}

const maxApart = 1 << 20 // maximum distance of two blocks

// patience is how long one endpoint alone may have a block: on a slow chain as long as a block takes, so that late
// endpoints have come nearer by then.
func (u *unconfirmedBlock) patience(cfg *rpc.Config) time.Duration {
	return max(cfg.Hasty(), min(u.pace.every, cfg.Silence/4))
}

// others records the highest head of endpoints that end below the block.
func (u *unconfirmedBlock) others(all []rpc.Announcement) {
	u.were = 0
	for _, a := range all {
		if a.Number < u.block.Number {
			u.were = max(u.were, a.Number)
		}
	}
}

// voted takes the result of a vote. again: the head is to be polled.
func (s *session) voted(v vote) (again bool, err error) {
	s.votes.running[v.kind] = false
	if errors.Is(v.err, rpc.ErrSplit) {
		s.disputed(v.err)
	}
	switch v.kind {
	case onFinal:
		return s.votedFinal(&v)
	case onUnconfirmed:
		return s.votedUnconfirmed(&v)
	default:
	}
	changed := false
	if v.err == nil {
		changed, err = s.outvoted(v.most, v.rival.Header)
	}
	r := &s.votes.rivals[v.rival.By]
	if r.wait = min(max(2*r.wait, minRivalPause), maxRivalPause); changed {
		r.wait = 0
	}
	r.until = time.Now().Add(r.wait)
	return changed, err
}

func (s *session) votedFinal(v *vote) (again bool, err error) {
	agreed := v.err == nil && v.most.Hash == v.block.Hash
	s.votes.refused, s.votes.next = !agreed, time.Now().Add(s.in.cfg.FinalizedEvery)
	switch {
	case v.err != nil:
		s.disputed(v.err)
	case agreed:
		s.disputed(nil)
		s.m.Vouched(v.block)
	default:
		again, err = s.outvoted(v.most, v.most)
	}
	return again, err
}

func (s *session) votedUnconfirmed(v *vote) (again bool, err error) {
	u, now := &s.votes.unconfirmed, time.Now()
	all := s.in.client.Newest()
	if u.update(s.m, all, now); u.block != v.block {
		return false, nil // another endpoint has reported it meanwhile, or it is gone
	}
	u.since = now // until two report it, there is another vote on it
	u.others(all)
	switch {
	case v.err != nil:
	case len(v.below) == 0:
		again, err = s.outvoted(v.most, v.most)
	case s.m.Retreat(v.below[0]):
		s.in.log.Warn("most endpoints end below the newest block: reverting it", zap.Uint64("block", v.block.Number), zap.Stringer("hash", v.block.Hash), zap.Uint64("theirs", v.below[0].Number))
		s.drop()
		again = true
	}
	return again, err
}

// outvoted follows the chain of most endpoints, if it is not the known one.
func (s *session) outvoted(most, rival follow.Header) (changed bool, err error) {
	if changed, err = s.m.Outvoted(most, rival); changed {
		s.in.log.Warn("most endpoints have another block than was ingested", zap.Uint64("block", most.Number), zap.Stringer("theirs", most.Hash))
		s.drop()
	}
	return changed, err
}

// alone records whether one of several endpoints alone decides what is final.
func (s *session) alone() {
	is, was := s.in.client.Alone(), s.in.status.get().Alone
	switch {
	case is == was:
		return
	case is != "":
		s.in.log.Warn("one endpoint alone decides what is final", zap.String("why", is))
	default:
		s.in.log.Info("what is final is decided by more than one endpoint again")
	}
	s.in.status.update(func(st *Status) { st.Alone = is })
}

// disputed records why the endpoints do not agree; nil: they do.
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
