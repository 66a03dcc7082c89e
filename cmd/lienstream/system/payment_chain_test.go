package system

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/devchain/paychain"
	"github.com/lienstream/lienstream/serving/x402"
	"github.com/lienstream/lienstream/topics/polltest"
)

// facilitator is one of x402: it settles payments with a relayer of its own.
type facilitator struct {
	chain *ethclient.Client
	key   string // that it asks for

	mu      sync.Mutex
	settled []string // to whom
}

func (f *facilitator) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	var asked struct {
		X402Version         int              `json:"x402Version"`
		PaymentPayload      x402.Payment     `json:"paymentPayload"`
		PaymentRequirements x402.Requirement `json:"paymentRequirements"`
	}
	if r.Method != http.MethodPost || r.URL.Path != "/v2/settle" || r.Header.Get("Authorization") != f.key {
		http.Error(rw, "who is it?", http.StatusUnauthorized)
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	answer, err := f.settle(r.Context(), &asked.PaymentPayload, asked.PaymentRequirements)
	if err != nil {
		answer = x402.Settlement{ErrorReason: x402.ReasonTransaction, Network: asked.PaymentRequirements.Network}
	}
	_ = json.NewEncoder(rw).Encode(answer)
}

func (f *facilitator) settle(ctx context.Context, payment *x402.Payment, requirement x402.Requirement) (x402.Settlement, error) {
	terms, err := x402.NewTerms(requirement)
	if err != nil {
		return x402.Settlement{}, err
	}
	signed, err := terms.CheckAnyTime(payment)
	if err != nil {
		return x402.Settlement{}, err
	}
	relayer, err := x402.NewRelayer(x402.DefaultRelayerConfig(), terms, f.chain, paychain.Key(0, "relayer"))
	if err != nil {
		return x402.Settlement{}, err
	}
	if err := relayer.Settle(ctx, signed, func(context.Context, x402.Attempt) error { return nil }); err != nil {
		return x402.Settlement{}, err
	}
	f.mu.Lock()
	f.settled = append(f.settled, requirement.PayTo)
	f.mu.Unlock()
	token := x402.NewToken(terms, f.chain)
	for {
		o, err := token.AuthorizationState(ctx, &signed.Authorization, x402.Scope{Confirmations: 1, LogRange: 1000})
		if err == nil && o.State == x402.Paid {
			return terms.Settled(signed.From, o.Transaction), nil
		}
		select {
		case <-ctx.Done():
			return x402.Settlement{}, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (f *facilitator) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.settled...)
}

// TestPaymentChain pays a report, and returns its deposit, on a chain that flags name: by a facilitator and by a relayer.
func TestPaymentChain(t *testing.T) {
	dir := &office{t: t, dir: t.TempDir()}
	t.Run("facilitator", func(t *testing.T) {
		f := &facilitator{key: "Bearer a key of the facilitator"}
		server := httptest.NewServer(f)
		t.Cleanup(server.Close)
		payAndReturn(t, func(chain *paychain.Chain) { f.chain = chain.Client() }, "--facilitator="+server.URL+"/v2", "--facilitator-key-file="+dir.file("facilitator", f.key))
		want := []string{paychain.Address(0, "payee").Hex(), paychain.Address(0, "payer").Hex()}
		if got := f.all(); !slices.Equal(got, want) {
			t.Errorf("the facilitator has paid %v, want %v", got, want)
		}
	})
	t.Run("relayer", func(t *testing.T) {
		var sent *ethclient.Client
		key := dir.file("relayer", hexutil.Encode(crypto.FromECDSA(paychain.Key(0, "relayer"))))
		payAndReturn(t, func(chain *paychain.Chain) { sent = chain.Client() }, "--relayer-key-file="+key)
		if nonce, err := sent.NonceAt(t.Context(), paychain.Address(0, "relayer"), nil); err != nil || nonce != 2 {
			t.Errorf("the relayer has sent %d transactions, want 2: %v", nonce, err)
		}
	})
}

// payAndReturn pays a report on a chain of its own, and returns the deposit.
func payAndReturn(t *testing.T, began func(*paychain.Chain), settler ...string) {
	t.Helper()
	chain := startPayments(t)
	began(chain)
	dir := &office{t: t, dir: t.TempDir()}
	o := openOffice(t, chain.HTTP(), append(dir.paidOn(chain), settler...)...)
	o.payAndReturn(chain)
}

// startPayments is a payment chain on which a payer and the float have a deposit each.
func startPayments(t *testing.T) *paychain.Chain {
	t.Helper()
	chain, err := paychain.New(paychain.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = chain.Run(ctx) }) // it closes it
	t.Cleanup(func() { cancel(); running.Wait() })
	for _, name := range []string{"payer", "float"} {
		if err := chain.Fund(ctx, chain.Address(name), paychain.Dollars(15)); err != nil {
			t.Fatal(err)
		}
	}
	return chain
}

