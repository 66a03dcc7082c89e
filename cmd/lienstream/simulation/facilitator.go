package simulation

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/serving/x402"
)

// facilitator submits whatever it is asked to, and checks nothing: what is wrong with a payment, the service must see. It may be
// told a lie. It implements http.Handler.
type facilitator struct {
	*payments
	network string
	refuses map[common.Address]bool   // it submits no payment of these wallets, and says so
	spends  map[common.Address][]byte // what these wallets do just before their payments: a call of the dollar

	lmu                   sync.Mutex // payments has another
	omits, denies, silent bool       // it submits nothing; says that it has not; says nothing at all
}

func (f *facilitator) lies(omits, denies, silent bool) {
	f.lmu.Lock()
	defer f.lmu.Unlock()
	f.omits, f.denies, f.silent = omits, denies, silent
}

func (f *facilitator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var asks struct{ PaymentPayload x402.Payment }
	if err := json.NewDecoder(r.Body).Decode(&asks); err != nil {
		return // half a request, of who was killed
	}
	s, err := asks.PaymentPayload.Signed()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.lmu.Lock()
	omits, denies, silent := f.omits, f.denies, f.silent
	f.lmu.Unlock()
	if f.refuses[s.From] {
		omits, denies = true, true
	}
	if !omits {
		f.submit(f.spends[s.From], s.Calldata())
	}
	if silent {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	_ = json.NewEncoder(w).Encode(x402.Settlement{Success: !denies, Transaction: "0x", Network: f.network})
}

// paymentKinds are the faults of the payment chain and of who settles on it.
func paymentKinds() []faultKind {
	return []faultKind{
		{"payment chain is away", 2, "", func(_ context.Context, r *run, f fault) error { return r.hold(paymentHost, f.hosts, true, f.lasts) }},
		{"payment chain turns back", 3, "", func(_ context.Context, r *run, f fault) error {
			rng := rand.New(rand.NewPCG(f.seed, 0))
			r.payments.turn(1+rng.IntN(confirmations-1), rng.IntN(2) == 0)
			return nil
		}},
		{"facilitator lies", 4, "", func(_ context.Context, r *run, f fault) error {
			rng := rand.New(rand.NewPCG(f.seed, 0))
			r.facilitator.lies(rng.IntN(2) == 0, rng.IntN(2) == 0, rng.IntN(3) == 0)
			time.Sleep(f.lasts)
			r.facilitator.lies(false, false, false)
			return nil
		}},
	}
}
