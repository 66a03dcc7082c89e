package sender

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/notifier"
)

// attempt sends an alert when it is its turn, and reports the result; false: nothing was reported.
func (s *Sender) attempt(ctx context.Context, d *due) (reported bool) {
	slots, line := s.slots[d.to.Channel], s.lines[d.to.Channel]
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return false
	}
	if line.Rate.Wait(ctx) != nil || !s.still(ctx, d) {
		return false
	}
	err := s.send(ctx, line.Channel, d)
	if ctx.Err() != nil && err != nil {
		return false // unknown: another node tries again
	}
	report := s.outcome(d, err)
	s.metrics.attempts.WithLabelValues(d.to.Channel.String(), resultNames[report.Result]).Inc()
	return s.report(context.WithoutCancel(ctx), report)
}

// still reports whether the alert must still be sent, by this node.
func (s *Sender) still(ctx context.Context, d *due) bool {
	view, err := s.source.View(ctx, d.partition, nil)
	if err != nil {
		return false
	}
	defer view.Close()
	alert, sub, found, err := notifier.Pending(view, d.row)
	if err != nil || !found || alert.Attempt != d.alert.Attempt || alert.FiredAt != d.alert.FiredAt {
		return false
	}
	d.sub = sub // its address may have changed
	return true
}

func (s *Sender) send(ctx context.Context, channel Channel, d *due) error {
	address, err := s.keys.Open(d.to.Wallet, d.to.Channel, d.sub.Sealed)
	if err != nil {
		return &Failure{Reason: err.Error()}
	}
	event := d.alert.Event(d.to)
	id := event.ID()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	return channel.Send(ctx, &Message{ID: fmt.Sprintf("%x", id[:16]), Channel: d.to.Channel, To: address, Alert: d.alert, Event: event, CreatedAt: d.sub.CreatedAt})
}

var resultNames = map[notifier.Result]string{notifier.Sent: "sent", notifier.Retry: "retry", notifier.Dead: "dead", notifier.Gone: "gone"}

// outcome makes the report of an attempt. Its reason must not contain the address, which servers like to quote.
func (s *Sender) outcome(d *due, err error) *notifier.Report {
	r := &notifier.Report{Wallet: d.to.Wallet, Row: d.row, Attempt: d.alert.Attempt, FiredAt: d.alert.FiredAt, Result: notifier.Sent}
	if err == nil {
		return r
	}
	refusal := &Failure{Reason: "the server could not be reached"}
	if network, timeout := errors.AsType[net.Error](err); timeout && network.Timeout() {
		refusal.Reason = "the server did not respond in time"
	}
	errors.As(err, &refusal)
	r.Reason = refusal.Reason
	switch {
	case refusal.Gone:
		r.Result = notifier.Gone
	case refusal.Dead, d.alert.Attempt+1 >= s.cfg.Attempts:
		r.Result = notifier.Dead
	default:
		wait := min(s.cfg.FirstWait<<min(d.alert.Attempt, 20), s.cfg.LastWait)
		wait = wait/2 + rand.N(wait/2+1)
		r.Result, r.Next = notifier.Retry, time.Now().Add(max(wait, min(refusal.After, maxAfter))).UnixMilli()
	}
	return r
}

// maxAfter bounds the delay that a server may ask for.
const maxAfter = 6 * time.Hour

// reporting is how long sending a report is tried; an unreported alert is sent again.
const reporting = time.Minute

func (s *Sender) report(ctx context.Context, r *notifier.Report) bool {
	ctx, cancel := context.WithTimeout(ctx, reporting)
	defer cancel()
	cmd := notifier.Command{Report: r}
	rec, err := cmd.Record(s.cfg.Catalogue, r.Wallet)
	for err == nil {
		if _, err = s.producer.Send(ctx, rec); err == nil {
			return true
		}
		s.log.Warn("cannot record the result of an attempt", zap.Error(err))
		select {
		case <-time.After(time.Second):
			rec, err = cmd.Record(s.cfg.Catalogue, r.Wallet)
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
	}
	s.metrics.unreported.Inc()
	return false
}