// paidOn are the flags of a service that is paid on a chain.
func (o *office) paidOn(chain *paychain.Chain) []string {
	o.t.Helper()
	return []string{
		"--payment-rpc=" + chain.HTTP(), "--payment-to=" + chain.Address("payee").Hex(), "--payment-confirmations=3", "--support-public-url=https://support.example",
		"--support-token-keys-file=" + o.file("tokens", "token-key-of-tests,-of-thirty-two-bytes"),
	}
}

func (o *office) payAndReturn(chain *paychain.Chain) {
	o.t.Helper()
	payer, float := chain.Address("payer"), chain.Address("float")
	id, token := o.send(fmt.Sprintf("PAYER_KEY=%s node serving/clients/report/report.mjs %s", hexutil.Encode(crypto.FromECDSA(chain.Key("payer"))), o.support))
	if n := o.transfers(payer, chain.Address("payee")); n != 1 {
		o.t.Errorf("charged %d times", n)
	}
	o.must("decide", id, "accepted")
	from := o.float(chain.Key("float"))
	polltest.Until(o.t, "the payment is final", func() bool { _, err := o.staff("refund", from, id); return err == nil })
	polltest.Until(o.t, "the deposit is back", func() bool { return o.refund(id, token) == "CONFIRMED" })
	if n := o.transfers(float, payer); n != 1 {
		o.t.Errorf("returned %d times", n)
	}
}

// TestAReportIsPaidWhereRolesAreApart: the service, two processor nodes with the support application and the ingester are
// processes of their own, as in production.
func TestAReportIsPaidWhereRolesAreApart(t *testing.T) {
	needsReportClient(t)
	w := newWorld(t, "devchain", "embedded", devchain.ScenarioConfig{Seed: seed(t), TxsPerBlock: 4, TimePerBlock: 6 * time.Hour})
	w.onKafka(t)
	w.onRedis(t)
	w.mine(t.Context(), t, 5)
	chain := startPayments(t)
	addr := address(t)
	o := &office{t: t, dir: t.TempDir(), support: "http://" + addr, chain: chain.Client()}
	staff := o.file("staff", "ada "+crypto.PubkeyToAddress(staffKey(t)).Hex())
	texts := "--support-text-keys-file=" + o.file("texts", "text-key-of-tests,-of-thirty-two-bytes")
	o.flags = slices.Concat(w.chain, w.servers, []string{
		"--as=ada", "--as-key-file=" + o.file("ada", staffKeyText), texts, "--payment-rpc=" + chain.HTTP(), "--payment-confirmations=3",
	})
	f := newFleet(t, w)
	f.join(t, "ingest", "ingest")
	for _, name := range []string{"a", "b"} {
		f.processors(t, name, "--applications=market,support", "--support-staff-file="+staff)
	}
	f.join(t, "serving", "serving", append(o.paidOn(chain), "--services=support", "--support-addr="+addr, texts,
		"--relayer-key-file="+o.file("relayer", hexutil.Encode(crypto.FromECDSA(chain.Key("relayer")))))...)
	polltest.Until(t, "the desk answers", func() bool { _, err := o.staff("list"); return err == nil })
	ready := "http://" + f.nodes["serving"].ops + "/readyz"
	polltest.Until(t, "the service is ready", func() bool {
		_, status, err := fetch(t.Context(), ready)
		return err == nil && status == http.StatusOK
	})
	o.payAndReturn(chain)
}

const staffKeyText = "1111111111111111111111111111111111111111111111111111111111111111"

func staffKey(t *testing.T) ecdsa.PublicKey {
	t.Helper()
	key, err := crypto.HexToECDSA(staffKeyText)
	if err != nil {
		t.Fatal(err)
	}
	return key.PublicKey
}
