package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// session is one run of the ingester, from taking the transactional ID to the first error. Everything but the
// publisher, the poll and the running fetches belongs to the goroutine of loop.
type session struct {
	in *Ingester
	m  *follow.Machine

	jobs      chan job
	committed chan job
	idle      bool // the publisher is waiting for a job
	mark      bool // a barrier is due at the tip
	commitAt  time.Time

	queue []*fetch // running, in the order of the commands
	size  uint64   // blocks of the next range

	polls        chan poll
	polling      bool
	tags         chan tags
	asking       bool // for the tags
	polledAt     time.Time
	followedHead rpc.Announcement // the head that is followed
	finalized    uint64
	safe         topics.BlockRef // the last one of the verified chain that was called safe; 0: none
	safeAt       time.Time
	known        bool // finalized is valid
	askedAt      time.Time
	shortAt      time.Time // since when the chain ends below the published blocks; zero: it does not
	unproved     bool      // blocks wait for an endpoint that can prove them, or has a state
	stuck        stuck
	movedAt      time.Time                 // when blocks last came in, or there were none to come
	useless      int                       // consecutive fetches without a usable response
	late         int                       // fetches that timed out, less those that succeeded
	unsure       map[common.Hash]time.Time // since when only one endpoint has a block with which tokens join
	hold         time.Time                 // no fetch starts before
	follows      *followed
	origins      origins
	votes        votes
}

// fetch is a running fetch.
type fetch struct {
	follow.Fetch
	blocks       []follow.Block
	probes       []answer
	err          error
	done         chan struct{}
	sets         settings
	known        chan struct{} // closed when the tokens that its blocks set are known
	cancel       context.CancelFunc
	followedHead rpc.Announcement // the head that was followed then
	reports      fetchReports
	gone         bool             // a reorg replaced the head
	joins        []common.Address // tokens that join with the last block; nil: none

	read    bool // ledgers are read, or were
	ledgers map[common.Address][]*topics.Ledger
	unknown map[common.Address]*first // of the ledgers without an origin
}

// session takes the topic, reads its end and follows the chain from there.
func (in *Ingester) session(ctx context.Context) error {
	in.status.phase(PhaseStarting)
	buffers := kafka.TransactorOptions{MaxBuffered: 4 * in.cfg.BatchRecords, Registerer: in.reg, Logger: in.log}
	tx, err := kafka.NewTransactor(in.cfg.Kafka, in.txID, buffers)
	if err != nil {
		return err
	}
	defer tx.Close()
	in.tx.Store(tx)
	defer in.tx.Store(nil)
	if err := tx.Init(ctx); err != nil {
		return err
	}
	position, err := in.readBack(ctx, tx)
	if err != nil {
		return err
	}
	if in.cfg.Rewind {
		if position, err = in.rewind(ctx, tx, position); err != nil {
			return err
		}
	}
	in.tokens.forget()
	var rest *tokenSearch
	err = in.beating(ctx, tx, position, func(ctx context.Context) (err error) {
		rest, err = in.loadTokens(ctx, position.last.Block)
		return err
	})
	if err != nil {
		return err
	}
	machine, err := follow.New(in.cfg.follow(), position.barriers, position.last.Finalized)
	if err != nil {
		return err
	}
	now := time.Now()
	s := &session{
		in: in, m: machine,
		jobs: make(chan job, 1), committed: make(chan job, 1), idle: true, commitAt: now, movedAt: now,
		size: firstRange, polls: make(chan poll, 1), tags: make(chan tags, 1), follows: in.follow(position.followed), votes: newVotes(len(in.cfg.RPC.Endpoints)),
		origins: newOrigins(), unsure: map[common.Hash]time.Time{},
	}
	machine.Whole(s.follows.end())
	in.client.Final(machine.Floor())
	in.status.update(func(st *Status) {
		st.Phase, st.Published, st.Finalized, st.Verified = PhaseBackfill, position.last.Block, position.last.Finalized, position.last.Block.Number
		unstuck(st)
	})
	in.log.Info("ingesting", zap.String("topic", in.topic), zap.Uint64("block", position.last.Block.Number),
		zap.Int("revertible", len(position.barriers)), zap.Uint64("finalized", position.last.Finalized))
	p := newPublisher(tx, in.topic, in.cfg.Partitions, in.decoder, position)
	p.headers = func() []kafka.Header { return in.headers(p) }
	g, ctx := errgroup.WithContext(ctx)
	s.survey(ctx, g)
	g.Go(func() error { return in.recheck(ctx) })
	if rest != nil {
		g.Go(func() error { return in.searchTokens(ctx, rest) })
	}
	g.Go(func() error { return s.publishAll(ctx, p) })
	g.Go(func() error { return s.loop(ctx, g) })
	return g.Wait()
}

