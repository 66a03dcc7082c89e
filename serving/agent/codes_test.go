package agent

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi/apitest"
)

// listed is a world with a deal of actor 0 that actor 1 may fund for 1 USDG, and its body.
func listed(t *testing.T) (w *world, deal DirectDeal, fund body) {
	t.Helper()
	return listedOn(t, newNode(t, 5))
}

func listedOn(t *testing.T, node devchain.Backend) (w *world, deal DirectDeal, fund body) {
	t.Helper()
	w = newWorld(t, node, 5, 0)
	borrower, lender := w.actors[0], w.actors[1]
	stock := get[page[Asset]](w, "/v1/assets").Items[0]
	base := func(wallet common.Address, fields body) body {
		fields["chainId"], fields["wallet"] = 4663, wallet.Hex()
		return fields
	}
	w.sent(w.prepared(base(borrower, body{"action": "approveCollateral", "token": stock.Token, "amount": stock.MinAmount})))
	w.head()
	w.sent(w.prepared(base(borrower, body{
		"action": "list", "token": stock.Token, "amount": stock.MinAmount, "cap": "1100000", "term": 604_800, "listingExpiry": 0, "minPrice": "1000000",
	})))
	w.head()
	w.sent(w.prepared(base(lender, body{"action": "approveUsdg", "amount": "5000000"})))
	w.sync()
	deal = get[DirectDeal](w, "/v1/deals/1")
	return w, deal, base(lender, body{"action": "fund", "dealId": "1", "termsHash": deal.TermsHash, "maxPrice": "1000000"})
}

// with is a body with some fields changed; nil removes one.
func (b body) with(pairs ...any) body {
	c := maps.Clone(b)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == nil {
			delete(c, pairs[i].(string))
		} else {
			c[pairs[i].(string)] = pairs[i+1]
		}
	}
	return c
}

func TestRefusals(t *testing.T) {
	w, deal, fund := listed(t)
	borrower, lender, poor := w.actors[0], w.actors[1], common.HexToAddress("0xdead000000000000000000000000000000000001")
	w.prepared(fund)

	w.refused("CHAIN_MISMATCH", fund.with("chainId", 1, "dealId", "99"))
	w.refused("DEAL_NOT_FOUND", fund.with("dealId", "99", "termsHash", common.Hash{1}.Hex()))
	w.refused("TERMS_CHANGED", fund.with("termsHash", common.Hash{1}.Hex(), "maxPrice", "0"))
	w.refused("SPEND_LIMIT", fund.with("maxPrice", "999999", "wallet", poor.Hex()))
	w.refused("INSUFFICIENT_BALANCE", fund.with("wallet", poor.Hex()))
	w.refused("NOTHING_TO_WITHDRAW", body{"action": "withdrawCredit", "chainId": 4663, "wallet": poor.Hex(), "token": w.dep.USDG.Hex()})
	if message := w.refused("SIMULATION_FAILED", fund.with("wallet", borrower.Hex())); !strings.Contains(message, "approveUsdg") && !strings.Contains(message, "NotLender") {
		t.Errorf("the borrower funds his own deal: %s", message)
	}
	terms := body{"chainId": 4663, "wallet": lender.Hex(), "dealId": "1", "termsHash": deal.TermsHash}
	w.refused("NOT_FUNDABLE", terms.with("action", "claim"))
	w.refused("NOT_FUNDABLE", terms.with("action", "reclaim", "spendLimit", "1"))
	if message := w.refused("SIMULATION_FAILED", terms.with("action", "cancel")); !strings.Contains(message, "NotBorrower") {
		t.Errorf("a stranger cancels: %s", message)
	}
	w.refused("NOT_FUNDABLE", terms.with("action", "withdrawBid", "bidId", "1", "termsHash", nil))

	bid := terms.with("action", "placeBid", "price", "900000", "expiry", deal.ListedAt+1000, "spendLimit", "900000")
	w.refused("SPEND_LIMIT", bid.with("spendLimit", "899999"))
	w.refused("SIMULATION_FAILED", bid.with("price", "1100001", "spendLimit", "1100001")) // above the cap
	w.refused("NOT_FUNDABLE", bid.with("expiry", 1))                                      // BidExpired
	w.sent(w.prepared(bid))
	w.head()
	accept := terms.with("action", "acceptBid", "wallet", borrower.Hex(), "bidId", "1", "minPrice", "900001")
	w.refused("SPEND_LIMIT", accept)
	w.refused("NOT_FUNDABLE", accept.with("bidId", "2"))
	w.prepared(accept.with("minPrice", "900000"))

	w.call(w.admin, w.dep.DealVault, "DealVault", "pause")
	if message := w.refused("SIMULATION_FAILED", fund); !strings.Contains(message, "paused") {
		t.Errorf("in a paused market: %s", message)
	}
	w.prepared(terms.with("action", "withdrawBid", "bidId", "1", "termsHash", nil)) // goes on
	w.call(w.admin, w.dep.DealVault, "DealVault", "unpause")
	w.call(w.admin, w.dep.USDG, "USDG", "pause")
	if message := w.refused("SIMULATION_FAILED", fund); !strings.Contains(message, "paused") {
		t.Errorf("with a paused dollar: %s", message)
	}
	w.call(w.admin, w.dep.USDG, "USDG", "unpause")

	// Terms edited: the bid that was made on the old ones is not to be accepted, on neither hash.
	w.call(borrower, w.dep.DealVault, "DealVault", "updateTerms", big.NewInt(1), big.NewInt(1_200_000), big.NewInt(1_000_000), uint32(604_800), new(big.Int))
	w.refused("TERMS_CHANGED", fund)
	w.refused("TERMS_CHANGED", accept)
	deal = get[DirectDeal](w, "/v1/deals/1")
	w.refused("TERMS_CHANGED", accept.with("termsHash", deal.TermsHash))

	fund["termsHash"] = deal.TermsHash
	w.sent(w.prepared(fund))
	w.head()
	terms["termsHash"] = deal.TermsHash
	w.refused("GRACE_NOT_OVER", terms.with("action", "claim"))
	w.refused("SPEND_LIMIT", terms.with("action", "reclaim", "wallet", borrower.Hex(), "spendLimit", "1199999"))
	w.refused("NOT_FUNDABLE", terms.with("action", "cancel", "wallet", borrower.Hex()))
	if _, err := w.node.Mine(t.Context(), *get[DirectDeal](w, "/v1/deals/1").GraceEnd+1, nil); err != nil {
		t.Fatal(err)
	}
	w.head()
	if message := w.refused("SIMULATION_FAILED", terms.with("action", "reclaim", "wallet", borrower.Hex(), "spendLimit", "1200000")); !strings.Contains(message, "GraceOver") && !strings.Contains(message, "approveUsdg") {
		t.Errorf("too late: %s", message)
	}
	w.prepared(terms.with("action", "claim"))
}

