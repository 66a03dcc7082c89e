package ingest

import (
	"fmt"
	"time"

	"go.uber.org/zap"
)

// stuck is which block does not come in, because what endpoints say of it proves nothing, or is not the block's. Nothing after it is
// published, and it is asked for again for ever, with pauses that grow to maxHold (holdBack): the endpoint may be mended.
type stuck struct {
	since, last time.Time // failures since blocks came in; zero: none
	told        bool
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
	if s.stuck.last = now; now.Sub(s.stuck.since) < stuckAfter {
		return
	}
	blocks := fmt.Sprintf("block %d does", f.From)
	if f.To > f.From {
		blocks = fmt.Sprintf("blocks %d-%d do", f.From, f.To)
	}
	what := fmt.Sprintf("%s not come in, since %s: %v", blocks, s.stuck.since.UTC().Format(time.RFC3339), f.err)
	if !s.stuck.told {
		s.in.log.Error("nothing comes in until an endpoint proves it", zap.Uint64("block", f.From), zap.Error(f.err))
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
