package support

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	desk "github.com/lienstream/lienstream/processors/support"
)

// reconcile picks up payments that no process follows, after a crash or because a process had too many.
func (s *Service) reconcile(ctx context.Context) {
	for {
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot read undecided payments", zap.Error(err))
		}
		if !sleep(ctx, s.cfg.Reconcile) {
			return
		}
	}
}

// sweepLimit is how many payments are read at a time.
const sweepLimit = 256

// sweep reads all undecided payments. It sets the gauges only once it has read all of them: an unreachable desk must
// not count as 0.
func (s *Service) sweep(ctx context.Context) error {
	var errs []error
	s.mu.Lock()
	all := undecided{now: s.deps.Now(), before: s.seen, seen: map[moment]time.Time{}}
	s.mu.Unlock()
	for partition := range s.deps.Desk.Partitions() {
		errs = append(errs, s.sweepPartition(ctx, partition, &all))
	}
	s.mu.Lock()
	s.seen = all.seen
	s.mu.Unlock()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.metrics.undecided.Set(float64(all.count))
	s.metrics.oldest.Set(all.oldest.Seconds())
	s.metrics.oldestRefund.Set(all.oldestRefund.Seconds())
	s.metrics.deskRead.Set(float64(s.deps.Now().Unix()))
	return nil
}

func (s *Service) sweepPartition(ctx context.Context, partition int32, all *undecided) error {
	for after := []byte(nil); ; {
		found, next, err := s.deps.Desk.List(ctx, partition, true, after, sweepLimit)
		if err != nil {
			return err
		}
		for _, p := range found {
			all.add(p)
			late := p.Status == desk.StatusFinal || all.age(p, p.UpdatedAt) >= s.cfg.ResumeAfter
			if late && s.checked.Load() {
				s.drive(p)
			}
		}
		if after = next; next == nil {
			return nil
		}
	}
}

// undecided counts the payments and refunds that are not final, and how old they are.
type undecided struct {
	now                  time.Time
	before, seen         map[moment]time.Time // when this process first saw a moment: in the last sweep, and in this one
	count                int
	oldest, oldestRefund time.Duration
}

// moment is a time in the row of a payment, by a broker's clock.
type moment struct {
	key driveKey
	at  int64
}

func (u *undecided) add(p *desk.Payment) {
	u.count++
	switch p.Status {
	case desk.StatusReserved, desk.StatusSent:
		u.oldest = max(u.oldest, u.age(p, p.ReservedAt))
	case desk.StatusFinal:
		u.oldestRefund = max(u.oldestRefund, u.age(p, p.Ticket.ReturnedAt))
	case desk.StatusPaid, desk.StatusReleased, desk.StatusVoid:
	}
}

// age is the age of a time in the row of a payment. It is at least as long as this process has seen it, because a
// broker's clock may be ahead of ours.
func (u *undecided) age(p *desk.Payment, at int64) time.Duration {
	m := moment{driveKey{p.Authorization.From, p.Authorization.Nonce}, at}
	first, ok := u.before[m]
	if !ok {
		first = u.now
	}
	u.seen[m] = first
	return max(u.now.Sub(first), u.now.Sub(time.Unix(at, 0)))
}
