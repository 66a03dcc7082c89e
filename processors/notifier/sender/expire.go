package sender

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/notifier"
)

// expire gives up an alert that no node has sent in time: its channel has no flags anywhere, or its key is gone.
func (s *Sender) expire(ctx context.Context, wg *sync.WaitGroup, view state.View, partition int32, row []byte, now time.Time) error {
	d := due{partition: partition, row: row}
	d.to, _ = notifier.ParseRow(row)
	var err error
	if d.alert, _, _, err = notifier.Pending(view, row); err != nil {
		return err
	}
	if now.Sub(time.UnixMilli(d.alert.Next)) <= s.cfg.Keep { // as in start
		return nil
	}
	result := resultUnsent
	if !d.to.Stage.OfDeal() {
		result = resultOver
	}
	s.giveUp(ctx, wg, &d, now, result, "nobody could send it in "+s.cfg.Keep.String())
	return nil
}

// giveUp makes an alert a dead letter without another attempt, unless another process may be sending it.
func (s *Sender) giveUp(ctx context.Context, wg *sync.WaitGroup, d *due, now time.Time, result, reason string) {
	if !s.lapsed(d, now) {
		return
	}
	select {
	case s.ending <- struct{}{}:
	default:
		return // the next scan tries again
	}
	if !s.begin(d) {
		<-s.ending
		return
	}
	wg.Go(func() {
		defer func() { <-s.ending }()
		s.metrics.attempted(d, result)
		s.end(d, s.report(context.WithoutCancel(ctx), &notifier.Delivery{
			Wallet: d.to.Wallet, Row: d.row, Attempt: d.alert.Attempt, FiredAt: d.alert.FiredAt, By: d.alert.By, Result: notifier.Dead, Reason: reason,
		}))
	})
}

// unserved warns of subscriptions whose alerts this node cannot send.
func (s *Sender) unserved(view state.View) error {
	channels := slices.DeleteFunc(slices.Clone(notifier.Channels), func(c notifier.Channel) bool { return s.lines[c] != nil || s.warned[c] })
	found, err := notifier.Subscribed(view, channels)
	for _, c := range found {
		s.warned[c] = true
		s.log.Warn("a channel with subscriptions is not configured on this node: their alerts wait", zap.Stringer("channel", c), zap.Duration("for", s.cfg.Keep))
	}
	return err
}
