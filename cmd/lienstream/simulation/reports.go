package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/lienstream/lienstream/ingest/devchain/paychain"
	"github.com/lienstream/lienstream/serving/support"
	"github.com/lienstream/lienstream/serving/x402"
)

// Of who reports bugs.
const (
	reporters     = 5
	reportPort    = ":82"
	reportsWithin = 20 * time.Second  // in which all of them begin
	reportWithin  = 240 * time.Second // from the last healing until what came of each is certain: an authorization ends, and a facilitator is asked again after 30 s
	payableFor    = 100 * time.Second // an authorization
	reportKeys    = "a-secret-of-all-nodes-that-take-reports"
)

// paymentTerms are what a report costs.
var paymentTerms = sync.OnceValues(func() (*x402.Terms, error) {
	price := support.DefaultConfig().Payment
	price.Asset, price.PayTo = paychain.Token.Hex(), paychain.Address(0, "payee").Hex()
	return x402.NewTerms(price)
})

// reportArgs are the flags of the support service.
func reportArgs(host string) []string {
	return []string{
		"--support-addr=" + host + reportPort, "--support-public-url=http://support", "--support-token-keys-file=/report-keys", "--support-text-keys-file=/report-keys",
		"--payment-rpc=http://" + paymentHost + ":8545", "--payment-asset=" + paychain.Token.Hex(), "--payment-to=" + paychain.Address(0, "payee").Hex(),
		fmt.Sprint("--payment-confirmations=", confirmations), "--facilitator=http://" + facilitatorHost + ":80",
	}
}

// facilitator submits payments, unless it is told a lie. It implements http.Handler.
type facilitator struct {
	*payments
	terms *x402.Terms

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
	s, err := f.terms.CheckAnyTime(&asks.PaymentPayload)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.lmu.Lock()
	omits, denies, silent := f.omits, f.denies, f.silent
	f.lmu.Unlock()
	if !omits {
		f.submit(s.Calldata())
	}
	if silent {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	_ = json.NewEncoder(w).Encode(x402.Settlement{Success: !denies, Transaction: "0x", Network: f.terms.Network})
}

// reporter is a wallet that pays for a report, and sends the same request until what came of it is certain.
type reporter struct {
	*run
	wallet      common.Address
	body        string
	payment     string // the header
	validBefore uint64

	tmu    sync.Mutex // run has others
	ticket string     // its ID; empty: none yet
	token  string
}

// startReports runs the payment chain and a facilitator.
func (r *run) startReports(ctx context.Context) error {
	terms, err := paymentTerms()
	if err != nil {
		return err
	}
	var wallets []common.Address
	for i := range reporters {
		wallets = append(wallets, paychain.Address(0, fmt.Sprint("reporter", i)))
	}
	if r.payments, err = newPayments(wallets, paychain.Dollars(100)); err != nil {
		return err
	}
	r.facilitator = &facilitator{payments: r.payments, terms: terms}
	for addr, handler := range map[string]http.Handler{paymentHost + ":8545": r.payments, facilitatorHost + ":80": r.facilitator} {
		l, err := r.net.listen(addr)
		if err != nil {
			return err
		}
		server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
		r.servers = append(r.servers, server)
		go func() { _ = server.Serve(l) }() // until close
	}
	ctx, r.endPayments = context.WithCancel(ctx)
	go r.payments.run(ctx)
	return nil
}

// report has all reporters pay, each at some moment, and ask until they have an answer or ctx is done.
func (r *run) report(ctx context.Context, wg *sync.WaitGroup, servings []string, seed uint64) {
	for i := range reporters {
		rng := rand.New(rand.NewPCG(seed, uint64(300+i)))
		p := &reporter{run: r, wallet: paychain.Address(0, fmt.Sprint("reporter", i)), body: fmt.Sprintf(`{"title":"Report %d","severity":"LOW","contracts":["%s"],"forkBlock":0,"description":"It drains.","impact":"All of it.","contact":{"email":"a@example.com"}}`, i, paychain.Token.Hex())}
		r.reporters = append(r.reporters, p)
		wg.Go(func() {
			time.Sleep(time.Duration(rng.Int64N(int64(reportsWithin))))
			if err := p.sign(i); err != nil {
				r.found("fault fails", "%v", err)
				return
			}
			for ctx.Err() == nil && p.send(ctx, servings[rng.IntN(len(servings))]) != http.StatusCreated {
				time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
			}
		})
	}
}

// sign signs the payment.
func (p *reporter) sign(i int) error {
	terms, err := paymentTerms()
	if err != nil {
		return err
	}
	p.validBefore = uint64(now().Add(payableFor).Unix())
	s := &x402.Signed{Authorization: x402.Authorization{
		From: p.wallet, To: terms.Payee, Value: terms.Value, ValidBefore: p.validBefore, Nonce: crypto.Keccak256Hash(p.wallet[:]),
	}}
	digest := terms.Digest(&s.Authorization)
	if s.Signature, err = crypto.Sign(digest[:], paychain.Key(0, fmt.Sprint("reporter", i))); err != nil {
		return err
	}
	s.Signature[64] += 27
	p.payment, err = x402.EncodeHeader(terms.Payment(s, x402.Resource{URL: "http://support/reports"}))
	return err
}

// send sends the request, and says what the status of the answer is; 0: there was none. Who has a ticket gets it again.
func (p *reporter) send(ctx context.Context, host string) int {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+host+reportPort+"/reports", strings.NewReader(p.body))
	if err != nil {
		return 0
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(x402.HeaderSignature, p.payment)
	status, body, err := p.do(req)
	if err != nil || status != http.StatusCreated {
		p.story.tell(host, "REPORT", p.wallet.Hex(), fmt.Sprint(status), string(body))
		return status
	}
	var created struct {
		Ticket struct{ ID string }
		Token  string
	}
	if err := json.Unmarshal(body, &created); err != nil {
		p.found("report", "%s: %v: %s", host, err, body)
		return 0
	}
	p.tmu.Lock()
	before := p.ticket
	p.ticket, p.token = created.Ticket.ID, created.Token
	p.tmu.Unlock()
	if before != "" && before != created.Ticket.ID {
		p.found("another ticket for the same report", "%s of %s after %s", created.Ticket.ID, host, before)
	}
	p.story.tell(host, "TICKET", p.wallet.Hex(), created.Ticket.ID)
	return status
}

func (p *reporter) do(req *http.Request) (status int, body []byte, err error) {
	res, err := p.streams.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err = io.ReadAll(res.Body)
	return res.StatusCode, body, err
}

// reads reports whether a serving node shows the ticket to who has its token.
func (p *reporter) reads(ctx context.Context, host string) error {
	p.tmu.Lock()
	defer p.tmu.Unlock()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+reportPort+"/tickets/"+p.ticket, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("X-Service-Ticket-Token", p.token)
	status, body, err := p.do(req)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%d %s", status, body)
	}
	return err
}

