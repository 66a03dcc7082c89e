package sender

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/notifier"
)

// attempt sends an alert when it is its turn, and reports the result; false: nothing was reported.
func (s *Sender) attempt(ctx context.Context, d *due) (reported bool) {
	line := s.lines[d.to.Channel]
	leave, ok := s.enter(ctx, d)
	if !ok {
		return false
	}
	defer leave()
	if paused, ok := line.Channel.(Pausing); ok && paused.Wait(ctx) != nil || line.Rate.Wait(ctx) != nil {
		return false
	}
	ends := time.Now().Add(s.cfg.Timeout) // before another process can see the claim
	if !s.claim(ctx, d, ends) {
		return false
	}
	began := time.Now()
	err := s.send(ctx, line.Channel, d, ends)
	if (ctx.Err() != nil || d.lost) && err != nil {
		return false // the result is unknown: another node tries again once the claim has lapsed
	}
	report := s.outcome(d, err)
	failure, _ := errors.AsType[*Failure](err)
	if d.site != nil {
		s.answered(d.site, failure, time.Since(began))
	}
	result := resultNames[report.Result]
	if failure != nil && failure.Unasked && report.Result == notifier.Retry {
		result = resultPaused
	}
	if d.failedBefore {
		result = resultTired
	}
	s.metrics.attempted(d, result)
	return s.report(context.WithoutCancel(ctx), report)
}

// enter waits for a slot of nonDealQuota, if the alert is not of a deal, then for one of its site, then for one of its
// channel: in this order an alert that waits holds no slot that alerts of deals need. It gives up when its site is put
// on probation.
func (s *Sender) enter(ctx context.Context, d *due) (leave func(), ok bool) {
	var slots []chan struct{}
	if d.to.Stage == notifier.ToConfirm {
		slots = append(slots, s.nonDeal[d.to.Channel].requests)
	}
	if !d.to.Stage.OfDeal() {
		slots = append(slots, s.nonDeal[d.to.Channel].slots)
	}
	if d.site != nil {
		slots = append(slots, d.site.slots)
	}
	slots = append(slots, s.slots[d.to.Channel])
	taken := 0
	leave = func() {
		for _, slot := range slots[:taken] {
			<-slot
		}
	}
	for _, slot := range slots {
		select {
		case slot <- struct{}{}:
			taken++
		case <-d.trustEnds:
			leave()
			return nil, false
		case <-ctx.Done():
			leave()
			return nil, false
		}
	}
	return leave, true
}

// Pauses between reads for the outcome of a claim.
const (
	firstClaimLook = 2 * time.Millisecond
	lastClaimLook  = 20 * time.Millisecond
)

// claim makes the attempt this node's. It reports whether to send the alert now: it may have been cancelled, or claimed
// by another node, since for a while two nodes may each take themselves for the owner.
func (s *Sender) claim(ctx context.Context, d *due, ends time.Time) bool {
	ctx, cancel := context.WithDeadline(ctx, ends)
	defer cancel()
	d.claim = s.name + rand.Text()
	if err := s.writeClaim(ctx, d); err != nil {
		s.log.Warn("cannot claim an attempt", zap.Error(err))
		return false
	}
	for look := firstClaimLook; ; look = min(2*look, lastClaimLook) {
		if settled, ours := s.claimed(ctx, d); settled {
			return ours
		}
		select {
		case <-time.After(look):
		case <-ctx.Done():
			return false
		}
	}
}

// writeClaim writes a claim that replaces the alert's present one.
func (s *Sender) writeClaim(ctx context.Context, d *due) error {
	cmd := notifier.Command{Claim: &notifier.Claim{
		Wallet: d.to.Wallet, Row: d.row, Attempt: d.alert.Attempt, FiredAt: d.alert.FiredAt, By: d.claim, Lapsed: d.alert.By,
	}}
	rec, err := cmd.Record(s.cfg.Catalogue, d.to.Wallet)
	if err == nil {
		_, err = s.producer.Send(ctx, rec)
	}
	return err
}

// claimed reports whether the claim has been applied, and if so, whether the attempt is this node's.
func (s *Sender) claimed(ctx context.Context, d *due) (settled, ours bool) {
	view, err := s.source.View(ctx, d.partition, nil)
	if err != nil {
		return false, false
	}
	defer view.Close()
	alert, sub, found, err := notifier.Pending(view, d.row)
	if err != nil {
		return false, false
	}
	if !found || alert.Attempt != d.alert.Attempt || alert.FiredAt != d.alert.FiredAt {
		return true, false
	}
	clock, err := notifier.ReadClock(view)
	if err != nil {
		return false, false
	}
	if alert.By == d.alert.By {
		return false, false
	}
	d.alert, d.sub, d.now = alert, sub, clock.Head // the deal and the address may have changed while the alert was queued
	return true, alert.By == d.claim
}

// stopping is how long a stop waits for running attempts, so that no message is sent twice. A process has 4.5 s to end.
const stopping = 3 * time.Second

