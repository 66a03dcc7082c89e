package ingest

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
)

// stuck is which block does not come in, because what endpoints say of it proves nothing, is not the block's, or is an error. Nothing after it is
// published, and it is asked for again for ever, with pauses that grow to maxHold (holdBack): the endpoint may be mended.
type stuck struct {
	since, last time.Time // failures since blocks came in; zero: none
	told        bool
}

// hearing is what endpoints say of a fetch while it runs.
type hearing struct {
	mu  sync.Mutex
	err error     // the last one since the last answer
	at  time.Time // of the last answer
}

func (h *hearing) told(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err = err; err == nil {
		h.at = time.Now()
	}
}

func (h *hearing) last() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// answered is when there was an answer last, at the earliest since.
func (h *hearing) answered(since time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at.After(since) {
		return h.at
	}
	return since
}

const (
	stuckAfter = 5 * time.Second  // until it is said: a block that is too new, or was replaced, is no news
	stuckFor   = 30 * time.Second // that it is said after the last failure: the head that was asked for may be gone
)

// failing records that a fetch had no usable response.
func (s *session) failing(f *fetch) {
	now := time.Now()
	if s.stuck.since.IsZero() {
		s.stuck.since = now
	}
	if s.stuck.last = now; now.Sub(s.stuck.since) >= stuckAfter {
		s.tellStuck(f, f.err)
	}
}

// standing finds out whether what is fetched first is not answered for too long, though it does not fail: what all endpoints
// fail at is asked for again for ever. History and the ledgers of tokens take many answers, and only stand without one.
func (s *session) standing() {
	now := time.Now()
	if s.m.Tip().Number >= s.head() {
		s.movedAt = now
	}
	if len(s.queue) == 0 {
		return
	}
	f := s.queue[0]
	since, err := s.movedAt, f.hears.last()
	if f.read || s.head() > s.m.Tip().Number+followLag {
		since = f.hears.answered(since)
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
	if s.stuck.since.IsZero() || since.Before(s.stuck.since) { // or what is said of it would not count as long enough yet
		s.stuck.since = since
	}
	if err == nil && s.stuck.told {
		return // why it failed before says more
	}
	s.tellStuck(f, cmp.Or(err, errNoAnswer))
}

var errNoAnswer = errors.New("no endpoint has answered yet")

// tellStuck says that a fetch brings nothing in.
func (s *session) tellStuck(f *fetch, err error) {
	blocks := fmt.Sprintf("block %d does", f.From)
	if f.To > f.From {
		blocks = fmt.Sprintf("blocks %d-%d do", f.From, f.To)
	}
	what := fmt.Sprintf("%s not come in, since %s: %v", blocks, s.stuck.since.UTC().Format(time.RFC3339), err)
	if !s.stuck.told {
		s.in.log.Error("nothing comes in until an endpoint proves it", zap.Uint64("block", f.From), zap.Error(err))
	}
	s.stuck.told = true
	s.in.status.update(func(st *Status) { st.Stuck, st.StuckBlock, st.StuckAt = what, f.From, s.stuck.since })
}

// moving records that blocks came in.
func (s *session) moving() {
	if s.stuck.told {
		s.in.log.Info("blocks come in again", zap.Duration("after", time.Since(s.stuck.since)))
		s.in.status.update(unstuck)
	}
	s.stuck = stuck{}
}

func unstuck(st *Status) { st.Stuck, st.StuckBlock, st.StuckAt = "", 0, time.Time{} }

// forgetStuck says no more of a block that is not asked for any more.
func (s *session) forgetStuck() {
	if !s.stuck.last.IsZero() && time.Since(s.stuck.last) > stuckFor {
		s.moving()
	}
}
