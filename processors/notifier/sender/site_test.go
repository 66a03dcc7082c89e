package sender

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/SherClockHolmes/webpush-go"

	"github.com/lienstream/lienstream/processors/notifier"
)

// A site is on probation until it answers in time, and again for longer each time that it does not. Refusals of what strangers made up
// are answers, and narrow nothing.
func TestTrials(t *testing.T) {
	s := &Sender{cfg: DefaultConfig()}
	of := &site{room: s.cfg.PerHost, needs: 1}
	refused, _ := errors.AsType[*Failure](refusedPush(&http.Response{StatusCode: http.StatusForbidden}, time.Now()))
	answers := func() (n int) {
		for ; of.trustEnds == nil; n++ {
			s.answered(of, nil, time.Millisecond)
		}
		return n
	}
	for _, want := range []int{1, 2, 4, 8, 16, 16} {
		if n := answers(); n != want {
			t.Errorf("a trial ended after %d answers, want %d", n, want)
		}
		trusts := of.trustEnds
		s.answered(of, &Failure{Silent: true}, time.Second)
		select {
		case <-trusts:
		default:
			t.Error("who waits for its turn is not told")
		}
	}
	answers()
	noName := unreached(&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "made-up.example.com", IsNotFound: true}})
	nobody, _ := errors.AsType[*Failure](noName)
	s.answered(of, nobody, time.Millisecond)
	if of.trustEnds == nil {
		t.Error("a site is on probation again because of a made-up host below it")
	}
	s.answered(of, nobody, slow)
	if of.trustEnds != nil {
		t.Error("a site whose names take as long as this is not on probation")
	}
	s.answered(of, nobody, time.Millisecond)
	if of.trustEnds != nil {
		t.Error("a host that does not exist ends a trial")
	}
	answers()
	for range 20 {
		s.answered(of, refused, time.Millisecond)
	}
	if of.room != s.cfg.Queue/2 {
		t.Errorf("room for %d after refusals", of.room)
	}
	s.answered(of, &Failure{Busy: true}, time.Millisecond)
	if of.room != s.cfg.PerHost || of.trustEnds == nil {
		t.Errorf("room for %d after it asked for less", of.room)
	}
}

// TestKeysThatCannotBeRead are the subscription's fault, and not its push service's, which was not asked.
func TestKeysThatCannotBeRead(t *testing.T) {
	private, public, err := webpush.GenerateVAPIDKeys()
	if err != nil {
		t.Fatal(err)
	}
	push, err := NewPush(PushConfig{Private: private, Contact: "ops@lien.example"})
	if err != nil {
		t.Fatal(err)
	}
	to := fmt.Sprintf(`{"endpoint":"https://fcm.googleapis.com/fcm/send/x","keys":{"p256dh":%q,"auth":"AAAAAAAAAAAAAAAAAAAAAA===="}}`, public)
	a := notifier.Alert{News: &notifier.News{Stage: notifier.EpochOpen, Epoch: 1, Budget7: "1", Budget21: "1"}, Stage: notifier.EpochOpen}
	sent := push.Send(t.Context(), &Message{Channel: notifier.Push, To: to, Alert: a, Event: a.Event(notifier.Address{Channel: notifier.Push, Stage: notifier.EpochOpen})})
	f, ok := errors.AsType[*Failure](sent)
	if !ok || !f.Gone || f.Silent {
		t.Errorf("%+v", sent)
	}
	s := &Sender{cfg: DefaultConfig()}
	of := s.newSite("fcm.googleapis.com")
	if s.answered(of, f, time.Millisecond); of.trustEnds == nil {
		t.Error("they put it on probation")
	}
	s.answered(of, &Failure{Silent: true}, time.Second)
	for range 2 * mostNeeds {
		if s.answered(of, f, time.Millisecond); of.trustEnds != nil {
			t.Fatal("they end its trial")
		}
	}
}
