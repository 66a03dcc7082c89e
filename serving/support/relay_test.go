package support

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/x402"
	"github.com/lienstream/lienstream/topics/polltest"
)

// dear is a node whose price triples with the first transaction that it is sent: that one is not taken.
type dear struct {
	x402.Sender
	least atomic.Pointer[big.Int]
}

func (d *dear) SuggestGasTipCap(ctx context.Context) (*big.Int, error) {
	if least := d.least.Load(); least != nil {
		return least, nil
	}
	return d.Sender.SuggestGasTipCap(ctx)
}

func (d *dear) SendTransaction(ctx context.Context, tx *types.Transaction) error {
	d.least.CompareAndSwap(nil, new(big.Int).Mul(tx.GasFeeCap(), big.NewInt(3)))
	if tx.GasTipCap().Cmp(d.least.Load()) < 0 {
		return errors.New("transaction underpriced")
	}
	return d.Sender.SendTransaction(ctx, tx)
}

// A higher gas price is paid, at the same nonce. A relayer without gas leaves a payment to one that has some.
func TestGas(t *testing.T) {
	w := newWorld(t)
	w.cfg.ResumeAfter = time.Millisecond
	w.mine()
	chain := &dear{Sender: w.chain.Client()}
	s := w.start(w.deps(w.relayerOn(chain, w.client(), "relayer")))
	s.post(w.header(w.pay(w.chain.Key("payer"), "dear")), body("Dear")).created(t)
	if nonce, err := w.chain.Client().NonceAt(t.Context(), w.chain.Address("relayer"), nil); err != nil || nonce == 0 || w.charges(w.chain.Address("payer")) != 1 {
		t.Errorf("the relayer has sent %d transactions, the payee has %d: %v", nonce, w.paid(), err)
	}
	s.stop()

	w.fund(w.chain.Address("stranger"), deposit)
	payment := w.header(w.pay(w.chain.Key("stranger"), "poor"))
	w.cfg.Wait = 200 * time.Millisecond
	poor := w.start(w.deps(w.relayer("no gas")))
	if got := poor.post(payment, body("Poor")); got.status != http.StatusServiceUnavailable || got.code() != "PAYMENT_PENDING" || w.paid() != deposit {
		t.Errorf("without gas: %d %s, the payee has %d", got.status, got.body, w.paid())
	}
	poor.stop()
	w.cfg.Wait = 20 * time.Second
	w.start(w.deps(w.relayer("relayer"))).post(payment, body("Poor")).created(t)
	if n := w.charges(w.chain.Address("stranger")); n != 1 {
		t.Errorf("charged %d times", n)
	}
}

// faint is a node that fails once when it is asked for the tip: right before anything is recorded or sent.
type faint struct {
	x402.Sender
	failed atomic.Bool
}

func (f *faint) SuggestGasTipCap(ctx context.Context) (*big.Int, error) {
	if f.failed.CompareAndSwap(false, true) {
		return nil, errors.New("no response")
	}
	return f.Sender.SuggestGasTipCap(ctx)
}

// A payment whose settler failed once is passed to it again soon, and not when its authorization has nearly ended.
func TestASettlerThatFailsOnce(t *testing.T) {
	w := newWorld(t)
	w.cfg.Resend, w.cfg.Wait = time.Minute, 15*time.Second
	w.mine()
	chain := &faint{Sender: w.chain.Client()}
	w.start(w.deps(w.relayerOn(chain, w.client(), "relayer"))).post(w.header(w.pay(w.chain.Key("payer"), "faint")), body("Faint")).created(t)
	if !chain.failed.Load() {
		t.Error("the node did not fail")
	}
}

// A settler that always fails is asked less and less often.
func TestASettlerThatFailsIsAskedSeldom(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	s, d := &Service{cfg: cfg}, &drive{}
	for failures, want := range []time.Duration{cfg.Resend, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, cfg.Resend, cfg.Resend} {
		if got := s.again(d); got != want {
			t.Errorf("after %d failures: again after %s, want %s", failures, got, want)
		}
		d.failures.Add(1)
	}
	d.failures.Store(1 << 30)
	if got := s.again(d); got != cfg.Resend {
		t.Errorf("after very many: %s", got)
	}
}

// A nonce whose process died before it sent anything is filled, and the payments behind it are settled.
func TestAGapIsFilled(t *testing.T) {
	w := newWorld(t)
	w.mine()
	relayer := w.chain.Address("relayer")
	lost := w.pay(w.chain.Key("stranger"), "lost")
	if nonce, err := (NonceQueue{Desk: w.client(), Chain: w.terms.ChainID}).Take(t.Context(), relayer, &lost.Authorization, 0, 0); err != nil || nonce != 0 {
		t.Fatalf("nonce %d, %v", nonce, err)
	}
	s := w.start(w.deps(w.relayer("relayer")))
	s.post(w.header(w.pay(w.chain.Key("payer"), "behind")), body("Behind")).created(t)
	if nonce, err := w.chain.Client().NonceAt(t.Context(), relayer, nil); err != nil || nonce < 2 {
		t.Errorf("the relayer has sent %d transactions, want the filler and the payment: %v", nonce, err)
	}
}

// before reads the desk as a build that named no chains has left it: the relayer's nonces are of none.
type before struct{ desk.Reads }

func (r before) Find(ctx context.Context, partition int32, wallet common.Address, nonce common.Hash) (desk.Found, error) {
	found, err := r.Reads.Find(ctx, partition, wallet, nonce)
	if err == nil && len(found.Desk.Queues) == 1 {
		d := *found.Desk
		d.NextNonce, d.NonceQueue, d.Queues = d.Queues[0].Next, d.Queues[0].Slots, nil
		found.Desk = &d
	}
	return found, err
}

