package support

import (
	"encoding/json"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/lienstream/lienstream/serving/x402"
)

const deposit = 15_000_000

func ethereumCall(to common.Address, data []byte) ethereum.CallMsg {
	return ethereum.CallMsg{To: &to, Data: data}
}

func TestAReportIsPaidAndRead(t *testing.T) {
	w := newWorld(t)
	w.mine()
	s := w.start(w.deps(w.relayer("relayer")))

	demand := s.post("", body("Drain"))
	if demand.status != 402 || demand.code() != "PAYMENT_REQUIRED" || demand.header.Get(x402.HeaderRequired) == "" || demand.header.Get("Cache-Control") != "no-store" {
		t.Fatalf("without a payment: %d %s %v", demand.status, demand.body, demand.header)
	}
	payment := w.header(w.pay(w.chain.Key("payer"), "1"))
	first := s.post(payment, body("Drain"))
	id, token := first.created(t)
	if got := w.paid(); got != deposit {
		t.Errorf("the payee has %d, want %d", got, deposit)
	}
	again := s.post(payment, body("Drain"))
	if id2, token2 := again.created(t); id2 != id || token2 != token || again.header.Get(x402.HeaderResponse) != first.header.Get(x402.HeaderResponse) {
		t.Errorf("the same request again: %s", again.body)
	}
	if got := s.post(payment, body("Another")); got.status != 409 || got.code() != "CONFLICT" || strings.Contains(string(got.body), token) {
		t.Errorf("the same payment for another report: %d %s", got.status, got.body)
	}
	if got := s.post(w.header(w.pay(w.chain.Key("payer"), "2")), body("Second")); got.status != 429 || got.code() != "REPORT_LIMIT" || got.header.Get("Retry-After") == "" {
		t.Errorf("a second report of the day: %d %s", got.status, got.body)
	}
	if got := w.paid(); got != deposit {
		t.Errorf("the payee has %d, want %d still", got, deposit)
	}

	read := s.ticket(id, token)
	var ticket struct {
		Status, Outcome string
		Report          Report
		Deposit         struct {
			Amount, Payer string
			Refund        struct{ Status string }
		}
	}
	check(t, json.Unmarshal(read.body, &ticket))
	if read.status != 200 || ticket.Status != "OPEN" || ticket.Outcome != "PENDING" || ticket.Report.Title != "Drain" ||
		ticket.Report.Description != "**It** drains." || ticket.Deposit.Amount != "15000000" || ticket.Deposit.Refund.Status != "NONE" ||
		ticket.Deposit.Payer != strings.ToLower(w.chain.Address("payer").Hex()) {
		t.Errorf("ticket: %d %s", read.status, read.body)
	}
	for name, wrong := range map[string]string{"none": "", "another": s.cfg.Keys.Ticket("other"), "cut": token[1:], "longer": token + "a"} {
		if got := s.ticket(id, wrong); got.status != 401 || got.code() != "UNAUTHORIZED" {
			t.Errorf("token %s: %d %s", name, got.status, got.body)
		}
	}
}