// survey finds out what the endpoints cannot prove.
func (s *session) survey(ctx context.Context, g *errgroup.Group) {
	g.Go(func() error {
		lacks := s.in.client.Survey(ctx)
		bloomless := s.in.client.Bloomless()
		s.in.status.update(func(st *Status) { st.Unproved, st.Bloomless = lacks, bloomless })
		return nil
	})
}

// loop handles all events; see the diagram of Run.
func (s *session) loop(ctx context.Context, g *errgroup.Group) error {
	cfg := s.in.cfg
	mark := time.NewTicker(cfg.MarkEvery)
	defer mark.Stop()
	beat := time.NewTicker(cfg.Heartbeat / 4)
	defer beat.Stop()
	ask := time.NewTimer(0)
	defer ask.Stop()
	defer s.drop()
	for {
		if err := s.fetchMore(ctx, g); err != nil {
			return err
		}
		s.publishMore()
		s.finalizeMore(ctx, g)
		s.contest(ctx, g)
		s.askOrigin(ctx, g)
		var front chan struct{}
		if len(s.queue) > 0 {
			front = s.queue[0].done
		}
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.in.client.Heads():
			err = s.takeHeads(ask)
		case <-ask.C:
			s.poll(ctx, g)
		case v := <-s.votes.over:
			var again bool
			if again, err = s.voted(v); again {
				ask.Reset(s.pollAgain())
			}
		case o := <-s.origins.over:
			s.originAsked(o)
		case p := <-s.polls:
			err = s.polled(p)
			ask.Reset(s.pollAfter())
		case t := <-s.tags:
			if s.tagged(t) {
				ask.Reset(0)
			}
		case <-front:
			var again bool
			if again, err = s.fetched(ctx, g); again {
				ask.Reset(s.holdBack())
			}
		case j := <-s.committed:
			s.done(j)
		case <-mark.C:
			s.mark = true
			err = s.takeHeads(ask) // of endpoints that count again
		case <-beat.C:
			s.alone()
			s.checkStall()
			s.forgetStuck()
			s.beat()
		}
		if err != nil {
			return err
		}
	}
}

const (
	firstRange = 64                    // blocks, while the density of logs is unknown
	retryAfter = 20 * time.Millisecond // pause after an unusable response; it doubles with each consecutive one
	maxHold    = 2 * time.Second       // longest pause: an endpoint gets at most some 60 requests per block
	followLag  = 32                    // distance from the head, in blocks, at which backfill ends
)

// fetchMore starts fetches. It bounds their number, and stops while too many verified records wait.
func (s *session) fetchMore(ctx context.Context, g *errgroup.Group) error {
	if time.Now().Before(s.hold) {
		return nil
	}
	most := s.in.cfg.Ranges * len(s.in.cfg.RPC.Endpoints)
	if s.useless > 1 {
		most = 1 // later blocks are of no use before this one
	}
	for len(s.queue) < most && s.m.Backlog() < s.in.cfg.limits().Backlog() {
		f, ok := s.m.Next(s.size)
		s.in.tokens.revert(s.m.Tip().Number, time.Now())
		if !ok {
			return nil
		}
		ctx, cancel := context.WithCancel(ctx)
		u := &fetch{Fetch: f, done: make(chan struct{}), known: make(chan struct{}), cancel: cancel, followedHead: s.followedHead}
		ctx = rpc.Watch(ctx, u.reports.add)
		before := slices.Clone(s.queue)
		settled, client, late := s.m.Settled(), s.follows.client, s.late
		tip := f.Kind != follow.Headers && f.Kind != follow.Vote && f.To+followLag >= s.m.Head()
		s.queue = append(s.queue, u)
		g.Go(func() error {
			defer close(u.done)
			fetch := func(ctx context.Context) (err error) {
				u.blocks, err = s.in.fetch(ctx, client, f, settled)
				return err
			}
			if tip {
				u.err = s.in.client.InTime(ctx, u.followedHead.By, f.From, f.To, late, fetch)
			} else {
				u.err = fetch(ctx)
			}
			if u.err == nil {
				u.probes, u.err = s.in.probe(ctx, u, before, tip)
			}
			u.gone = errors.Is(u.err, rpc.ErrGone) && s.in.client.Replaced(ctx, u.followedHead)
			return nil
		})
	}
	return nil
}

