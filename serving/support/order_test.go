package support

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/crypto"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/serving/x402"
)

// Of several faults the first in the protocol's order is named.
func TestTheOrderOfChecks(t *testing.T) {
	w := newWorld(t)
	w.mine()
	s := w.start(w.deps(w.relayer("relayer")))
	key, payer := w.chain.Key("payer"), w.chain.Address("payer")
	paid := w.header(w.pay(key, "paid"))
	s.post(paid, body("Paid")).created(t)
	_, err := w.chain.Call(t.Context(), "payer", "transfer", w.chain.Address("owner"), big.NewInt(w.balance(payer)))
	check(t, err)

	faults := []struct {
		reason x402.Reason
		fault  func(*x402.Payment)
	}{
		{x402.ReasonVersion, func(p *x402.Payment) { p.X402Version = 1 }},
		{x402.ReasonScheme, func(p *x402.Payment) { p.Accepted.Scheme = "upto" }},
		{x402.ReasonNetwork, func(p *x402.Payment) { p.Accepted.Network = "eip155:1" }},
		{x402.ReasonRequirements, func(p *x402.Payment) { p.Accepted.Amount = "1" }},
		{x402.ReasonRecipient, func(p *x402.Payment) { p.Payload.Authorization.To = payer.Hex() }},
		{x402.ReasonValue, func(p *x402.Payment) { p.Payload.Authorization.Value = "1" }},
		{x402.ReasonValidAfter, func(p *x402.Payment) { p.Payload.Authorization.ValidAfter = "99999999999" }},
		{x402.ReasonValidBefore, func(p *x402.Payment) { p.Payload.Authorization.ValidBefore = "1" }},
		{x402.ReasonSignature, func(p *x402.Payment) { p.Payload.Signature = "0x" + strings.Repeat("00", 65) }},
	}
	for i := range faults {
		p := w.terms.Payment(w.pay(key, "faulty"), x402.Resource{})
		for _, f := range faults[i:] {
			f.fault(p)
		}
		header, err := x402.EncodeHeader(p)
		check(t, err)
		if got := s.post(header, []byte(`{}`)); got.status != http.StatusPaymentRequired || got.reason(t) != faults[i].reason {
			t.Errorf("%d %s, want %s", got.status, got.reason(t), faults[i].reason)
		}
	}
	poor, err := crypto.GenerateKey()
	check(t, err)
	for _, c := range []struct {
		name, payment string
		body          []byte
		status        int
		code          string
	}{
		{"too large, and no payment", "", body(strings.Repeat("x", 17<<10)), http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE"},
		{"no payment, and no report", "", []byte(`{}`), http.StatusPaymentRequired, "PAYMENT_REQUIRED"},
		{"no report, by a payment for another", paid, []byte(`{}`), http.StatusBadRequest, "INVALID_INPUT"},
		{"a payment for another, of a wallet that had its report", paid, body("Another"), http.StatusConflict, "CONFLICT"},
		{"a wallet that had its report, and is empty", w.header(w.pay(key, "second")), body("Second"), http.StatusTooManyRequests, "REPORT_LIMIT"},
		{"an empty wallet", w.header(w.pay(poor, "poor")), body("Poor"), http.StatusPaymentRequired, "PAYMENT_REQUIRED"},
	} {
		if got := s.post(c.payment, c.body); got.status != c.status || got.code() != c.code {
			t.Errorf("%s: %d %s, want %d %s", c.name, got.status, got.body, c.status, c.code)
		}
	}
	if n := w.charges(payer); n != 1 {
		t.Errorf("charged %d times", n)
	}
}

// The service's health has the price and the network, and is 503 until reports can be paid.
func TestHealth(t *testing.T) {
	w := newWorld(t)
	w.mine()
	var health struct {
		OK     bool
		Bounty struct{ Price, Currency, Network, Amount, Asset, PayTo string }
	}
	unready, err := New(w.cfg, w.deps(w.relayer("relayer")), zap.NewNop(), w.metrics.New())
	check(t, err)
	res := httptest.NewRecorder()
	unready.api.ServeHTTP(res, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/health", http.NoBody))
	check(t, json.Unmarshal(res.Body.Bytes(), &health))
	if res.Code != http.StatusServiceUnavailable || health.OK || res.Header().Get("Retry-After") == "" || health.Bounty.Price != "15" {
		t.Errorf("before the chain was reached: %d %s", res.Code, res.Body)
	}
	got := w.start(w.deps(w.relayer("relayer"))).get("/health", "")
	check(t, json.Unmarshal(got.body, &health))
	b := health.Bounty
	if got.status != http.StatusOK || !health.OK || b.Price != "15" || b.Currency != "USDC" || b.Network != "eip155:8453" || b.Amount != "15000000" ||
		b.Asset != strings.ToLower(w.terms.Asset) || b.PayTo != strings.ToLower(w.terms.PayTo) {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// The word in the name of the token's header is configured: for clients, for browsers and on the page.
func TestTheWordIsConfigured(t *testing.T) {
	w := newWorld(t)
	w.mine()
	w.cfg.Word = "acme"
	s := w.start(w.deps(w.relayer("relayer")))
	id, token := s.post(w.header(w.pay(w.chain.Key("payer"), "word")), body("Word")).created(t)
	for name, want := range map[string]int{"x-acme-ticket-token": http.StatusOK, "x-service-ticket-token": http.StatusUnauthorized} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/tickets/"+id, http.NoBody)
		check(t, err)
		req.Header.Set(name, token)
		res, err := client.Do(req) // its header is not that of the description
		check(t, err)
		check(t, res.Body.Close())
		if res.StatusCode != want {
			t.Errorf("%s: %d, want %d", name, res.StatusCode, want)
		}
	}
	if page := s.get("/t/"+id, ""); !strings.Contains(string(page.body), `data-header="X-acme-Ticket-Token"`) {
		t.Errorf("the page: %s", page.body)
	}
}

// Each field of a report has its bounds, and one beyond them is named.
func TestAReportsFields(t *testing.T) {
	t.Parallel()
	const address = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	long := func(n int) string { return strings.Repeat("ä", n) } // characters, not bytes
	link := func(n int) string { return "https://example.com/" + strings.Repeat("x", n-20) }
	many := func(n int, text string) []string {
		all := make([]string, n)
		for i := range all {
			all[i] = text
		}
		return all
	}
	type object = map[string]any
	for i, c := range []struct {
		field  string // that is named; empty: it is a report
		change object
	}{
		{"", object{}},
		{"", object{"title": long(200)}},
		{"title", object{"title": long(201)}},
		{"title", object{"title": " "}},
		{"title", object{"title": "two\nlines"}},
		{"", object{"severity": "LOW", "poc": ""}},
		{"", object{"severity": "MEDIUM", "poc": nil}},
		{"poc", object{"severity": "HIGH", "poc": ""}},
		{"poc", object{"severity": "CRITICAL", "poc": " \n"}},
		{"severity", object{"severity": "high"}},
		{"severity", object{"severity": nil}},
		{"contracts", object{"contracts": []string{}}},
		{"", object{"contracts": many(20, address)}},
		{"contracts", object{"contracts": many(21, address)}},
		{"", object{"contracts": []string{strings.ToLower(address)}}},
		{"contracts.1", object{"contracts": []string{address, strings.Replace(address, "Bc", "bc", 1)}}},
		{"contracts.0", object{"contracts": []string{address[:41]}}},
		{"", object{"forkBlock": 0}},
		{"", object{"forkBlock": 1000}},
		{"forkBlock", object{"forkBlock": 1001}},
		{"forkBlock", object{"forkBlock": -1}},
		{"forkBlock", object{"forkBlock": 1.5}},
		{"forkBlock", object{"forkBlock": "1"}},
		{"forkBlock", object{"forkBlock": nil}},
		{"", object{"description": long(12_000)}},
		{"description", object{"description": long(12_001)}},
		{"description", object{"description": "a\x00b"}},
		{"", object{"description": "| a |\n|---|\n\t<b>\r\n"}},
		{"impact", object{"impact": ""}},
		{"impact", object{"impact": long(12_001)}},
		{"recommendation", object{"recommendation": long(12_001)}},
		{"", object{"references": many(20, link(500))}},
		{"references", object{"references": many(21, link(30))}},
		{"references.0", object{"references": []string{link(501)}}},
		{"references.0", object{"references": []string{"javascript:alert(1)"}}},
		{"references.0", object{"references": []string{"https://user@example.com/"}}},
		{"references.0", object{"references": []string{"https://example.com/\u009b31m"}}},
		{"", object{"references": []string{"https://example.com/ä?q=%C2%9B#x"}}},
		{"contact", object{"contact": nil}},
		{"contact.email", object{"contact": object{"email": "Ann <ann@example.com>"}}},
		{"contact.email", object{"contact": object{"email": strings.Repeat("a", 250) + "@example.com"}}},
		{"contact.email", object{"contact": object{"email": "a\u009b31m@example.com"}}}, // to a terminal that begins a command
		{"contact.email", object{"contact": object{"email": "a@example\u202e.com"}}},
		{"contact.email", object{"contact": object{}}},
		{"contact.phone", object{"contact": object{"email": "a@example.com", "phone": "1"}}},
		{"", object{"agent": nil}},
		{"agent.name", object{"agent": object{"url": "https://example.com"}}},
		{"agent.operator", object{"agent": object{"name": "a", "operator": long(201)}}},
		{"agent.url", object{"agent": object{"name": "a", "url": "ftp://example.com"}}},
		{"agent.url", object{"agent": object{"name": "a", "url": "https://example\u009b.com"}}},
		{"Title", object{"Title": "in another case"}},
	} {
		fields := object{
			"title": "A title", "severity": "HIGH", "contracts": []string{address}, "forkBlock": 1, "description": "What", "impact": "Whom",
			"poc": "How", "contact": object{"email": "a@example.com"}, "agent": object{"name": "finder"},
		}
		for name, value := range c.change {
			if fields[name] = value; value == nil {
				delete(fields, name)
			}
		}
		text, err := json.Marshal(fields)
		check(t, err)
		report, err := decodeReport(text)
		if err == nil {
			err = report.validate(1000)
		}
		switch {
		case c.field == "" && err != nil:
			t.Errorf("%d: %v: %v", i, c.change, err)
		case c.field != "" && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", c.field))):
			t.Errorf("%d: it is to name %q: %v", i, c.field, err)
		}
	}
}
