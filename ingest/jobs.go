package ingest

import (
	"context"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/follow"
)

// job is a transaction to write: a batch or a repeated barrier.
type job struct {
	batch      *follow.Batch
	followed   map[common.Address]joined // as of the batch's last block
	finalized  uint64
	head, safe uint64 // of a repeated barrier
}

// publishAll writes jobs. A transaction that was begun is ended even if ctx is done, because a known outcome is
// worth a short wait. But a broker that does not respond must not delay a stop: the next ingester reads what
// became of the transaction.
func (s *session) publishAll(ctx context.Context, p *publisher) error {
	metrics := s.in.metrics
	write, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	context.AfterFunc(ctx, func() {
		select {
		case <-time.After(stopPatience):
			cancel()
		case <-write.Done():
		}
	})
	for {
		var j job
		select {
		case j = <-s.jobs:
		case <-ctx.Done():
			return ctx.Err()
		}
		began := time.Now()
		var err error
		if j.batch != nil {
			err = p.follow(j.followed).publish(write, j.batch)
		} else {
			err = p.repeat(write, j.head, j.finalized, j.safe)
		}
		if err != nil {
			return err
		}
		metrics.commits.Observe(time.Since(began).Seconds())
		s.committed <- j
	}
}

// stopPatience is how long an open transaction may take when the ingester is stopped.
const stopPatience = 2 * time.Second

// publishMore gives the idle publisher its next batch. While it is busy verified blocks accumulate, so
// transactions grow when blocks come faster than commits. An empty block waits only where something was just committed.
func (s *session) publishMore() {
	if !s.idle {
		return
	}
	b, ok := s.m.Publish(s.in.cfg.limits(), s.mark || time.Since(s.commitAt) >= s.in.cfg.MarkEvery)
	s.mark = false
	if ok {
		for _, r := range b.Reverts {
			if r.Head.Number < s.safe.Number {
				s.safe = r.Head
			}
		}
		b.Safe, b.Head = s.safeUpTo(), s.head()
		s.give(job{batch: &b, followed: s.follows.upTo(b.Blocks[len(b.Blocks)-1].Number), finalized: s.m.Finalized()})
	}
}

func (s *session) give(j job) {
	s.idle = false
	s.jobs <- j // has room: the publisher was idle
}

// beat repeats the last barrier if nothing else was committed for a while.
func (s *session) beat() {
	// A barrier's time says when the chain was last seen. Without a chain there is nothing to report, and
	// another ingester may have one.
	if time.Since(s.in.status.get().HeadAt) > 2*s.in.cfg.Heartbeat {
		return
	}
	if _, ok := s.m.Last(); ok && s.known && s.idle && time.Since(s.commitAt) >= s.in.cfg.Heartbeat {
		s.give(job{head: s.head(), finalized: s.m.Finalized(), safe: s.safeUpTo()})
	}
}

// done records a commit.
func (s *session) done(j job) {
	s.idle, s.commitAt = true, time.Now()
	if j.batch == nil {
		s.in.metrics.heartbeats.Inc()
	} else {
		s.account(j.batch)
	}
	s.in.status.update(func(st *Status) {
		st.CommitAt, st.Finalized = s.commitAt, j.finalized
		if j.batch != nil {
			st.Published = j.batch.Blocks[len(j.batch.Blocks)-1].BlockRef
			for i := range j.batch.Blocks {
				st.Records += uint64(len(j.batch.Blocks[i].Logs))
			}
		}
		switch tip := max(st.Published.Number, st.Verified); {
		case st.HeadAt.IsZero() || st.Head > tip+followLag:
			st.Phase = PhaseBackfill
		default:
			st.Phase = PhaseFollow
		}
	})
}

func (s *session) account(b *follow.Batch) {
	records := 0
	for i := range b.Blocks {
		records += len(b.Blocks[i].Logs)
	}
	s.in.metrics.records.Add(float64(records))
	s.in.metrics.barriers.Add(float64(len(b.Blocks)))
	if len(b.Reverts) > 0 {
		s.in.metrics.reorgs.Inc()
		s.in.metrics.reverts.Add(float64(len(b.Reverts)))
		s.in.log.Info("reorg", zap.Uint64("block", b.Reverts[len(b.Reverts)-1].Head.Number), zap.Int("barriers", len(b.Reverts)))
	}
}
