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

// pace is what the sender knows of a partition's clock, the block time that the notifier has come to. After a downtime that is
// behind the chain: what waits in the outbox may be untrue by now, or be replaced by what is nearer, and is held until the clock
// has caught up.
type pace struct {
	owned  int64         // incarnation of this node as the owner
	began  time.Time     // then, or a later one: before that, the notifier may have been away
	behind time.Time     // since when it is, and has not caught up as much as time has passed
	by     time.Duration // then
}

const (
	tolerated = time.Minute // so far behind the chain is at it
	catchUps  = 10          // times Hold that a clock may be behind and not catch up, before what is due is sent, as of the chain's time
)

// look takes note of the clock, and reports whether alerts are held: until it was told of since the notifier began to own the
// partition, which it does anew once Kafka was away, for most at the latest, since the chain may stand still; and while it is
// behind the chain, for ten times that, and for as long again whenever it has caught up as much meanwhile: so for no longer than
// it was behind, and that.
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
	untold := c.Told.Before(p.began) && now.Sub(p.began) < most // how far it is, nobody has told yet
	return untold || !p.behind.IsZero() && now.Sub(p.behind) < catchUps*most
}

// lag is how far the clock is behind the chain, which goes on while nobody tells of it.
func lag(c notifier.Clock, now time.Time) time.Duration {
	behind := time.Duration(max(c.Head, c.Time)-c.Time) * time.Second
	if !c.Heard.IsZero() {
		behind += max(now.Sub(c.Heard), 0)
	}
	return behind
}

// paced looks at the clock of a partition that this node owns.
func (s *Sender) paced(o *owned, of read.Watermark, view state.View, now time.Time) (c notifier.Clock, held bool, err error) {
	if c, err = notifier.ReadClock(view); err != nil {
		return c, false, err
	}
	s.metrics.behind.WithLabelValues(fmt.Sprint(of.Partition), s.cfg.Confirmation).Set(lag(c, now).Seconds())
	return c, o.pace.look(c, of.Incarnation, now, s.cfg.Hold), nil
}

// keep forgets what is known of partitions that moved to another node: it is old when they come back.
func (s *Sender) keep(all []read.Watermark) {
	for partition := range s.owned {
		if !slices.ContainsFunc(all, func(w read.Watermark) bool { return w.Partition == partition && w.Role == topics.RoleOwner }) {
			delete(s.owned, partition)
			s.metrics.forget(partition)
		}
	}
}
