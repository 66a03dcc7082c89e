package support

import (
	"context"
	"fmt"
	"math/big"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/params"

	"github.com/lienstream/lienstream/ingest/devchain/paychain"
	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/x402"
	"github.com/lienstream/lienstream/topics/polltest"
)

// counting is a node that counts what it is asked.
type counting struct {
	*ethclient.Client
	asked atomic.Int64
}

func (c *counting) CodeAt(ctx context.Context, account common.Address, block *big.Int) ([]byte, error) {
	c.asked.Add(1)
	return c.Client.CodeAt(ctx, account, block)
}

func (c *counting) CallContract(ctx context.Context, msg ethereum.CallMsg, block *big.Int) ([]byte, error) {
	c.asked.Add(1)
	return c.Client.CallContract(ctx, msg, block)
}

// ambush is a contract wallet that has signed everything while it is only asked, and burns all gas once that is paid
// for.
var ambush = common.FromHex("631626ba7e60e01b600052" + // the answer of one that has signed
	"3a15601157fe" + // unless the gas has no price, break off
	"5b60206000f3")

// deploy puts code on the chain as it is.
func (w *world) deploy(code []byte) common.Address {
	w.t.Helper()
	init := append([]byte{0x60, byte(len(code)), 0x80, 0x60, 11, 0x60, 0, 0x39, 0x60, 0, 0xf3}, code...)
	nonce, err := w.chain.Client().NonceAt(w.t.Context(), w.chain.Address("owner"), nil)
	check(w.t, err)
	tx, err := types.SignNewTx(w.chain.Key("owner"), types.LatestSignerForChainID(big.NewInt(paychain.ChainID)), &types.DynamicFeeTx{
		ChainID: big.NewInt(paychain.ChainID), Nonce: nonce, GasTipCap: big.NewInt(params.GWei), GasFeeCap: big.NewInt(100 * params.GWei),
		Gas: 1_000_000, Data: init,
	})
	check(w.t, err)
	_, err = w.chain.Mine(w.t.Context(), tx)
	check(w.t, err)
	return crypto.CreateAddress(w.chain.Address("owner"), nonce)
}

// behindProxy has the service tell clients apart by what a proxy on this machine says.
func (w *world) behindProxy() {
	w.cfg.HTTP.Client.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
}

// sent is how many transactions of the relayer are on the chain.
func (w *world) sent() uint64 {
	w.t.Helper()
	nonce, err := w.chain.Client().NonceAt(w.t.Context(), w.chain.Address("relayer"), nil)
	check(w.t, err)
	return nonce
}

// alone waits until no process follows a payment any more.
func (w *world) alone(s *service, paid answer) {
	w.t.Helper()
	id, _ := paid.created(w.t)
	polltest.Until(w.t, "nobody follows it", func() bool { return w.ticketOf(id).Status == desk.StatusFinal && !s.busy() })
}

// ambushed is a payment of a hostile contract wallet.
func (w *world) ambushed(wallet common.Address, nonce string) string {
	signed := w.pay(w.chain.Key("payer"), nonce, func(a *x402.Authorization) { a.From = wallet })
	signed.Signature = []byte{1}
	return w.header(signed)
}

// A wallet whose payments pass the check and fail on the chain burns the relayer's gas a few times a day, on all nodes
// together; and one client a few times more with other wallets.
func TestAWalletThatFailsOnTheChain(t *testing.T) {
	w := newWorld(t)
	w.behindProxy()
	w.cfg.ResumeAfter = time.Minute // only one of the nodes submits it
	w.cfg.Limits.Unpaid = Budget{desk.MaxRefused + 1, time.Hour}
	var wallets [3]common.Address
	for i := range wallets {
		wallets[i] = w.deploy(ambush)
		w.fund(wallets[i], deposit)
	}
	w.mine()
	nodes := []*service{w.start(w.deps(w.relayer("relayer"))), w.start(w.deps(w.relayer("relayer")))}
	for i := range desk.MaxRefused {
		got := nodes[0].postFrom("192.0.2.1", w.ambushed(wallets[0], fmt.Sprint(i)), body("Ambush"))
		if got.status != http.StatusPaymentRequired || got.reason(t) != x402.ReasonTransaction {
			t.Fatalf("payment %d: %d %s", i, got.status, got.body)
		}
	}
	for i, s := range nodes {
		got := s.postFrom("192.0.2.2", w.ambushed(wallets[0], "more"), body("Ambush"))
		if got.status != http.StatusTooManyRequests || got.code() != "REPORT_LIMIT" || got.header.Get("Retry-After") == "" {
			t.Errorf("node %d, one more of that wallet: %d %s", i, got.status, got.body)
		}
	}
	// The client has one left, whatever the wallet.
	nodes[0].postFrom("192.0.2.1", w.ambushed(wallets[1], "last"), body("Ambush"))
	sent := w.sent()
	if got := nodes[0].postFrom("192.0.2.1", w.ambushed(wallets[2], "beyond"), body("Ambush")); got.code() != "RATE_LIMITED" || got.header.Get("Retry-After") == "" {
		t.Errorf("one more of that client: %d %s", got.status, got.body)
	}
	if n := w.sent(); n != sent || n != desk.MaxRefused+1 || w.paid() != 0 {
		t.Errorf("the relayer has sent %d, and %d to whom it refused; the payee has %d", sent, n-sent, w.paid())
	}
	nodes[0].postFrom("192.0.2.2", w.header(w.pay(w.chain.Key("payer"), "honest")), body("Honest")).created(t)
}