// TestInput: what is not one of the forms, to the letter, is refused, and what is in it goes nowhere.
func TestInput(t *testing.T) {
	w, _, fund := listed(t)
	const (
		key      = "4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318"
		mnemonic = "legal winner thank year wave sausage worth useful legal winner thank yellow"
	)
	text := func(b body) string {
		raw, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	for what, b := range map[string]any{
		"a key":                  fund.with("privateKey", key),
		"a key as a name":        fund.with("0x"+key, true),
		"a key as the action":    fund.with("action", key),
		"a key for a wallet":     fund.with("wallet", "0x"+key),
		"a key for a number":     fund.with("dealId", key),
		"a mnemonic":             fund.with("mnemonic", mnemonic),
		"a mnemonic for an ID":   fund.with("dealId", mnemonic),
		"a mnemonic as a name":   fund.with(mnemonic, 1),
		"a password as a name":   fund.with("hunter2", 1),
		"a word twice":           strings.Replace(text(fund), "{", `{"hunter2":1,"hunter2":1,`, 1),
		"a destination":          fund.with("to", "0x0000000000000000000000000000000000000001"),
		"calldata":               fund.with("data", "0x00"),
		"a value":                fund.with("value", "1"),
		"a field of another":     fund.with("spendLimit", "1"),
		"none of an action":      fund.with("maxPrice", nil),
		"no action":              fund.with("action", nil),
		"another action":         fund.with("action", "liquidate"),
		"a number for an amount": fund.with("maxPrice", 1_000_000),
		"a sign":                 fund.with("maxPrice", "-1"),
		"a leading zero":         fund.with("maxPrice", "01"),
		"a point":                fund.with("maxPrice", "1.0"),
		"an exponent":            fund.with("maxPrice", "1e6"),
		"257 bits":               fund.with("maxPrice", new(big.Int).Lsh(big.NewInt(1), 256).String()),
		"null":                   fund.with("dealId", json.RawMessage("null")),
		"a string for an ID":     fund.with("chainId", "4663"),
		"a fraction":             fund.with("chainId", 4663.5),
		"a wrong checksum":       fund.with("wallet", "0x"+strings.Repeat("aB", 20)),
		"no wallet":              fund.with("wallet", common.Address{}.Hex()),
		"twice":                  strings.Replace(text(fund), "{", `{"dealId":"1",`, 1),
		"another case":           strings.Replace(text(fund), `"dealId"`, `"dealID"`, 1),
		"more after it":          text(fund) + "{}",
		"an array":               "[" + text(fund) + "]",
		"nothing":                "",
		"half":                   text(fund)[:40],
		"an unknown token": body{
			"action": "approveCollateral", "chainId": 4663, "wallet": w.actors[0].Hex(), "token": "0x00000000000000000000000000000000000000aa", "amount": "1",
		},
		"the dollar as collateral": body{
			"action": "approveCollateral", "chainId": 4663, "wallet": w.actors[0].Hex(), "token": w.dep.USDG.Hex(), "amount": "1",
		},
		"an NFT as collateral": body{
			"action": "approveCollateral", "chainId": 4663, "wallet": w.actors[0].Hex(), "token": w.dep.PositionManager.Hex(), "amount": "1",
		},
	} {
		t.Run(what, func(t *testing.T) {
			res := w.post(b)
			w.isError("INVALID_INPUT", res)
			for _, secret := range []string{key, mnemonic, "legal winner", "hunter2"} {
				if strings.Contains(string(res.Body), secret) {
					t.Errorf("the answer repeats it: %s", res.Body)
				}
			}
		})
	}
	for _, target := range []string{
		"/v1/listings?term=1", "/v1/listings?sort=best", "/v1/listings?limit=101", "/v1/listings?limit=0", "/v1/assets?lane=STOCK",
		"/v1/deals/07", "/v1/deals/x", "/v1/portfolio/0x1", "/v1/portfolio/" + key, "/health?" + key + "=1", "/v1/listings?asset=" + key,
	} {
		res := w.Get(t, target)
		w.isError("INVALID_INPUT", res)
		if strings.Contains(string(res.Body), key) {
			t.Errorf("%s: the answer repeats it: %s", target, res.Body)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, prepareRoute, strings.NewReader(text(fund)))
	r.Header.Set("Content-Type", "text/plain")
	w.isError("INVALID_INPUT", w.Do(t, r))
	for _, given := range []string{key, "0x" + key, "5HueCGU8rMjxEXxiPuD5BDku4MkFqeZyd4dZ1jvhTVqvbTLvyTJ"} {
		res := w.Get(t, "/health", "X-Request-Id", given)
		if id := res.Header.Get("X-Request-Id"); id == given || strings.Contains(id, key) {
			t.Errorf("a key is taken for the ID of a request: %v", res.Header)
		}
	}
	w.isError("BODY_TOO_LARGE", w.post(fund.with("note", strings.Repeat("x", 16<<10))))
	for _, media := range []string{"application/json", "text/plain"} { // the size comes before what is in it
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, prepareRoute, io.MultiReader(strings.NewReader(strings.Repeat(" ", 20<<10))))
		r.ContentLength = -1 // chunked
		r.Header.Set("Content-Type", media)
		w.isError("BODY_TOO_LARGE", w.Do(t, r))
	}
	for _, target := range []string{"/v1/capabilities", "/nowhere"} { // whose method is a key
		rec := httptest.NewRecorder()
		w.agent.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), key, target, http.NoBody))
		if strings.Contains(rec.Body.String(), key) {
			t.Errorf("%s repeats its method: %s", target, rec.Body)
		}
	}

	for _, entry := range w.logs.All() {
		line, err := json.Marshal(entry.ContextMap())
		if err != nil {
			t.Fatal(err)
		}
		if all := entry.Message + string(line); strings.Contains(all, key) || strings.Contains(all, "legal") {
			t.Errorf("in the log: %s", all)
		}
	}
	families, err := w.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.Contains(f.String(), key) || strings.Contains(f.String(), "legal") {
			t.Errorf("in the metric %s", f.GetName())
		}
	}
}

