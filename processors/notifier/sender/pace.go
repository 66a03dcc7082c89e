package sender

import (
	"slices"
	"time"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/topics"
)

// pace is what the sender knows of a partition's clock, the block time that the notifier has come to. After a downtime
// that is behind, and then runs: what waits in the outbox may be untrue by now, or be replaced by what is nearer, and
// is held until the clock has caught up.
type pace struct {
	owned int64     // incarnation of this node as the owner
	began time.Time // then, or a later one: before that, the notifier may have been away
	seen  time.Time
	clock uint64 // then
	ran   time.Time
	since time.Time // the clock runs
}

const (
	runs      = 15 * time.Second // of block time at once, if it is many times what has passed, is a clock that runs
	runsTimes = 10               // so many times
	calm      = 10 * time.Second // a clock that has not run for so long runs no more: a takeover may stop it in the middle
)

// look takes note of the clock, and reports whether alerts are held: until it was told of since the notifier began to own the
// partition, which it does anew once Kafka was away, and while it runs. That ends after most at the latest, since the chain may stand
// still, or its time run for good.
func (p *pace) look(c notifier.Clock, owned int64, now time.Time, most time.Duration) (held bool) {
	if p.began.IsZero() || p.owned != owned {
		p.owned, p.began = owned, now
	}
	moved := time.Duration(0)
	if p.clock != 0 && c.Time > p.clock {
		moved = time.Duration(c.Time-p.clock) * time.Second
	}
	if moved > runs && moved > runsTimes*now.Sub(p.seen) {
		if p.ran.IsZero() {
			p.since = now
		}
		p.ran = now
	}
	p.clock, p.seen = c.Time, now
	if now.Sub(p.ran) >= calm {
		p.ran = time.Time{}
	}
	behind := c.Told.Before(p.began) && now.Sub(p.began) < most // by how much, nobody has told yet
	return behind || !p.ran.IsZero() && now.Sub(p.since) < most
}

// paced looks at the clock of a partition that this node owns.
func (s *Sender) paced(of read.Watermark, view state.View, now time.Time) (held bool, err error) {
	c, err := notifier.ReadClock(view)
	if err != nil {
		return false, err
	}
	p := s.paces[of.Partition]
	if p == nil {
		p = new(pace)
		s.paces[of.Partition] = p
	}
	return p.look(c, of.Incarnation, now, s.cfg.Hold), nil
}

// keep forgets what is known of partitions that moved to another node: it is old when they come back.
func (s *Sender) keep(all []read.Watermark) {
	for partition := range s.paces {
		if !slices.ContainsFunc(all, func(w read.Watermark) bool { return w.Partition == partition && w.Role == topics.RoleOwner }) {
			delete(s.paces, partition)
			delete(s.claims, partition)
			delete(s.passed, partition)
			delete(s.rests, partition)
			s.metrics.forget(partition)
		}
	}
}
