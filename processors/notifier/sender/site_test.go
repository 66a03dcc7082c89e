package sender

import (
	"errors"
	"net"
	"net/http"
	"testing"
	"time"
)

// A site is on trial until it answers in time, and again for longer each time that it does not. Refusals of what strangers made up
// are answers, and narrow nothing.
func TestTrials(t *testing.T) {
	s := &Sender{cfg: DefaultConfig()}
	of := &site{room: s.cfg.PerHost, needs: 1}
	refused, _ := errors.AsType[*Failure](refusedPush(&http.Response{StatusCode: http.StatusForbidden}, time.Now()))
	answers := func() (n int) {
		for ; of.trusts == nil; n++ {
			s.answered(of, nil, time.Millisecond)
		}
		return n
	}
	for _, want := range []int{1, 2, 4, 8, 16, 16} {
		if n := answers(); n != want {
			t.Errorf("a trial ended after %d answers, want %d", n, want)
		}
		trusts := of.trusts
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
	if of.trusts == nil {
		t.Error("a site is on trial again, as somebody has made up a host below it")
	}
	s.answered(of, nobody, slow)
	if of.trusts != nil {
		t.Error("a site whose names take as long as this is not on trial")
	}
	s.answered(of, nobody, time.Millisecond)
	if of.trusts != nil {
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
	if of.room != s.cfg.PerHost || of.trusts == nil {
		t.Errorf("room for %d after it asked for less", of.room)
	}
}