func TestRoutes(t *testing.T) {
	w := newWorld(t, newNode(t, 6), 6, 0, func(cfg *Config, _ *Parts) {
		cfg.Limits = Limits{Requests: 25, Prepares: 1, Nodes: 1}
	})
	w.isError("NOT_FOUND", w.Get(t, "/v2/deals"))
	if res := w.Get(t, "/health"); res.Status != 200 || string(res.Body) != `{"ok":true}` || res.Header.Get("RateLimit") != `"api";r=4;t=3` {
		t.Errorf("health: %d %s %v", res.Status, res.Body, res.Header)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/health", http.NoBody)
	w.isError("METHOD_NOT_ALLOWED", w.Do(t, r))
	// A client of MCP in a browser may send what it sends.
	r = httptest.NewRequestWithContext(t.Context(), http.MethodOptions, mcpRoute, http.NoBody)
	r.Header.Set("Access-Control-Request-Method", http.MethodPost)
	r.Header.Set("Access-Control-Request-Headers", "content-type, mcp-protocol-version")
	if allowed := w.Do(t, r).Header.Get("Access-Control-Allow-Headers"); !strings.Contains(allowed, "Mcp-Protocol-Version") || !strings.Contains(allowed, "Content-Type") {
		t.Errorf("a preflight of MCP allows %s", allowed)
	}
	w.refused("INVALID_INPUT", "{}")
	// The rate comes before the size.
	res := w.post(strings.Repeat("x", 20<<10))
	w.isError("RATE_LIMITED", res)
	if res.Header.Get("Retry-After") == "" || !strings.Contains(res.Header.Get("RateLimit"), `"prepare";r=0;`) || res.Header.Get("RateLimit-Policy") != `"api";q=25;w=60;burst=5, "prepare";q=1;w=60;burst=1` {
		t.Errorf("too many: %v", res.Header)
	}
	for range 2 {
		w.Get(t, "/health")
	}
	w.isError("RATE_LIMITED", w.Get(t, "/v1/capabilities"))
	w.isError("NOT_FOUND", w.Get(t, "/nowhere")) // the route comes first
}

// TestNodesThatCannotBeTrusted: never a transaction, always a code that says so.
func TestNodesThatCannotBeTrusted(t *testing.T) {
	w, _, fund := listed(t)
	ask := func(code string, change change, refresh bool) {
		t.Helper()
		a := w.service(change)
		if refresh {
			_, _ = a.chain.Refresh(t.Context()) // the service says what is wrong
		}
		keep := w.Client
		w.Client = apitest.NewClient(t, a, description)
		defer func() { w.Client = keep }()
		w.refused(code, fund)
		w.isError(code, w.Get(t, "/v1/capabilities"))
		w.isError(code, w.Get(t, "/v1/deals/1"))
		w.isError(code, w.Get(t, "/v1/assets"))
	}
	liar, other := rpctest.NewLiar(t, w.node.HTTP(), 0), rpctest.NewLiar(t, w.node.HTTP(), 0)
	through := func(urls ...string) change {
		return func(_ *Config, p *Parts) {
			cfg := chain.DefaultConfig()
			cfg.ChainID, cfg.Endpoints, cfg.Timeout, cfg.PollTimeout = devchain.DefaultChainID, urls, 200*time.Millisecond, 200*time.Millisecond
			c, err := chain.New(cfg, nil, zap.NewNop(), prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			p.Chain = c
		}
	}
	ask("UPSTREAM_UNAVAILABLE", through("http://127.0.0.1:1"), true)
	liar.Tells(func(_ http.ResponseWriter, r *http.Request, _ rpctest.Message, _ *rpctest.Message) bool {
		<-r.Context().Done()
		return true
	})
	ask("UPSTREAM_UNAVAILABLE", through(liar.URL), true) // stalled
	liar.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_getBlockByNumber" {
			var b map[string]any
			if json.Unmarshal(resp.Result, &b) == nil {
				b["hash"] = crypto.Keccak256Hash([]byte("fork"))
				resp.Say(b)
			}
		}
		return false
	})
	ask("UPSTREAM_UNAVAILABLE", through(liar.URL, other.URL), true) // two that disagree
	liar.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_chainId" {
			resp.Say("0x1")
		}
		return false
	})
	ask("DEPLOYMENT_MISMATCH", through(liar.URL), true)
	ask("DEPLOYMENT_MISMATCH", func(cfg *Config, _ *Parts) { cfg.Deployment.DealVault = common.Address{0xaa} }, false)
	ask("DEPLOYMENT_MISMATCH", func(cfg *Config, _ *Parts) { cfg.Deployment.AssetRegistry = common.Address{0xaa} }, false)
	ask("DEPLOYMENT_MISMATCH", func(cfg *Config, _ *Parts) { cfg.Deployment.USDG = common.Address{0xaa} }, false)
	liar.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_call" {
			resp.Say("0x1234")
		}
		return false
	})
	ask("DEPLOYMENT_MISMATCH", through(liar.URL), true) // garbage
	far := w.head().Timestamp + 31
	ask("STALE_CHAIN", func(_ *Config, p *Parts) { p.Now = func() time.Time { return time.Unix(int64(far), 0) } }, false)
}

