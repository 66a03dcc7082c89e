package sender

import (
	"errors"
	"testing"
	"time"

	"github.com/lienstream/lienstream/processors/notifier"
)

// Waits double up to a bound, differ from each other, and are as long as the receiver asked for, within reason.
func TestWaits(t *testing.T) {
	s := &Sender{cfg: DefaultConfig()}
	s.cfg.FirstWait, s.cfg.LastWait = 10*time.Second, 40*time.Second
	for attempt, whole := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 40 * time.Second} {
		d := &due{alert: notifier.Alert{Attempt: attempt}}
		seen := map[int64]bool{}
		for range 50 {
			before := time.Now()
			r := s.outcome(d, &Failure{Reason: "away"})
			next := time.UnixMilli(r.Next)
			if r.Result != notifier.Retry || next.Before(before.Add(whole/2-time.Millisecond)) || next.After(time.Now().Add(whole)) {
				t.Fatalf("attempt %d is followed after %s by another", attempt, next.Sub(before))
			}
			seen[next.Sub(before).Milliseconds()/100] = true
		}
		if len(seen) < 10 {
			t.Errorf("all waits are alike: %v", seen)
		}
	}
	for after, want := range map[time.Duration]time.Duration{time.Hour: time.Hour, 100 * time.Hour: maxAfter} {
		before := time.Now()
		r := s.outcome(new(due), &Failure{Reason: "busy", After: after})
		if wait := time.UnixMilli(r.Next).Sub(before); wait < want-time.Second || wait > want+time.Second {
			t.Errorf("who asked for %s is asked again after %s", after, wait)
		}
	}
	deal := &notifier.Deal{Expiry: 2_000_000_000, GraceEnd: 2_000_000_000 + 24*3600}
	for left, want := range map[uint64]time.Duration{3600: 15 * time.Minute, 60: 15 * time.Second, 1: s.cfg.FirstWait} { // until the deal expires
		d := &due{alert: notifier.Alert{Deal: deal, Stage: notifier.Before1, Due: deal.Expiry - 3600}, sub: notifier.Subscription{Prefs: 0x7f}, now: deal.Expiry - left}
		before := time.Now()
		r := s.outcome(d, &Failure{Reason: "busy", After: 100 * time.Hour})
		if wait := time.UnixMilli(r.Next).Sub(before); wait < want-time.Second || wait > want+time.Second {
			t.Errorf("%d s before the deadline it is tried again after %s", left, wait)
		}
	}
	if r := s.outcome(new(due), errors.New("ann@example.com is not a word")); r.Result != notifier.Retry || r.Reason != "the channel does not say why" {
		t.Errorf("an error of no kind: %+v", r)
	}
}

// A push service keeps a message until the next that its reader asked for, or the deadline: no longer.
func TestPushTTL(t *testing.T) {
	const expiry = 2_000_000_000
	deal := &notifier.Deal{Expiry: expiry, GraceEnd: expiry + 12*3600}
	for _, c := range []struct {
		stage  notifier.Stage
		prefs  notifier.Prefs
		before uint64 // the expiry
		ttl    time.Duration
	}{
		{notifier.Before48, 0x7f, 48 * 3600, 24 * time.Hour},
		{notifier.Before6, 0x7f, 6 * 3600, 5 * time.Hour},
		{notifier.Before6, 1 << notifier.T6, 6*3600 - 600, 6*time.Hour - 10*time.Minute},
		{notifier.Before1, 0x7f, 3600, time.Hour},
		{notifier.Before1, 0x7f, 1, time.Minute},
		{notifier.Before1, 0x7f, 0, 12 * time.Hour}, // it comes late, and the borrower has the grace period
		{notifier.Before1, 1 << notifier.T1, 0, 12 * time.Hour},
		{notifier.AtExpiry, 0x7f, 0, 12 * time.Hour},
		{notifier.AtGraceEnd, 0x7f, 0, 24 * time.Hour},
	} {
		alert := notifier.Alert{Deal: deal, Stage: c.stage}
		if ttl := pushTTL(&Message{Now: expiry - c.before, Until: alert.Until(c.prefs, expiry-c.before)}); ttl != c.ttl {
			t.Errorf("%s, %d s before: %s, want %s", c.stage, c.before, ttl, c.ttl)
		}
	}
}
