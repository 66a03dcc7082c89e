package support

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/serving/httpapi"
)

// Limits bound what a client can cost before it has paid: requests to the payment chain's node, and the relayer's gas.
// Clients are distinguished as by httpapi.ClientLimits.
type Limits struct {
	Checks      Budget // requests of a client that read the payment chain
	PayerChecks Budget // the same of a payer whose signature is verified
	Unpaid      Budget // payments of a client that were submitted and are not charged

	Waiting int // requests that wait for one payment; further ones are told to retry at once
}

// Budget is how often something may be done at once, and after what time each is available again.
type Budget struct {
	Burst int
	Every time.Duration
}

// DefaultLimits let a hundred payers behind one address pay at once.
func DefaultLimits() Limits {
	return Limits{
		Checks: Budget{256, time.Second}, PayerChecks: Budget{16, 10 * time.Second}, Unpaid: Budget{128, 10 * time.Minute}, Waiting: 8,
	}
}

func (l *Limits) validate() error {
	var faults []error
	for _, b := range []struct {
		name string
		of   Budget
	}{{"checks of a client", l.Checks}, {"checks of a payer", l.PayerChecks}, {"unpaid payments of a client", l.Unpaid}} {
		if b.of.Burst <= 0 || b.of.Every <= 0 {
			faults = append(faults, fmt.Errorf("support: %s: %d, each after %s: both must be positive", b.name, b.of.Burst, b.of.Every))
		}
	}
	if l.Waiting <= 0 {
		faults = append(faults, fmt.Errorf("support: requests that wait for one payment: %d is not positive", l.Waiting))
	}
	return errors.Join(faults...)
}

// budgets are the limits' budgets of this process.
type budgets struct {
	checks, unpaid *budget[netip.Addr]
	payerChecks    *budget[common.Address]
}

func newBudgets(l Limits) budgets {
	return budgets{checks: newBudget[netip.Addr](l.Checks), unpaid: newBudget[netip.Addr](l.Unpaid), payerChecks: newBudget[common.Address](l.PayerChecks)}
}

// maxSpenders bounds a budget's memory. Beyond it, new spenders share one budget.
const maxSpenders = 1 << 16

// budget is a Budget for each of many spenders.
type budget[K comparable] struct {
	Budget
	mu   sync.Mutex
	full map[K]time.Time // by spender: when its budget is full again
}

func newBudget[K comparable](b Budget) *budget[K] {
	return &budget[K]{Budget: b, full: map[K]time.Time{}}
}

// spend takes one, or returns the time until one is available.
func (b *budget[K]) spend(key K, now time.Time) (wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key = b.admit(key, now)
	full := b.full[key]
	if full.Before(now) {
		full = now
	}
	if wait = full.Sub(now) - time.Duration(b.Burst-1)*b.Every; wait > 0 {
		return wait
	}
	b.full[key] = full.Add(b.Every)
	return 0
}

// giveBack undoes a spend.
func (b *budget[K]) giveBack(key K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if full, known := b.full[key]; known {
		b.full[key] = full.Add(-b.Every)
	}
}

// admit is the key to count under: the zero key once there are too many.
func (b *budget[K]) admit(key K, now time.Time) K {
	if _, known := b.full[key]; known || len(b.full) < maxSpenders {
		return key
	}
	for k, full := range b.full {
		if !full.After(now) {
			delete(b.full, k)
		}
	}
	if len(b.full) >= maxSpenders {
		var others K
		return others
	}
	return key
}

func rateLimited(wait time.Duration, message string) error {
	return &httpapi.Error{Code: httpapi.RateLimited, Message: message, RetryAfter: wait}
}

// mayAsk counts, once, a request that reads the payment chain.
func (s *Service) mayAsk(x *exchange) error {
	if x.asks || !x.client.IsValid() {
		return nil
	}
	if wait := s.budgets.checks.spend(x.client, s.deps.Now()); wait > 0 {
		return rateLimited(wait, "too many payments of this client were looked up")
	}
	x.asks = true
	return nil
}

// mayCheck counts a request of a payer, only after its signature is verified, or any client could use up the payer's
// budget. The client's budget comes first: a client can have any number of wallets, and the number that is counted is
// bounded.
func (s *Service) mayCheck(x *exchange) error {
	if err := s.mayAsk(x); err != nil {
		return err
	}
	if wait := s.budgets.payerChecks.spend(x.signed.From, s.deps.Now()); wait > 0 {
		return rateLimited(wait, "too many payments of this wallet were looked up")
	}
	return nil
}

// maySubmit counts a payment that the relayer pays gas for. Once it is charged it is given back: by submitted, or by
// chargedLater if its client was told to retry.
func (s *Service) maySubmit(x *exchange) error {
	if x.used || !x.client.IsValid() {
		return nil
	}
	if wait := s.budgets.unpaid.spend(x.client, s.deps.Now()); wait > 0 {
		return rateLimited(wait, "too many payments of this client could not be charged")
	}
	return nil
}

func (s *Service) submitted(x *exchange) {
	if !x.used && x.client.IsValid() {
		s.budgets.unpaid.giveBack(x.client)
	}
}

// undecided leaves it to the payment's drive to give back the count, once it is charged.
func (s *Service) undecided(x *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.drives[driveKey{x.signed.From, x.signed.Nonce}]; d != nil && !x.used {
		d.unpaid = x.client
	}
}

// chargedLater gives back, once, the count of a payment that was not charged while its client waited.
func (s *Service) chargedLater(key driveKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.drives[key]; d != nil && d.unpaid.IsValid() {
		s.budgets.unpaid.giveBack(d.unpaid)
		d.unpaid = netip.Addr{}
	}
}