func TestValuations(t *testing.T) {
	w, deal, fund := listed(t)
	now := w.head().Timestamp
	fresh, err := json.Marshal(map[string]any{"dealId": "1", "valueUSDG": "1000000", "suggestedCap": "700000", "at": now})
	if err != nil {
		t.Fatal(err)
	}
	stale := strings.Replace(string(fresh), `"at":`, `"at":1,"was":`, 1)
	ahead := strings.Replace(string(fresh), `"at":`, `"at":4000000000,"was":`, 1)
	for _, c := range []struct {
		valuation Valuation
		code      string
		warning   string
	}{
		{worth{body: string(fresh)}, "", "VALUATION_BELOW_CAP"},
		{worth{body: strings.Replace(string(fresh), "1000000", "1100000", 1)}, "", ""},
		{worth{body: stale}, "STALE_VALUATION", "VALUATION_UNKNOWN"},
		{worth{err: ErrUnreliable}, "STALE_VALUATION", "VALUATION_UNKNOWN"},
		{worth{err: ErrNotValued}, "STALE_VALUATION", "VALUATION_UNKNOWN"},
		{worth{body: `{}`}, "UPSTREAM_UNAVAILABLE", "VALUATION_UNKNOWN"},
		{worth{body: strings.Replace(string(fresh), `"1000000"`, `"none"`, 1)}, "UPSTREAM_UNAVAILABLE", "VALUATION_UNKNOWN"},
		{worth{body: strings.Replace(string(fresh), `"1000000"`, `"-1000000"`, 1)}, "UPSTREAM_UNAVAILABLE", "VALUATION_UNKNOWN"},
		{worth{body: strings.Replace(string(fresh), `"1000000"`, `1000000`, 1)}, "UPSTREAM_UNAVAILABLE", "VALUATION_UNKNOWN"},
		{worth{body: ahead}, "STALE_VALUATION", "VALUATION_UNKNOWN"},
		{NewValuationHTTP("http://127.0.0.1:1", http.DefaultClient, time.Second), "UPSTREAM_UNAVAILABLE", "VALUATION_UNKNOWN"},
		{nil, "UPSTREAM_UNAVAILABLE", ""},
	} {
		w.Client = apitest.NewClient(t, w.service(func(_ *Config, p *Parts) { p.Valuation = c.valuation }), description)
		res := w.Get(t, "/v1/deals/1/valuation")
		if c.code != "" {
			w.isError(c.code, res)
		} else if v := get[DealValuation](w, "/v1/deals/1/valuation"); v.Cap != deal.Cap || v.Evidence.BlockTimestamp != now {
			t.Errorf("valuation: %+v", v)
		}
		warnings := w.prepared(fund).Warnings
		if c.warning == "" && len(warnings) > 0 || c.warning != "" && (len(warnings) != 1 || warnings[0].Code != c.warning) {
			t.Errorf("%+v: warnings %+v", c, warnings)
		}
	}
	w.isError("DEAL_NOT_FOUND", w.Get(t, "/v1/deals/9/valuation"))
}