// Payments that are charged cost a client nothing, however many payers there are behind its address.
func TestWhoIsChargedIsNotCounted(t *testing.T) {
	w := newWorld(t)
	w.behindProxy()
	w.cfg.Limits.Unpaid = Budget{1, time.Hour}
	w.fund(w.chain.Address("stranger"), deposit)
	w.mine()
	s := w.start(w.deps(w.relayer("relayer")))
	for _, name := range []string{"payer", "stranger"} {
		s.postFrom("192.0.2.1", w.header(w.pay(w.chain.Key(name), name)), body("Charged")).created(t)
	}
}

// A client that has not paid causes a bounded number of reads of the payment chain, whatever it signs with. Other
// clients are not affected, nor is one that was charged and asks again.
func TestWhoHasNotPaidAsksSeldom(t *testing.T) {
	const checks = 5
	w := newWorld(t)
	w.behindProxy()
	w.cfg.Limits.Checks = Budget{checks, time.Hour}
	w.mine()
	chain := &counting{Client: w.chain.Client()}
	deps := w.deps(w.relayer("relayer"))
	deps.Chain = chain
	s := w.start(deps)
	paid := w.header(w.pay(w.chain.Key("payer"), "paid"))
	w.alone(s, s.postFrom("192.0.2.1", paid, body("Paid")))
	for kind, payment := range map[string]func(nonce string) string{
		"192.0.2.2 an empty wallet": func(nonce string) string {
			key, err := crypto.GenerateKey()
			check(t, err)
			return w.header(w.pay(key, nonce))
		},
		"192.0.2.3 no signature": func(nonce string) string {
			signed := w.pay(w.chain.Key("stranger"), nonce)
			signed.Signature = []byte{1}
			return w.header(signed)
		},
		"192.0.2.4 one that has ended": func(nonce string) string {
			return w.header(w.pay(w.chain.Key("stranger"), nonce, func(a *x402.Authorization) { a.ValidBefore = uint64(time.Now().Unix()) - 60 }))
		},
	} {
		client, _, _ := strings.Cut(kind, " ")
		for i := range 2 * checks {
			if i == checks {
				chain.asked.Store(0)
			}
			want := http.StatusPaymentRequired
			if i >= checks {
				want = http.StatusTooManyRequests
			}
			if got := s.postFrom(client, payment(kind+fmt.Sprint(i)), body("x")); got.status != want {
				t.Errorf("%s, number %d: %d %s", kind, i, got.status, got.body)
			}
		}
		if n := chain.asked.Load(); n != 0 {
			t.Errorf("%s: who was refused had the chain asked %d times", kind, n)
		}
	}
	s.postFrom("192.0.2.2", paid, body("Paid")).created(t)
}

// A wallet has its own bound, whatever clients it comes from; a client without its key spends nothing of it.
func TestAWalletAsksSeldom(t *testing.T) {
	w := newWorld(t)
	w.cfg.Limits.PayerChecks = Budget{2, time.Hour}
	w.mine()
	s := w.start(w.deps(w.relayer("relayer")))
	stranger := w.chain.Key("stranger") // it has no dollars
	for i := range 3 {
		forged := w.pay(w.chain.Key("payer"), fmt.Sprint(i), func(a *x402.Authorization) { a.From = w.chain.Address("stranger") })
		if got := s.post(w.header(forged), body("x")); got.reason(t) != x402.ReasonSignature {
			t.Errorf("another's signature: %d %s", got.status, got.body)
		}
	}
	for i, want := range []string{"PAYMENT_REQUIRED", "PAYMENT_REQUIRED", "RATE_LIMITED"} {
		if got := s.post(w.header(w.pay(stranger, fmt.Sprint("own", i))), body("x")); got.code() != want {
			t.Errorf("number %d: %d %s, want %s", i, got.status, got.body, want)
		}
	}
}

// Keys cost nothing: a client that may ask no more takes no room from other wallets, however many it signs with.
func TestAClientHasManyWallets(t *testing.T) {
	const checks = 2
	w := newWorld(t)
	w.behindProxy()
	w.cfg.Limits.Checks = Budget{checks, time.Hour}
	w.mine()
	s := w.start(w.deps(w.relayer("relayer")))
	for i := range 3 * checks {
		key, err := crypto.GenerateKey()
		check(t, err)
		s.postFrom("192.0.2.1", w.header(w.pay(key, fmt.Sprint(i))), body("x"))
	}
	if n := len(s.budgets.payerChecks.full); n != checks {
		t.Errorf("%d wallets are counted for a client that may ask %d times", n, checks)
	}
}

