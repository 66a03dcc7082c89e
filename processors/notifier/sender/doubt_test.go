package sender

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/notifier"
)

// What a server refuses to one address, again and again, while it takes what others are sent, is refused for good. While it takes
// nothing it is not, nor if all of it was refused within minutes.
func TestDoubtfulRefusals(t *testing.T) {
	for name, of := range map[string]*site{"mail": nil, "push": {}} {
		synctest.Test(t, func(t *testing.T) {
			t.Log(name)
			s := &Sender{cfg: DefaultConfig(), metrics: newMetrics(prometheus.NewRegistry()), log: zap.NewNop()}
			to := func(who byte, stage notifier.Stage, mask string) *due {
				address := notifier.Address{Wallet: common.Address{who}, Channel: notifier.Email, Stage: stage}
				return &due{row: address.Row(), to: address, sub: notifier.Subscription{Mask: mask}, site: of}
			}
			ann, bob := to(1, notifier.Before1, "a•••@example.com"), to(2, notifier.Before1, "b•••@ＥXample.com")
			strangers := []*due{to(3, notifier.ToConfirm, "c•••@example.com")}
			if of == nil {
				strangers = append(strangers, to(4, notifier.Before1, "d•••@example.org"))
			}
			refused := func() notifier.Result {
				return s.outcome(ann, &Failure{Reason: "no", Doubtful: true}).Result
			}
			for range 3 * maxDoubts {
				for _, other := range strangers { // a request, and a domain of its own
					s.outcome(other, nil)
				}
				<-time.After(doubtEvery) // of a clock that does not wait
				if refused() != notifier.Retry {
					t.Fatal("it ends a subscription, and nobody gets anything")
				}
			}
			began := time.Now()
			for range 3 * maxDoubts {
				s.outcome(bob, nil)
				if <-time.After(time.Second); refused() != notifier.Retry {
					t.Fatalf("a subscription ends %s after the first refusal", time.Since(began))
				}
			}
			ends := func() (n int) {
				for n = 1; n < 3*maxDoubts; n++ {
					<-time.After(doubtEvery)
					s.outcome(bob, nil)
					if refused() == notifier.Gone {
						return n
					}
				}
				return n
			}
			if n := ends(); n != maxDoubts-2 {
				t.Errorf("after the first %d more end a subscription", n)
			}
			s.outcome(ann, nil)
			ended := time.Now()
			if n := ends(); n != maxDoubts || time.Since(ended) < 20*time.Minute {
				t.Errorf("after a message was taken %d refusals end a subscription", n)
			}
		})
	}
}

// TestDoubtsBeginAnew: an address that refusals have ended has all of them once more when its wallet names it again, and so has one that
// was refused long ago.
func TestDoubtsBeginAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Sender{cfg: DefaultConfig(), metrics: newMetrics(prometheus.NewRegistry()), log: zap.NewNop()}
		to := func(who byte) *due {
			address := notifier.Address{Wallet: common.Address{who}, Channel: notifier.Email, Stage: notifier.Before1}
			return &due{row: address.Row(), to: address, sub: notifier.Subscription{Mask: "a•••@example.com", Unix: 5}}
		}
		refusals := func() (n int) {
			for n = 1; n < 3*maxDoubts; n++ {
				<-time.After(doubtEvery)
				s.outcome(to(2), nil)
				if s.outcome(to(1), &Failure{Reason: "no", Doubtful: true}).Result == notifier.Gone {
					break
				}
			}
			return n
		}
		for _, when := range []string{"at first", "named again"} {
			if n := refusals(); n != maxDoubts {
				t.Errorf("%s: refusal %d ends a subscription", when, n)
			}
		}
		s.outcome(to(1), &Failure{Reason: "no", Doubtful: true})
		<-time.After(doubtLasts)
		if n := refusals(); n != maxDoubts {
			t.Errorf("a day later: refusal %d ends a subscription", n)
		}
		days := 0
		for ended := false; !ended && days < 30; days++ { // others are sent something once a day, and hers comes again each hour
			s.outcome(to(2), nil)
			for range 24 {
				<-time.After(time.Hour)
				ended = ended || s.outcome(to(1), &Failure{Reason: "no", Doubtful: true}).Result == notifier.Gone
			}
		}
		if days != maxDoubts {
			t.Errorf("where others are sent something once a day, it ends after %d days", days)
		}
	})
}
