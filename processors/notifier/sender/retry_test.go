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
	if r := s.outcome(new(due), errors.New("ann@example.com is not a word")); r.Result != notifier.Retry || r.Reason != "the channel does not say why" {
		t.Errorf("an error of no kind: %+v", r)
	}
}