// The wallet's day comes before its balance, and costs no question to the chain.
func TestTheDayComesBeforeTheBalance(t *testing.T) {
	w := newWorld(t)
	w.mine()
	key, err := crypto.GenerateKey()
	check(t, err)
	w.fund(crypto.PubkeyToAddress(key.PublicKey), deposit)
	chain := &counting{Client: w.chain.Client()}
	deps := w.deps(w.relayer("relayer"))
	deps.Chain = chain
	s := w.start(deps)
	w.alone(s, s.post(w.header(w.pay(key, "first")), body("First")))
	chain.asked.Store(0)
	if got := s.post(w.header(w.pay(key, "second")), body("Second")); got.code() != "REPORT_LIMIT" || chain.asked.Load() != 0 {
		t.Errorf("%d %s, and the chain was asked %d times", got.status, got.body, chain.asked.Load())
	}
}

// However many ask for one payment, or wait at all, there is room for others.
func TestWhoWaitsLeavesRoom(t *testing.T) {
	w := newWorld(t)
	w.cfg.HTTP.MaxInFlight, w.cfg.Wait = 8, 20*time.Second
	s := w.start(w.deps(w.relayer("relayer"))) // no blocks are mined
	payment := w.header(w.pay(w.chain.Key("payer"), "waits"))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { s.post(payment, body("Waits")).created(t) })
	}
	polltest.Until(t, "four wait", func() bool {
		free := s.waiting.Take(driveKey{}) // of another payment: half of eight are for waiting requests
		if free {
			s.waiting.Release(driveKey{})
		}
		return !free
	})
	began := time.Now()
	if got := s.post(payment, body("Waits")); got.code() != "PAYMENT_PENDING" || time.Since(began) > w.cfg.Wait/2 {
		t.Errorf("the fifth: %d %s after %s", got.status, got.body, time.Since(began))
	}
	if got := s.get("/health", ""); got.status != http.StatusOK {
		t.Errorf("another's question: %d %s", got.status, got.body)
	}
	w.mine()
	wg.Wait()
}

func TestWhatIsSpentComesBack(t *testing.T) {
	b := newBudget[string](Budget{2, time.Second})
	now := time.Unix(1000, 0)
	for i, c := range []struct {
		key   string
		after time.Duration
		want  time.Duration
	}{
		{"a", 0, 0},
		{"a", 0, 0},
		{"a", 0, time.Second},
		{"b", 0, 0},
		{"a", 400 * time.Millisecond, 600 * time.Millisecond},
		{"a", time.Second, 0},
		{"a", time.Second, time.Second},
		{"a", time.Hour, 0},
		{"a", time.Hour, 0},
		{"a", time.Hour, time.Second},
	} {
		if got := b.spend(c.key, now.Add(c.after)); got != c.want {
			t.Errorf("%d: %s waits %s, want %s", i, c.key, got, c.want)
		}
	}
	b.giveBack("a")
	if got := b.spend("a", now.Add(time.Hour)); got != 0 {
		t.Errorf("what was given back is not there: %s", got)
	}
	for i := range maxSpenders + 10 {
		b.spend(fmt.Sprint(i), now.Add(2*time.Hour))
	}
	if n := len(b.full); n > maxSpenders+1 {
		t.Errorf("%d are remembered", n)
	}
}

// Payments that are charged cost a client nothing, also those that were answered 503 first; those that are not do.
func TestWhoIsChargedLateIsNotCounted(t *testing.T) {
	w := newWorld(t)
	w.behindProxy()
	w.cfg.Limits.Unpaid = Budget{1, time.Hour}
	w.cfg.Wait = 100 * time.Millisecond
	s := w.start(w.deps(w.relayer("relayer")))
	pending := func(payer, title string) string {
		t.Helper()
		payment := w.header(w.pay(w.chain.Key(payer), title))
		if got := s.postFrom("192.0.2.1", payment, body(title)); got.code() != "PAYMENT_PENDING" {
			t.Fatalf("%s: %d %s", title, got.status, got.body)
		}
		return payment
	}
	for _, payer := range []string{"another", "stranger"} {
		w.fund(w.chain.Address(payer), deposit)
	}
	first := pending("payer", "Late")
	w.mines(1)
	polltest.Until(t, "it is charged", func() bool { return s.postFrom("192.0.2.1", first, body("Late")).status == http.StatusCreated })
	pending("another", "Next")
	if got := s.postFrom("192.0.2.1", w.header(w.pay(w.chain.Key("stranger"), "more")), body("More")); got.code() != "RATE_LIMITED" {
		t.Errorf("one is not charged, and another of the client: %d %s", got.status, got.body)
	}
}