func (s *Sender) send(ctx context.Context, channel Channel, d *due, ends time.Time) error {
	address, err := s.keys.Open(d.to.Wallet, d.to.Channel, d.sub.Sealed)
	if err != nil {
		return &Failure{Reason: err.Error()}
	}
	d.taker = s.keys.Taker(d.to.Wallet, d.to.Channel, address)
	if d.alert.To != "" && s.keys.GoodTaker(d.alert.To, d.to.Wallet, d.to.Channel, address) {
		return nil // the newly named address is the one that has taken it
	}
	event := d.alert.Event(d.to)
	id := event.ID()
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		select {
		case <-time.After(stopping):
			stop()
		case <-running.Done():
		}
	})()
	sending, cancel := context.WithDeadline(running, ends)
	defer cancel()
	end := cancel
	var renewing sync.WaitGroup
	defer func() {
		end()
		renewing.Wait()
	}()
	return channel.Send(sending, &Message{
		ID: fmt.Sprintf("%x", id[:16]), Channel: d.to.Channel, To: address, Alert: d.alert, Event: event, CreatedAt: d.sub.CreatedAt,
		ConfirmBy: d.sub.ConfirmBy, Now: d.now, Until: d.alert.Until(d.sub.Prefs, d.now),
		Written: func() (waiting context.Context) {
			waiting, end = context.WithTimeout(running, min(s.cfg.Answer, max(s.longestWait(d), time.Until(ends))))
			renewing.Go(func() { d.lost = !s.renew(waiting, d, ends) })
			return waiting
		},
	})
}

// renew claims an attempt anew, each time before others may take it over, until ctx is done. It reports whether the
// attempt was this node's until then. A claim counts once Kafka has it: the node that has the partition by then applies
// it, and this one may not see that.
func (s *Sender) renew(ctx context.Context, d *due, ends time.Time) bool {
	for {
		select {
		case <-time.After(time.Until(ends) - s.cfg.Timeout/2):
		case <-ctx.Done():
			return true
		}
		began := time.Now()
		if s.anothers(ctx, d) {
			return false
		}
		d.claim = s.name + rand.Text()
		for err := s.renewed(ctx, d, ends); err != nil; err = s.renewed(ctx, d, ends) {
			s.log.Warn("cannot renew the claim of an attempt", zap.Error(err))
			select {
			case <-time.After(renewEvery):
			case <-ctx.Done():
				return false
			}
			if time.Now().After(ends) {
				return false
			}
		}
		d.alert.By = d.claim // nothing else: the awaited answer concerns the address and deal as they were
		ends = began.Add(s.cfg.Timeout)
	}
}

// renewEvery is the pause between two writes of a renewal that Kafka does not accept. They write the same claim, since
// the first may be accepted after all.
const renewEvery = time.Second

func (s *Sender) renewed(ctx context.Context, d *due, ends time.Time) error {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), ends)
	defer cancel()
	return s.writeClaim(ctx, d)
}

// anothers reports whether an attempt is known not to be this node's any more.
func (s *Sender) anothers(ctx context.Context, d *due) bool {
	view, err := s.source.View(ctx, d.partition, nil)
	if err != nil {
		return false
	}
	defer view.Close()
	alert, _, found, err := notifier.Pending(view, d.row)
	return err == nil && (!found || alert.Attempt != d.alert.Attempt || alert.FiredAt != d.alert.FiredAt || !strings.HasPrefix(alert.By, s.name))
}

var resultNames = map[notifier.Result]string{notifier.Sent: "sent", notifier.Retry: "retry", notifier.Dead: "dead", notifier.Gone: "gone"}

// Results other than a receiver's answers. Given-up alerts have results of their own, since anyone can subscribe a
// receiver that refuses.
const (
	resultPaused = "paused" // not given up: the receiver asked for fewer messages
	resultTired  = "tired"  // given up after all attempts
	resultOver   = "over"   // given up: news of an epoch that has ended
	resultUnsent = "unsent" // given up: no node could send the alert of a deal
)

// outcome makes the report of an attempt. Its reason must not contain the address, which a server may quote.
func (s *Sender) outcome(d *due, err error) *notifier.Delivery {
	r := &notifier.Delivery{Wallet: d.to.Wallet, Row: d.row, Attempt: d.alert.Attempt, FiredAt: d.alert.FiredAt, By: d.claim, Unix: d.sub.Of(), Result: notifier.Sent}
	if err == nil {
		r.To = d.taker
		s.taken(d)
		return r
	}
	refusal := &Failure{Reason: "the channel does not say why"}
	errors.As(err, &refusal)
	r.Reason = refusal.Reason
	switch {
	case refusal.Gone, refusal.Doubtful && s.doubted(d, refusal):
		r.Result = notifier.Gone
	case refusal.Dead:
		r.Result = notifier.Dead
	case d.alert.Attempt+1 >= s.cfg.Attempts:
		r.Result, d.failedBefore = notifier.Dead, true
	default:
		wait := min(s.cfg.FirstWait<<min(d.alert.Attempt, 20), s.cfg.LastWait)
		wait = max(wait/2+mathrand.N(wait/2+1), min(refusal.After, maxAfter))
		r.Result, r.Next = notifier.Retry, time.Now().Add(min(wait, s.longestWait(d))).UnixMilli()
	}
	return r
}

// longestWait is a quarter of the time during which the alert helps.
func (s *Sender) longestWait(d *due) time.Duration {
	until := d.alert.Until(d.sub.Prefs, d.now)
	if until <= d.now {
		return maxAfter
	}
	return max(time.Duration(min(until-d.now, uint64(4*maxAfter/time.Second)))*time.Second/4, s.cfg.FirstWait)
}

// maxAfter bounds the delay that a server may ask for.
const maxAfter = 6 * time.Hour

// reporting is how long a report is tried. An alert without a report is sent again.
const reporting = time.Minute

func (s *Sender) report(ctx context.Context, r *notifier.Delivery) bool {
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