// TestWarnings: what is not against the rules, and a caller should know all the same.
func TestWarnings(t *testing.T) {
	w, _, fund := listed(t)
	codes := func(b body) string {
		t.Helper()
		var all []string
		for _, warning := range w.prepared(b).Warnings {
			all = append(all, warning.Code)
		}
		return strings.Join(all, " ")
	}
	lender := w.actors[1]
	if got := codes(fund); got != "" {
		t.Errorf("nothing is to be said: %s", got)
	}
	w.call(lender, w.dep.USDG, "USDG", "approve", w.dep.DealVault, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1)))
	if got := codes(fund); got != "UNLIMITED_ALLOWANCE" {
		t.Errorf("an allowance without limit: %s", got)
	}
	w.call(w.actors[0], w.dep.DealVault, "DealVault", "updateTerms", big.NewInt(1), big.NewInt(1_100_000), big.NewInt(1_000_000), uint32(604_800), new(big.Int).SetUint64(w.head().Timestamp+600))
	deal := get[DirectDeal](w, "/v1/deals/1")
	p := w.prepared(fund.with("termsHash", deal.TermsHash))
	if len(p.Warnings) != 2 || p.Warnings[0].Code != "LISTING_EXPIRES_SOON" || p.ExpiresAt != w.head().Timestamp+60 {
		t.Errorf("a listing about to end: %+v until %d", p.Warnings, p.ExpiresAt)
	}
	w.call(w.admin, w.dep.USDG, "USDG", "pause")
	approve := body{"action": "approveUsdg", "chainId": 4663, "wallet": lender.Hex(), "amount": "5"}
	if got := codes(approve); got != "UNLIMITED_ALLOWANCE TOKEN_PAUSED" {
		t.Errorf("a paused token: %s", got)
	}
	w.call(w.admin, w.dep.USDG, "USDG", "unpause")
	if got := codes(approve.with("wallet", "0xdead000000000000000000000000000000000001")); got != "GAS_UNPAID" {
		t.Errorf("a wallet without a coin: %s", got)
	}
}

// TestThePausedCollateral: who pays for it is told that it cannot be moved, whichever of its views says so.
func TestThePausedCollateral(t *testing.T) {
	w, deal, fund := listed(t)
	bid := body{
		"action": "placeBid", "chainId": 4663, "wallet": fund["wallet"], "dealId": "1", "termsHash": deal.TermsHash, "price": "900001",
		"expiry": deal.ListedAt + 1000, "spendLimit": "900001",
	}
	oracle := rpctest.NewLiar(t, w.node.HTTP(), 0)
	oracle.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if len(req.Params) == 0 {
			return false
		}
		call := string(req.Params[0])
		if req.Method == "eth_call" && strings.Contains(call, strings.ToLower(deal.Token)) && strings.Contains(call, hexutil.Encode(pauses[1])) {
			resp.Result, resp.Error = json.RawMessage(`"0x`+word(1)+`"`), nil
		}
		return false
	})
	if codes := codesOf(w.over(oracle.URL).prepared(fund)); codes != "TOKEN_PAUSED" {
		t.Errorf("by its oracle: %q", codes)
	}
	w.call(w.admin, addressOf(deal.Token), "StockToken", "pause")
	for _, b := range []body{fund, bid} {
		if codes := codesOf(w.prepared(b)); codes != "TOKEN_PAUSED" {
			t.Errorf("%s: %q", b["action"], codes)
		}
	}
	w.call(w.admin, addressOf(deal.Token), "StockToken", "unpause")
	if codes := codesOf(w.prepared(fund)); codes != "" {
		t.Errorf("it is not paused any more: %q", codes)
	}
}