// certain is whether what came of a report can change no more: it was paid, finally, and there is a ticket, or it was not paid and
// cannot be. Whether it is as it must be, and what it is.
func (p *reporter) certain(status int) (is bool, what string) {
	terms, err := paymentTerms()
	if err != nil {
		return false, err.Error()
	}
	all, final := p.payments.paid(p.wallet, terms.Payee)
	what = fmt.Sprintf("answered %d, ticket %q, paid %d times, %d of them final", status, p.ticket, all, final)
	switch status {
	case http.StatusCreated:
		return all == 1 && final == 1, what
	case http.StatusPaymentRequired:
		return all == 0 && p.payments.finalTime() >= p.validBefore && p.ticket == "", what
	default:
		return false, what
	}
}

// judgeReports waits until each report is certain: who was charged has a ticket, which every serving node shows, and who has a
// ticket was charged, once. The support desk stands while the embedded broker has its group stuck.
func (r *run) judgeReports(ctx context.Context, servings []string) {
	began, regrouped := time.Now(), false
	for i, p := range r.reporters {
		for end, n := time.Now().Add(reportWithin), i; ; n++ {
			is, what := p.certain(p.send(ctx, servings[n%len(servings)]))
			if is {
				break
			}
			if time.Now().After(end) {
				r.found("charged is not the same as having a ticket", "%s: %s", p.wallet, what)
				return
			}
			if !regrouped && time.Since(began) > rebalanceWithin {
				regrouped = true
				r.regroup(ctx)
			}
			time.Sleep(paymentEvery)
		}
		for _, host := range servings {
			if p.ticket == "" {
				continue
			}
			if err := p.reads(ctx, host); err != nil {
				r.found("ticket cannot be read", "%s of %s: %v", p.ticket, host, err)
			}
		}
		r.rmu.Lock()
		r.result.reports++
		if p.ticket != "" {
			r.result.tickets++
		}
		r.rmu.Unlock()
	}
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