// Nothing that is answered by a 4xx is charged, whatever was sent.
func TestHostilePayments(t *testing.T) {
	w := newWorld(t)
	w.mine()
	s := w.start(w.deps(w.relayer("relayer")))
	payer := w.chain.Key("payer")
	poor, err := crypto.GenerateKey()
	check(t, err)
	frozen, err := crypto.GenerateKey()
	check(t, err)
	w.fund(crypto.PubkeyToAddress(frozen.PublicKey), deposit)
	_, err = w.chain.Call(t.Context(), "owner", "blacklist", crypto.PubkeyToAddress(frozen.PublicKey), true)
	check(t, err)
	before := w.paid()

	tamper := func(f func(*x402.Payment)) string {
		p := w.terms.Payment(w.pay(payer, "tampered"), x402.Resource{})
		f(p)
		text, err := x402.EncodeHeader(p)
		check(t, err)
		return text
	}
	signed := func(f func(*x402.Authorization)) string { return w.header(w.pay(payer, "hostile", f)) }
	for name, c := range map[string]struct {
		payment string
		body    []byte
		status  int
		reason  x402.Reason
	}{
		"no base64":        {"{}", nil, 402, x402.ReasonPayload},
		"a unit less":      {signed(func(a *x402.Authorization) { a.Value = common.Big1 }), nil, 402, x402.ReasonValue},
		"another payee":    {signed(func(a *x402.Authorization) { a.To = a.From }), nil, 402, x402.ReasonRecipient},
		"expired":          {signed(func(a *x402.Authorization) { a.ValidBefore = 1 }), nil, 402, x402.ReasonValidBefore},
		"not yet valid":    {signed(func(a *x402.Authorization) { a.ValidAfter = a.ValidBefore - 1 }), nil, 402, x402.ReasonValidAfter},
		"another network":  {tamper(func(p *x402.Payment) { p.Accepted.Network = "eip155:1" }), nil, 402, x402.ReasonNetwork},
		"another asset":    {tamper(func(p *x402.Payment) { p.Accepted.Asset = p.Accepted.PayTo }), nil, 402, x402.ReasonRequirements},
		"a smaller amount": {tamper(func(p *x402.Payment) { p.Accepted.Amount = "1" }), nil, 402, x402.ReasonRequirements},
		"malleated": {tamper(func(p *x402.Payment) {
			sig := common.FromHex(p.Payload.Signature)
			high := new(big.Int).Sub(crypto.S256().Params().N, new(big.Int).SetBytes(sig[32:64]))
			high.FillBytes(sig[32:64])
			sig[64] = 55 - sig[64]
			p.Payload.Signature = "0x" + common.Bytes2Hex(sig)
		}), nil, 402, x402.ReasonSignature},
		"another's wallet": {tamper(func(p *x402.Payment) { p.Payload.Authorization.From = w.chain.Address("stranger").Hex() }), nil, 402, x402.ReasonSignature},
		"empty wallet":     {w.header(w.pay(poor, "poor")), nil, 402, x402.ReasonInsufficientBalance},
		"frozen wallet":    {w.header(w.pay(frozen, "frozen")), nil, 402, x402.ReasonSimulation},
		"no report":        {w.header(w.pay(payer, "body")), []byte(`{}`), 400, ""},
		"unknown field":    {w.header(w.pay(payer, "body")), []byte(strings.Replace(string(body("x")), `"title"`, `"extra":1,"title"`, 1)), 400, ""},
		"field twice":      {w.header(w.pay(payer, "body")), []byte(strings.Replace(string(body("x")), `"title"`, `"title":"y","title"`, 1)), 400, ""},
		"above the head":   {w.header(w.pay(payer, "body")), []byte(strings.Replace(string(body("x")), `1000`, `1001`, 1)), 400, ""},
		"no poc":           {w.header(w.pay(payer, "body")), []byte(strings.Replace(string(body("x")), `"poc":"Call `+"`drain()`"+`",`, ``, 1)), 400, ""},
		"wrong checksum":   {w.header(w.pay(payer, "body")), []byte(strings.Replace(string(body("x")), `0x209693Bc`, `0x209693bC`, 1)), 400, ""},
		"line feed": {
			w.header(w.pay(payer, "body")), []byte(strings.Replace(string(body("x")), `a@example.com`, `a@example.com\r\nBcc: b@example.com`, 1)),
			400, "",
		},
		"too large": {w.header(w.pay(payer, "body")), body(strings.Repeat("x", 17<<10)), 413, ""},
	} {
		report := c.body
		if report == nil {
			report = body("Hostile")
		}
		got := s.post(c.payment, report)
		if got.status != c.status || got.reason(t) != c.reason {
			t.Errorf("%s: %d %s %s, want %d %s", name, got.status, got.reason(t), got.body, c.status, c.reason)
		}
	}
	if got := w.paid(); got != before {
		t.Errorf("the payee got %d", got-before)
	}
	// None of that took the wallet's day.
	s.post(w.header(w.pay(payer, "good")), body("Good")).created(t)
}

// Two reports at once from one wallet: one is charged, on whichever node they come in.
func TestTwoReportsAtOnce(t *testing.T) {
	w := newWorld(t)
	w.mine()
	nodes := []*service{w.start(w.deps(w.relayer("relayer"))), w.start(w.deps(w.relayer("relayer")))}
	var wg sync.WaitGroup
	got := make([]answer, 2)
	for i, s := range nodes {
		wg.Go(func() { got[i] = s.post(w.header(w.pay(w.chain.Key("payer"), string(rune('a'+i)))), body("Race")) })
	}
	wg.Wait()
	statuses := map[int]int{}
	for _, a := range got {
		statuses[a.status]++
	}
	if statuses[201] != 1 || statuses[429] != 1 || w.paid() != deposit {
		t.Errorf("statuses %v, paid %d: %s %s", statuses, w.paid(), got[0].body, got[1].body)
	}
	// The same request on both at once: one charge, one ticket, the same token.
	w.fund(w.chain.Address("stranger"), deposit)
	payment := w.header(w.pay(w.chain.Key("stranger"), "same"))
	for i, s := range nodes {
		wg.Go(func() { got[i] = s.post(payment, body("Same")) })
	}
	wg.Wait()
	id, token := got[0].created(t)
	if id2, token2 := got[1].created(t); id2 != id || token2 != token || w.paid() != 2*deposit {
		t.Errorf("%s and %s, paid %d", id, id2, w.paid())
	}
}

func TestCORSLetsBrowsersPay(t *testing.T) {
	w := newWorld(t)
	w.mine()
	s := w.start(w.deps(w.relayer("relayer")))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, s.url+"/reports", http.NoBody)
	check(t, err)
	req.Header.Set("Origin", "https://agent.example")
	req.Header.Set("Access-Control-Request-Method", "POST")
	got := send(t, req)
	allowed := strings.ToLower(got.header.Get("Access-Control-Allow-Headers"))
	for _, want := range []string{"content-type", "payment-signature", "access-control-expose-headers", "x-service-ticket-token"} {
		if !strings.Contains(allowed, want) {
			t.Errorf("%s is not allowed: %s", want, allowed)
		}
	}
	shown := strings.ToLower(s.post("", body("x")).header.Get("Access-Control-Expose-Headers"))
	for _, want := range []string{"payment-required", "payment-response", "retry-after"} {
		if !strings.Contains(shown, want) {
			t.Errorf("%s is not exposed: %s", want, shown)
		}
	}
}