// TestTheStateComesBeforeTheLimit: an expired bid is not to be accepted, and a deal past its grace not to be repaid,
// whatever the caller's limit is and the wallet has.
func TestTheStateComesBeforeTheLimit(t *testing.T) {
	w, deal, fund := listed(t)
	if r := w.sent(w.prepared(body{
		"action": "placeBid", "chainId": 4663, "wallet": fund["wallet"], "dealId": "1", "termsHash": deal.TermsHash, "price": "900001",
		"expiry": deal.ListedAt + 1000, "spendLimit": "900001",
	})); r.Status != types.ReceiptStatusSuccessful {
		t.Fatal("the bid reverted")
	}
	mined := func(at uint64) {
		t.Helper()
		if _, err := w.node.Mine(t.Context(), at, nil); err != nil {
			t.Fatal(err)
		}
		w.head()
	}
	accept := body{
		"action": "acceptBid", "chainId": 4663, "wallet": w.actors[0].Hex(), "dealId": "1", "bidId": "1", "termsHash": deal.TermsHash, "minPrice": "900001",
	}
	mined(deal.ListedAt + 999)
	w.refused("SPEND_LIMIT", accept.with("minPrice", "1000000"))
	for _, at := range []uint64{1000, 2000} {
		mined(deal.ListedAt + at)
		w.refused("NOT_FUNDABLE", accept)
		w.refused("NOT_FUNDABLE", accept.with("minPrice", "1000000"))
	}
	w.sent(w.prepared(fund))
	w.head()
	mined(*get[DirectDeal](w, "/v1/deals/1").GraceEnd + 1)
	for _, wallet := range []string{w.actors[0].Hex(), endless.Hex()} { // who has the money, and who has not
		for _, limit := range []string{"99999999", "1"} {
			if message := w.refused("SIMULATION_FAILED", body{
				"action": "reclaim", "chainId": 4663, "wallet": wallet, "dealId": "1", "termsHash": deal.TermsHash, "spendLimit": limit,
			}); !strings.Contains(message, "grace") {
				t.Errorf("limit %s: %s", limit, message)
			}
		}
	}
}

