package ingest

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
)

// stuck is the block that does not come in, because what endpoints return for it is unproved, wrong or an error.
// Nothing after it is published, and it is fetched again without end, with pauses that grow to maxHold (holdBack): an
// endpoint may be repaired.
type stuck struct {
	since, last time.Time // failures since blocks came in; zero: none
	reported    bool
}

// fetchReports collects the answers of endpoints to a running fetch.
type fetchReports struct {
	mu  sync.Mutex
	err error     // the last error since the last answer
	at  time.Time // of the last answer
}

func (r *fetchReports) add(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err = err; err == nil {
		r.at = time.Now()
	}
}

func (r *fetchReports) last() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// answered is the time of the last answer, or since if that is later.
func (r *fetchReports) answered(since time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.After(since) {
		return r.at
	}
	return since
}

const (
	stuckAfter = 5 * time.Second  // until it is reported: most such blocks are too new, or were replaced
	stuckFor   = 30 * time.Second // how long it is reported after the last failure: the block may be gone
)

// fetchFailed records that a fetch had no usable response.
func (s *session) fetchFailed(f *fetch) {
	now := time.Now()
	if s.stuck.since.IsZero() {
		s.stuck.since = now
	}
	if s.stuck.last = now; now.Sub(s.stuck.since) >= stuckAfter {
		s.reportStuck(f, f.err)
	}
}

// checkStall reports the first fetch as stuck if it has had no answer for too long: requests that all endpoints fail
// are retried without end. History and ledgers of tokens take many answers, so each answer counts for them.
func (s *session) checkStall() {
	now := time.Now()
	if s.m.Tip().Number >= s.head() {
		s.movedAt = now
	}
	if len(s.queue) == 0 {
		return
	}
	f := s.queue[0]
	since, err := s.movedAt, f.reports.last()
	if f.read || s.head() > s.m.Tip().Number+followLag {
		since = f.reports.answered(since)
	}
	select {
	case <-f.done:
		return
	default:
	}
	if now.Sub(since) < s.in.cfg.ReadyAge {
		return
	}
	s.stuck.last = now
	if s.stuck.since.IsZero() || since.Before(s.stuck.since) { // so that it is reported at once
		s.stuck.since = since
	}
	if err == nil && s.stuck.reported {
		return // the reported error says more
	}
	s.reportStuck(f, cmp.Or(err, errNoAnswer))
}

var errNoAnswer = errors.New("no endpoint has answered yet")

// reportStuck reports that a fetch brings nothing in.
func (s *session) reportStuck(f *fetch, err error) {
	blocks := fmt.Sprintf("block %d does", f.From)
	if f.To > f.From {
		blocks = fmt.Sprintf("blocks %d-%d do", f.From, f.To)
	}
	what := fmt.Sprintf("%s not come in, since %s: %v", blocks, s.stuck.since.UTC().Format(time.RFC3339), err)
	if !s.stuck.reported {
		s.in.log.Error("nothing comes in until an endpoint proves it", zap.Uint64("block", f.From), zap.Error(err))
	}
	s.stuck.reported = true
	s.in.status.update(func(st *Status) { st.Stuck, st.StuckBlock, st.StuckAt = what, f.From, s.stuck.since })
}

// blocksCame records that blocks came in.
func (s *session) blocksCame() {
	if s.stuck.reported {
		s.in.log.Info("blocks come in again", zap.Duration("after", time.Since(s.stuck.since)))
		s.in.status.update(unstuck)
	}
	s.stuck = stuck{}
}

func unstuck(st *Status) { st.Stuck, st.StuckBlock, st.StuckAt = "", 0, time.Time{} }

// forgetStuck ends the report of a block that is no longer fetched.
func (s *session) forgetStuck() {
	if !s.stuck.last.IsZero() && time.Since(s.stuck.last) > stuckFor {
		s.blocksCame()
	}
}