// fetched processes the oldest fetch, which is done. again means that the head must be polled again.
func (s *session) fetched(ctx context.Context, g *errgroup.Group) (again bool, err error) {
	f := s.queue[0]
	f.cancel()
	if f.err == nil && s.reads(ctx, g, f) {
		return false, nil
	}
	s.queue = s.queue[1:]
	if errors.Is(f.err, rpc.ErrDense) { // fetch fewer blocks at once
		s.size = max(1, min(s.size, f.To-f.From+1)/2)
		s.m.Refetch()
		s.drop()
		return false, nil
	}
	if f.err != nil {
		if errors.Is(f.err, rpc.ErrSlow) {
			s.late++
		}
		switch {
		case errors.Is(f.err, rpc.ErrGone):
			s.in.metrics.gone.Inc()
			s.in.log.Info("block is gone, fetching the head again", zap.Stringer("fetch", f), zap.Error(f.err))
			s.in.client.Forget(f.followedHead.By, f.gone)
		case errors.Is(f.err, rpc.ErrSlow):
			s.in.log.Info("fetching the head again", zap.Stringer("fetch", f), zap.Error(f.err))
		case errors.Is(f.err, rpc.ErrNoProof), errors.Is(f.err, rpc.ErrTooBig), errors.Is(f.err, rpc.ErrNoState): // perhaps of pruned history
			if !s.unproved {
				s.in.log.Error("waiting for an endpoint that can answer", zap.Stringer("fetch", f), zap.Error(f.err))
			}
			s.unproved = true
		case errors.Is(f.err, rpc.ErrSplit):
			s.disputed(f.err)
		default:
			return false, f.err
		}
		if f.Kind == follow.Range || f.Kind == follow.Sparse {
			s.size = max(1, min(s.size, f.To-f.From+1)/2) // perhaps only the last blocks are missing or unproved
		}
		s.fetchFailed(f)
		s.m.Distrust()
		s.drop()
		return true, nil
	}
	if s.unproved {
		s.unproved = false
		s.survey(ctx, g)
	}
	for i := range f.blocks {
		f.blocks[i].Logs = s.in.published(&f.blocks[i], s.follows)
	}
	s.follows.parting(f, s.m.Finalized())
	written := s.appendOrigins(f)
	verified := s.in.tokens.news(f.blocks, f.sets, f.probes)
	unlinked, err := s.m.Fetched(f.Fetch, f.blocks)
	if err != nil {
		return false, fmt.Errorf("follow: %w", err)
	}
	if unlinked {
		s.in.client.RecheckChain() // before a deep reorg is believed
		s.in.metrics.unlinked.Inc()
		s.in.log.Info("block does not link to the verified chain", zap.Uint64("block", f.From))
		s.drop()
		return true, nil
	}
	if f.Kind != follow.Vote && f.Kind != follow.Headers {
		s.useless, s.late = 0, max(0, s.late-1) // blocks came in
		s.movedAt = time.Now()
		s.blocksCame()
		s.in.client.Followed(f.blocks, s.m.Finalized())
	}
	if f.Kind == follow.Range || f.Kind == follow.Sparse {
		s.resize(f)
	}
	if verified != nil && s.m.Tip() == f.blocks[len(f.blocks)-1].BlockRef {
		verified(time.Now())
	}
	written()
	s.joined(f)
	unsigned, bloomless := s.in.client.Unsigned(), s.in.client.Bloomless()
	s.in.status.update(func(st *Status) { st.Verified, st.Unsigned, st.Bloomless = s.m.Tip().Number, unsigned, bloomless })
	return false, nil
}

// holdBack pauses fetching after an unusable response, exponentially longer with each consecutive one.
func (s *session) holdBack() time.Duration {
	d := min(retryAfter<<min(s.useless, 10), maxHold)
	s.useless++
	s.hold = time.Now().Add(d)
	return d
}

// resize adjusts the size of the next ranges to RangeLogs.
func (s *session) resize(f *fetch) {
	records := 0
	for i := range f.blocks {
		records += f.blocks[i].Weight()
	}
	s.size = s.in.cfg.rangeSize(s.size, f.To-f.From+1, records)
}

// drop cancels the running fetches, whose responses the machine would ignore.
func (s *session) drop() {
	for _, f := range s.queue {
		f.cancel()
	}
	s.queue = nil
}