// TestTheLastSecond: blocks share timestamps. In the last second of a listing and of grace what the chain still does in a
// block of that second is prepared, and in the next it is refused.
func TestTheLastSecond(t *testing.T) {
	w, deal, fund := listed(t)
	other := rpctest.NewLiar(t, w.node.HTTP(), 0)
	borrower, ends := w.actors[0], deal.ListedAt+30
	w.call(borrower, w.dep.DealVault, "DealVault", "updateTerms", big.NewInt(1), big.NewInt(1_100_000), big.NewInt(1_000_000), uint32(604_800), new(big.Int).SetUint64(ends))
	deal = get[DirectDeal](w, "/v1/deals/1")
	fund = fund.with("termsHash", deal.TermsHash)
	early := w.prepared(fund)
	mined := func(at uint64) chain.Block {
		t.Helper()
		if _, err := w.node.Mine(t.Context(), at, nil); err != nil {
			t.Fatal(err)
		}
		return w.head()
	}
	last := func(at uint64, b body, code string) {
		t.Helper()
		head := mined(at)
		for _, v := range []*world{w, w.over(w.node.HTTP(), other.URL)} { // one node, and two
			p := v.prepared(b)
			if p.ExpiresAt != at || p.Simulation.Method != byCall || !strings.Contains(codesOf(p), "TRANSFERS_UNKNOWN") {
				t.Errorf("%s: until %d, %+v, %s", p.Action, p.ExpiresAt, p.Simulation, codesOf(p))
			}
			tx := p.Transaction
			if _, err := w.chain.Call(t.Context(), head.Hash, chain.Call{From: addressOf(tx.From), To: addressOf(tx.To), Data: hexutil.MustDecode(tx.Data)}); err != nil {
				t.Errorf("%s: in the head's second: %v", p.Action, err)
			}
		}
		mined(at + 1)
		w.refused(code, b)
		if err := w.node.Rewind(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		w.head()
	}
	last(ends, fund, "NOT_FUNDABLE")
	w.sent(early)
	w.head()
	w.call(borrower, w.dep.USDG, "USDG", "approve", w.dep.DealVault, big.NewInt(5_000_000))
	last(*get[DirectDeal](w, "/v1/deals/1").GraceEnd, body{
		"action": "reclaim", "chainId": 4663, "wallet": borrower.Hex(), "dealId": "1", "termsHash": deal.TermsHash, "spendLimit": "1100000",
	}, "SIMULATION_FAILED")

	// What begins when grace ends is refused in that second, as the deal's claim says: a block of that second reverts it.
	grace := *get[DirectDeal](w, "/v1/deals/1").GraceEnd
	lender := addressOf(fund["wallet"].(string))
	claim := body{"action": "claim", "chainId": 4663, "wallet": lender.Hex(), "dealId": "1", "termsHash": deal.TermsHash}
	data, err := w.agent.contracts.vault.Pack("claim", big.NewInt(1), [32]byte(common.HexToHash(deal.TermsHash)))
	if err != nil {
		t.Fatal(err)
	}
	for at, eligible := range map[uint64]bool{grace: false, grace + 1: true} {
		head := mined(at)
		if d := get[DirectDeal](w, "/v1/deals/1"); d.Claim.Eligible != eligible || *d.Claim.EligibleAfter != grace {
			t.Errorf("%d s after grace: %+v", at-grace, d.Claim)
		}
		_, err := w.chain.Call(t.Context(), head.Hash, chain.Call{From: lender, To: w.dep.DealVault, Data: data})
		if _, reverts := errors.AsType[*chain.RevertError](err); reverts == eligible {
			t.Errorf("%d s after grace the vault says %v", at-grace, err)
		}
		if !eligible {
			w.refused("GRACE_NOT_OVER", claim)
		} else if r := w.sent(w.prepared(claim)); r.Status != types.ReceiptStatusSuccessful {
			t.Error("the claim reverts")
		}
		if err := w.node.Rewind(t.Context(), w.head().Number-head.Number+1); err != nil {
			t.Fatal(err)
		}
		w.head()
	}
}

// TestGasHasHeadroom: a transaction gets more gas than the node takes it to need, but no more than a block has.
func TestGasHasHeadroom(t *testing.T) {
	w, _, fund := listed(t)
	gas := func(bps uint64) uint64 {
		t.Helper()
		v := &world{t: t, Client: apitest.NewClient(t, w.service(func(cfg *Config, _ *Parts) { cfg.GasHeadroomBps = bps }), description)}
		n, err := strconv.ParseUint(v.prepared(fund).Transaction.Gas, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	bare := gas(0)
	if got, want := gas(DefaultConfig().GasHeadroomBps), bare+bare/5; got != want {
		t.Errorf("of %d it gets %d, want %d", bare, got, want)
	}
	p := w.prepared(fund)
	p.Transaction.Gas = strconv.FormatUint(bare-bare/20, 10)
	if got, most := gas(100_000), w.head().GasLimit; got > most || got < min(most, 10*bare) {
		t.Errorf("it gets %d, and a block has %d", got, most)
	}
	if r := w.sent(p); r.Status == types.ReceiptStatusSuccessful {
		t.Error("with less than the estimate it succeeds: the estimate is no measure")
	}
}

func noSimulation(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
	if req.Method == "eth_simulateV1" {
		resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32601,"message":"the method eth_simulateV1 does not exist/is not available"}`)
	}
	return false
}

// TestNodeWithoutSimulation: a transaction is prepared all the same, and says what is not known.
func TestNodeWithoutSimulation(t *testing.T) {
	w, _, fund := listed(t)
	plain := rpctest.NewLiar(t, w.node.HTTP(), 0)
	plain.Tells(noSimulation)
	client := w.client(plain.URL)
	if _, err := client.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Client = apitest.NewClient(t, w.service(func(_ *Config, p *Parts) { p.Chain = client }), description)
	for range 2 {
		p := w.prepared(fund)
		if p.Simulation.Method != "eth_call" || p.Simulation.Transfers != nil || len(p.Warnings) != 1 || p.Warnings[0].Code != "TRANSFERS_UNKNOWN" {
			t.Errorf("prepared: %+v %+v", p.Simulation, p.Warnings)
		}
	}
	w.refused("SIMULATION_FAILED", body{
		"action": "cancel", "chainId": 4663, "wallet": w.actors[1].Hex(), "dealId": "1", "termsHash": fund["termsHash"],
	})
	w.sent(w.prepared(fund))
	w.head()
	if deal := get[DirectDeal](&world{Client: apitest.NewClient(t, w.agent, description), t: t}, "/v1/deals/1"); deal.State != "FUNDED" {
		t.Errorf("what was prepared without a simulation came to %s", deal.State)
	}
}

// TestValuationHTTP: what the valuation service answers, and what becomes of it.
func TestValuationHTTP(t *testing.T) {
	var status int
	var answer string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/deals/7/valuation" {
			t.Errorf("asked for %s", r.URL)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	v := NewValuationHTTP(server.URL+"/", server.Client(), time.Second)
	for _, c := range []struct {
		status int
		answer string
		want   error
	}{
		{200, `{"dealId":"7"}`, nil},
		{503, `{"error":{"code":"PRICE_UNRELIABLE","message":""}}`, ErrUnreliable},
		{404, `{"error":{"code":"DEAL_NOT_FOUND","message":""}}`, ErrNotValued},
	} {
		status, answer = c.status, c.answer
		body, err := v.Deal(t.Context(), big.NewInt(7))
		if err != c.want || err == nil && string(body) != c.answer { //nolint:errorlint // these very values
			t.Errorf("%d %s: %s, %v", c.status, c.answer, body, err)
		}
	}
	for _, c := range []struct {
		status int
		answer string
	}{{503, "x"}, {500, `{"error":{"code":"INTERNAL"}}`}, {200, strings.Repeat("x", maxValuationBytes+1)}} {
		status, answer = c.status, c.answer
		if _, err := v.Deal(t.Context(), big.NewInt(7)); err == nil {
			t.Errorf("%d with %d bytes is an answer", c.status, len(c.answer))
		}
	}
}

func FuzzInput(f *testing.F) {
	f.Add([]byte(`{"action":"fund","chainId":4663,"wallet":"0xb0b0000000000000000000000000000000000001","dealId":"7","termsHash":"0x0000000000000000000000000000000000000000000000000000000000000001","maxPrice":"1"}`))
	f.Add([]byte(`{"action":"cancel"}`))
	actions := newActions()
	f.Fuzz(func(t *testing.T, raw []byte) {
		in, err := parseInput(raw, actions)
		if err != nil {
			return
		}
		if actions[in.Action] == nil || in.Wallet == (common.Address{}) {
			t.Errorf("%s became %+v", raw, in)
		}
		for _, n := range []*big.Int{in.DealID, in.BidID, in.Amount, in.Cap, in.MinPrice, in.Price, in.Limit} {
			if n != nil && (n.Sign() < 0 || n.BitLen() > 256) {
				t.Errorf("%s has the number %s", raw, n)
			}
		}
	})
}

// TestNoApprovalInVain: what the vault refuses anyway is refused before an approval is asked for, which costs gas.
func TestNoApprovalInVain(t *testing.T) {
	w, deal, fund := listed(t)
	lender := w.actors[1].Hex()
	w.sent(w.prepared(body{"chainId": 4663, "action": "approveUsdg", "wallet": lender, "amount": "0"}))
	borrower := w.actors[0].Hex()
	w.sent(w.prepared(body{"chainId": 4663, "action": "approveCollateral", "wallet": borrower, "token": deal.Token, "amount": "0"}))
	now := w.sync().Timestamp
	list := body{
		"chainId": 4663, "action": "list", "wallet": borrower, "token": deal.Token, "amount": deal.AmountOrTokenID, "cap": "1100000",
		"term": 604_800, "listingExpiry": 0, "minPrice": "1000000",
	}
	bid := body{
		"chainId": 4663, "action": "placeBid", "wallet": lender, "dealId": "1", "termsHash": deal.TermsHash,
		"price": "1050000", "expiry": now + 86_400, "spendLimit": "9000000",
	}
	for _, v := range []struct {
		code, says string
		asked      body
	}{
		{"NOT_FUNDABLE", "BidExpired", bid.with("expiry", now-1)},
		{"SIMULATION_FAILED", "AmountOutOfRange", bid.with("price", "1100001")},
		{"SIMULATION_FAILED", "NotLender", fund.with("wallet", w.actors[0].Hex())},
		{"SIMULATION_FAILED", "prepare approveUsdg of 1050000 first", bid},
		{"SIMULATION_FAILED", "prepare approveUsdg of 1000000 first", fund},
		{"SIMULATION_FAILED", "prepare approveCollateral of " + deal.AmountOrTokenID, list},
		{"SIMULATION_FAILED", "AmountOutOfRange", list.with("amount", "1")}, // the registry says it after the vault took the token
		{"SIMULATION_FAILED", "AmountOutOfRange", list.with("minPrice", "1100001")},
		{"SIMULATION_FAILED", "UnsupportedTerm", list.with("term", 1)},
	} {
		if said := w.refused(v.code, v.asked); !strings.Contains(said, v.says) {
			t.Errorf("%v: %s, want %q", v.asked, said, v.says)
		}
	}

	// The registry does not allow the collateral any more, or has as much of it in open deals as it may.
	type limits struct {
		Allowed                           bool
		Kind, Lane                        uint8
		MinAmount, MaxDealRaw, MaxOpenRaw *big.Int
	}
	amount, _ := new(big.Int).SetString(deal.AmountOrTokenID, 10)
	for says, l := range map[string]limits{
		"AssetNotAllowed":  {MinAmount: big.NewInt(1), MaxDealRaw: amount, MaxOpenRaw: big.NewInt(1e18)},
		"AmountOutOfRange": {Allowed: true, MinAmount: big.NewInt(1), MaxDealRaw: amount, MaxOpenRaw: amount},
	} {
		w.call(w.admin, w.dep.AssetRegistry, "AssetRegistry", "setAsset", addressOf(deal.Token), l)
		for _, v := range []*world{w, w.over(w.node.HTTP(), rpctest.NewLiar(t, w.node.HTTP(), 0).URL)} { // one node, and two
			if said := v.refused("SIMULATION_FAILED", list); !strings.Contains(said, "it would revert: "+says) {
				t.Errorf("an approval in vain: %s", said)
			}
		}
		// Without that check the chain says the same: the allowance is there.
		w.call(w.actors[0], addressOf(deal.Token), "USDG", "approve", w.dep.DealVault, big.NewInt(1e18))
		if said := w.refused("SIMULATION_FAILED", list); !strings.Contains(said, "it would revert: "+says) {
			t.Errorf("with an allowance: %s, want %s", said, says)
		}
		w.call(w.actors[0], addressOf(deal.Token), "USDG", "approve", w.dep.DealVault, new(big.Int))
	}
}

// FuzzDecodeValued: a valuation that is taken is of this deal, has a time, and its value is what its text says.
func FuzzDecodeValued(f *testing.F) {
	f.Add([]byte(`{"dealId":"7","valueUSDG":"1000000","at":1790000000}`))
	f.Add([]byte(`{"dealId":"7","valueUSDG":"-1","at":1790000000}`))
	f.Add([]byte(`{"dealId":"7","valueUSDG":1,"at":-1}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, body []byte) {
		v, ok := decodeValued(body, big.NewInt(7))
		if !ok {
			return
		}
		var text string
		if err := json.Unmarshal(v.ValueUSDG, &text); err != nil || v.DealID != "7" || v.At == 0 || int64(v.At) < 0 || text != v.value.String() {
			t.Errorf("%q is taken as %+v of %s", body, v, v.value)
		}
	})
}