// After an upgrade from a build that named no chains, a gap is filled though no other nonce is taken.
func TestAGapOfBeforeChainsWereNamed(t *testing.T) {
	w := newWorld(t)
	w.mine()
	relayer := w.chain.Address("relayer")
	lost := w.pay(w.chain.Key("stranger"), "lost") // its taker has died
	_, err := NonceQueue{Desk: w.client(), Chain: w.terms.ChainID}.Take(t.Context(), relayer, &lost.Authorization, 0, 0)
	check(t, err)
	signed := w.pay(w.chain.Key("payer"), "behind")
	w.cfg.Wait = 100 * time.Millisecond
	relaying := x402.DefaultRelayerConfig() // it fills a gap later than it is stopped
	relaying.Nonces = NonceQueue{Desk: w.client(), Chain: w.terms.ChainID}
	patient, err := x402.NewRelayer(relaying, w.terms, w.chain.Client(), w.chain.Key("relayer"))
	check(t, err)
	former := w.start(w.deps(patient))
	if got := former.post(w.header(signed), body("Behind")); got.code() != "PAYMENT_PENDING" {
		t.Fatalf("%d %s", got.status, got.body)
	}
	polltest.Until(t, "it is sent", func() bool {
		found, err := w.client().Find(t.Context(), signed.From, signed.Nonce)
		return err == nil && found.Payment != nil && found.Payment.Status == desk.StatusSent
	})
	former.stop()
	if n := w.charges(signed.From); n != 0 {
		t.Fatalf("charged %d times by the former build: there is no gap", n)
	}
	client := desk.NewClient(w.producer, before{desk.Routed{Router: w.router}}, w.cat)
	deps := w.deps(w.relayerOn(w.chain.Client(), client, "relayer"))
	deps.Desk = client
	w.start(deps)
	polltest.Until(t, "it is charged", func() bool { return w.charges(signed.From) == 1 })
}

// Nonces whose takers died are filled together, each after it was missing for as long as one waits: not one after the
// other.
func TestGapsAreFilledTogether(t *testing.T) {
	w := newWorld(t)
	relayer, now := w.chain.Address("relayer"), time.Unix(1_700_000_000, 0)
	relaying := x402.DefaultRelayerConfig()
	relaying.Nonces, relaying.Confirmations, relaying.Now = NonceQueue{Desk: w.client(), Chain: w.terms.ChainID}, w.cfg.Confirmations, func() time.Time { return now }
	r, err := x402.NewRelayer(relaying, w.terms, w.chain.Client(), w.chain.Key("relayer"))
	check(t, err)
	lose := func(first, many int) {
		t.Helper()
		for i := range many {
			lost := w.pay(w.chain.Key("stranger"), fmt.Sprint("lost ", first+i))
			if nonce, err := relaying.Nonces.Take(t.Context(), relayer, &lost.Authorization, 0, 0); err != nil || nonce != uint64(first+i) {
				t.Fatalf("nonce %d, %v", nonce, err)
			}
		}
	}
	bumped := func(wait time.Duration, want uint64) {
		t.Helper()
		now = now.Add(wait)
		check(t, r.Bump(t.Context()))
		polltest.Until(t, fmt.Sprintf("the pool has %d of the relayer's transactions", want), func() bool {
			pending, err := w.chain.Client().PendingNonceAt(t.Context(), relayer)
			check(t, err)
			return pending == want
		})
	}
	lose(0, 5)
	bumped(0, 0)
	lose(5, 1)                      // a process may be about to record it
	bumped(relaying.BumpAfter-1, 0) // nor are they filled too early
	bumped(1, 5)                    // all at once, but the last
	bumped(relaying.BumpAfter-1, 6) // and this when it has waited
	lose(6, 70)                     // more than are filled at once
	bumped(0, 6)
	bumped(relaying.BumpAfter, 6+64)
	bumped(0, 76)
}

// A hundred pay at once on two nodes that share a relayer: each is charged once, and no nonce is skipped.
func TestManyPayAtOnce(t *testing.T) {
	w := newWorld(t)
	many := 100
	if testing.Short() {
		many = 10
	}
	payments := make([]string, many)
	for i := range payments {
		key, err := crypto.GenerateKey()
		check(t, err)
		w.fund(crypto.PubkeyToAddress(key.PublicKey), deposit)
		payments[i] = w.header(w.pay(key, fmt.Sprint(i)))
	}
	w.mine()
	nodes := []*service{w.start(w.deps(w.relayer("relayer"))), w.start(w.deps(w.relayer("relayer")))}
	var wg sync.WaitGroup
	for i, payment := range payments {
		wg.Go(func() {
			got := nodes[i%2].post(payment, body(fmt.Sprint(i)))
			for tries := 0; got.status == http.StatusServiceUnavailable && tries < 10; tries++ {
				got = nodes[i%2].post(payment, body(fmt.Sprint(i)))
			}
			if got.status != http.StatusCreated {
				t.Errorf("payment %d: %d %s", i, got.status, got.body)
			}
		})
	}
	wg.Wait()
	if got := w.paid(); got != int64(many)*deposit {
		t.Errorf("the payee has %d, want %d deposits", got, many)
	}
	if nonce, err := w.chain.Client().NonceAt(t.Context(), w.chain.Address("relayer"), nil); err != nil || nonce < uint64(many) {
		t.Errorf("the relayer has sent %d transactions for %d payments: %v", nonce, many, err)
	}
}
