package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
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

// What a report is answered by, in the end: the status, and the code of an error.
const (
	created  = "201"
	unpaid   = "402 PAYMENT_REQUIRED"
	conflict = "409 CONFLICT"     // the payment is another report's
	limited  = "429 REPORT_LIMIT" // the wallet has another report this day
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

// reporter is a wallet that pays for a report, and sends the same request until what came of it is certain.
type reporter struct {
	*run
	name        string // of its key
	wallet      common.Address
	nonce       common.Hash
	title, body string
	payment     string // the header; empty: it pays nothing
	validBefore uint64
	rival       *reporter // of the two of one wallet, one is charged at the most; nil: it has none
	unpaying    *unpaying // why it may not be charged; nil: it may

	tmu    sync.Mutex // run has others
	ticket string     // its ID; empty: none yet
}

// newReporter is who pays by the key of that name for a report of that title.
func (r *run) newReporter(name, title string) *reporter {
	wallet := paychain.Address(0, name)
	return &reporter{run: r, name: name, wallet: wallet, nonce: crypto.Keccak256Hash(wallet[:]), title: title, body: reportOf(title)}
}

// reportOf is a report with all that one may have.
func reportOf(title string) string {
	return fmt.Sprintf(`{"title":%q,"severity":"HIGH","contracts":["%s"],"forkBlock":7,"description":"It *drains*.\n\n1. Ü","impact":"All of %s.","poc":"~~~\ncall\n~~~",`+
		`"recommendation":"Do not.","references":["https://example.com/%d"],"contact":{"email":"a@example.com"},"agent":{"name":"Ann","operator":"Bob","url":"https://example.com"}}`, title, paychain.Token.Hex(), title, len(title))
}

// startReports runs the payment chain and a facilitator.
func (r *run) startReports(ctx context.Context) error {
	terms, err := paymentTerms()
	if err != nil {
		return err
	}
	var purses []purse
	for i := range reporters {
		purses = append(purses, purse{paychain.Address(0, fmt.Sprint("reporter", i)), paychain.Dollars(100)})
	}
	for i := range unpayings {
		purses = append(purses, unpayings[i].purse(terms))
	}
	if r.payments, err = newPayments(purses); err != nil {
		return err
	}
	r.facilitator = &facilitator{payments: r.payments, network: terms.Network, refuses: map[common.Address]bool{}, spends: map[common.Address][]byte{}}
	for i := range unpayings {
		if err := unpayings[i].prepare(r.facilitator, terms); err != nil {
			return err
		}
	}
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

// report has all reporters pay, each at some moment, and ask until they have an answer or ctx is done. The first sends its request to
// two nodes at once; the last two have a rival each: another report for the same payment, and another payment of the same day.
func (r *run) report(ctx context.Context, wg *sync.WaitGroup, servings []string, seed uint64) {
	for i := range reporters {
		p := r.newReporter(fmt.Sprint("reporter", i), fmt.Sprint("Report ", i))
		all := []*reporter{p}
		if rivals := i >= reporters-2; rivals && (i == reporters-1 || r.skews == nil) { // where clocks are apart, there are two days at once
			p.rival = r.newReporter(p.name, fmt.Sprint("Another report ", i))
			p.rival.rival = p
			all = append(all, p.rival)
		}
		r.reporters = append(r.reporters, p)
		rng := rand.New(rand.NewPCG(seed, uint64(300+i)))
		begins := time.Duration(rng.Int64N(int64(reportsWithin)))
		senders := slices.Clone(all)
		if i == 0 {
			senders = append(senders, p)
		}
		wg.Go(func() {
			time.Sleep(begins)
			for n, p := range all {
				if i < reporters-1 {
					p.nonce[0] ^= byte(n)
				}
				if err := p.sign(nil); err != nil {
					r.found("fault fails", "%v", err)
					return
				}
			}
			first := rng.IntN(len(servings))
			for n, p := range senders {
				rng := rand.New(rand.NewPCG(seed, uint64(400+10*i+n)))
				wg.Go(func() { p.persists(ctx, servings, (first+n)%len(servings), rng) })
			}
		})
	}
	r.reportUnpaying(ctx, wg, servings, seed)
}

// persists sends the request until there is a ticket, and then looks at that, or until what came of it is certain.
func (p *reporter) persists(ctx context.Context, servings []string, first int, rng *rand.Rand) {
	for at := first; ctx.Err() == nil; at = rng.IntN(len(servings)) {
		switch p.send(ctx, servings[at]) {
		case created:
			p.watches(ctx, servings, rng)
			return
		case conflict, limited:
			return
		}
		time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
	}
}

// sign signs the payment, as it is changed before.
func (p *reporter) sign(change func(*x402.Terms, *x402.Authorization) *x402.Terms) error {
	terms, err := paymentTerms()
	if err != nil {
		return err
	}
	p.validBefore = uint64(now().Add(payableFor).Unix())
	s := &x402.Signed{Authorization: x402.Authorization{From: p.wallet, To: terms.Payee, Value: terms.Value, ValidBefore: p.validBefore, Nonce: p.nonce}}
	signs := terms
	if change != nil {
		signs = change(terms, &s.Authorization)
		p.validBefore = s.ValidBefore
	}
	if err := signBy(signs, s, p.name); err != nil {
		return err
	}
	payment := terms.Payment(s, x402.Resource{URL: "http://support/reports"})
	if p.unpaying != nil && p.unpaying.says != nil {
		p.unpaying.says(payment)
	}
	p.payment, err = x402.EncodeHeader(payment)
	return err
}

// signBy signs an authorization by the key of that name.
func signBy(terms *x402.Terms, s *x402.Signed, name string) (err error) {
	digest := terms.Digest(&s.Authorization)
	if s.Signature, err = crypto.Sign(digest[:], paychain.Key(0, name)); err == nil {
		s.Signature[64] += 27
	}
	return err
}

// send sends the request, and says what it is answered by; empty: it is not. Who has a ticket gets it again.
func (p *reporter) send(ctx context.Context, host string) string {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+host+reportPort+"/reports", strings.NewReader(p.body))
	if err != nil {
		return ""
	}
	req.Header.Set("Content-Type", "application/json")
	if p.payment != "" {
		req.Header.Set(x402.HeaderSignature, p.payment)
	}
	status, header, body := p.do(req)
	if status != http.StatusCreated {
		says := answeredBy(status, body)
		p.story.tell(host, "REPORT", p.wallet.Hex(), says, string(body))
		if says == unpaid {
			p.judgeDemand(host, header)
		}
		return says
	}
	if err := p.judgeCreated(body); err != nil {
		p.found("report", "%s: %v: %s", host, err, body)
	}
	p.story.tell(host, "TICKET", p.wallet.Hex(), p.ticketID())
	return created
}

// answeredBy is the status of an answer, and the code of an error.
func answeredBy(status int, body []byte) string {
	if status == 0 {
		return ""
	}
	var failed struct{ Error struct{ Code string } }
	_ = json.Unmarshal(body, &failed)
	return strings.TrimSpace(fmt.Sprint(status, " ", failed.Error.Code))
}

// do sends a request; the status is 0 where no answer came whole.
func (p *reporter) do(req *http.Request) (status int, header http.Header, body []byte) {
	res, err := p.streams.Do(req)
	if err != nil {
		return 0, nil, nil
	}
	defer func() { _ = res.Body.Close() }()
	if body, err = io.ReadAll(res.Body); err != nil {
		return 0, nil, nil
	}
	return res.StatusCode, res.Header, body
}

// certain is whether what came of a report can change no more: it was paid, finally, and there is a ticket, or it was not paid and
// cannot be, or its rival was and has the ticket. Whether it is as it must be, and what it is.
func (p *reporter) certain(answer string) (is bool, what string) {
	terms, err := paymentTerms()
	if err != nil {
		return false, err.Error()
	}
	paid := p.payments.transfers(p.wallet, common.Address{})
	ticket := p.ticketID()
	what = fmt.Sprintf("answered %q, ticket %q, paid %v", answer, ticket, paid)
	once := len(paid) == 1 && paid[0].final && paid[0].to == terms.Payee && paid[0].value.Cmp(terms.Value) == 0
	rival := p.rival != nil && p.rival.ticketID() != ""
	switch answer {
	case created:
		return once && !rival, what
	case conflict, limited, unpaid:
		if rival {
			return once && ticket == "", what
		}
		return answer == unpaid && len(paid) == 0 && p.payments.finalTime() >= p.validBefore && ticket == "", what
	default:
		return false, what
	}
}

// judgeReports waits until each report is certain: who was charged has a ticket, which every serving node shows to its token alone,
// and who has a ticket was charged, once. The support desk stands while the embedded broker has its group stuck.
func (r *run) judgeReports(ctx context.Context, servings []string) {
	began, regrouped := time.Now(), false
	waits := func() {
		if !regrouped && time.Since(began) > rebalanceWithin {
			regrouped = true
			r.regroup(ctx)
		}
		time.Sleep(paymentEvery)
	}
	for i, p := range r.reporters {
		for end, n := time.Now().Add(reportWithin), i; ; n++ {
			host := servings[n%len(servings)]
			if p.rival != nil {
				p.rival.send(ctx, host)
			}
			is, what := p.certain(p.send(ctx, host))
			if is {
				break
			}
			if time.Now().After(end) {
				r.found("charged is not the same as having a ticket", "%s: %s", p.wallet, what)
				return
			}
			waits()
		}
		r.countReport(p)
		if has := p.charged(); has != nil {
			r.judgeTicket(ctx, has, servings)
		}
	}
	r.judgeUnpaying(ctx, servings, waits)
}

// charged is which of a reporter and its rival has a ticket; nil: neither.
func (p *reporter) charged() *reporter {
	switch {
	case p.ticketID() != "":
		return p
	case p.rival != nil && p.rival.ticketID() != "":
		return p.rival
	}
	return nil
}

// countReport counts a report that is certain, and its rival.
func (r *run) countReport(p *reporter) {
	charged := p.charged() != nil
	r.rmu.Lock()
	defer r.rmu.Unlock()
	r.result.reports++
	if charged {
		r.result.tickets++
	}
	if p.rival != nil {
		r.result.uncharged++
	}
}
