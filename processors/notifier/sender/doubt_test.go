package sender

import (
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/notifier"
)

// What a server refuses to one address, again and again, while it takes what others are sent, is refused for good. While it takes
// nothing it is not.
func TestDoubtfulRefusals(t *testing.T) {
	for name, of := range map[string]*site{"mail": nil, "push": {}} {
		t.Run(name, func(t *testing.T) {
			s := &Sender{cfg: DefaultConfig(), metrics: newMetrics(prometheus.NewRegistry()), log: zap.NewNop()}
			to := func(who byte) *due {
				address := notifier.Address{Wallet: common.Address{who}, Channel: notifier.Email}
				return &due{row: address.Row(), to: address, site: of}
			}
			ann, bob := to(1), to(2)
			refused := func() notifier.Result {
				return s.outcome(ann, &Failure{Reason: "no", Doubtful: true}).Result
			}
			for range 3 * maxDoubts {
				if refused() != notifier.Retry {
					t.Fatal("it ends a subscription, and nobody gets anything")
				}
			}
			ends := func() (n int) {
				for n = 1; n < 3*maxDoubts; n++ {
					s.outcome(bob, nil)
					if refused() == notifier.Gone {
						return n
					}
				}
				return n
			}
			if n := ends(); n != maxDoubts-1 {
				t.Errorf("after the first %d more end a subscription", n)
			}
			s.outcome(ann, nil)
			if n := ends(); n != maxDoubts {
				t.Errorf("after a message was taken %d refusals end a subscription", n)
			}
		})
	}
}
