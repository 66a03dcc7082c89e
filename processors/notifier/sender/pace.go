package sender

import (
	"fmt"
	"slices"
	"time"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/topics"
)

// pace is the sender's knowledge of a partition's clock: the block time that the notifier has reached. After a downtime
// the clock is behind the chain. Then alerts in the outbox may be untrue by now, or be replaced by a later stage, so
// they are held until the clock has caught up.
type pace struct {
	owned  int64         // incarnation of this node as the owner
	began  time.Time     // when that was, or later: the notifier may have been away before
	behind time.Time     // since when the clock is behind and has not caught up by that much time
	by     time.Duration // how far it was behind then
}

const (
	tolerated = time.Minute // a clock that is less behind counts as caught up
	catchUps  = 10          // multiple of Hold: after it, a clock that does not catch up no longer holds alerts
)

// look notes the clock, and reports whether alerts are held:
//
//   - until the first tick since this node owns the partition (anew after Kafka was away), for at most `most`, because the
//     chain may have stopped
//   - while the clock is behind the chain, for ten times `most`, and again as long each time it has caught up by as much
//     meanwhile. So they are held for at most as long as the clock was behind, and that.
func (p *pace) look(c notifier.Clock, owned int64, now time.Time, most time.Duration) (held bool) {
	if p.began.IsZero() || p.owned != owned {
		p.owned, p.began = owned, now
	}
	switch {
	case c.Behind <= tolerated:
		p.behind = time.Time{}
	case p.behind.IsZero(), p.by-c.Behind >= now.Sub(p.behind) && now.Sub(p.behind) >= catchUps*most:
		p.behind, p.by = now, c.Behind
	}
	untold := c.Told.Before(p.began) && now.Sub(p.began) < most // no tick yet
	return untold || !p.behind.IsZero() && now.Sub(p.behind) < catchUps*most
}

// lag is how far the clock is behind the chain, which goes on between ticks.
func lag(c notifier.Clock, now time.Time) time.Duration {
	behind := time.Duration(max(c.Head, c.Time)-c.Time) * time.Second
	if !c.Heard.IsZero() {
		behind += max(now.Sub(c.Heard), 0)
	}
	return behind
}

// paced reads the clock of a partition that this node owns.
func (s *Sender) paced(o *owned, of read.Watermark, view state.View, now time.Time) (c notifier.Clock, held bool, err error) {
	if c, err = notifier.ReadClock(view); err != nil {
		return c, false, err
	}
	s.metrics.behind.WithLabelValues(fmt.Sprint(of.Partition), s.cfg.Confirmation).Set(lag(c, now).Seconds())
	return c, o.pace.look(c, of.Incarnation, now, s.cfg.Hold), nil
}

// keep drops the state of partitions that moved to another node: it would be stale when they return.
func (s *Sender) keep(all []read.Watermark) {
	for partition := range s.owned {
		if !slices.ContainsFunc(all, func(w read.Watermark) bool { return w.Partition == partition && w.Role == topics.RoleOwner }) {
			delete(s.owned, partition)
			s.metrics.forget(partition)
		}
	}
}
