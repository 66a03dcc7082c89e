package agent

import (
	"context"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/serving/httpapi/apitest"
	"github.com/lienstream/lienstream/topics"
)

// worth is a valuation service that has one answer.
type worth struct {
	body string
	err  error
}

func (v worth) Deal(context.Context, *big.Int) (json.RawMessage, error) {
	return json.RawMessage(v.body), v.err
}

// TestFromDiscoveryToAVerifiedResult is what an agent does with nothing but the URL: it lists, is funded, and reads.
func TestFromDiscoveryToAVerifiedResult(t *testing.T) {
	w := newWorld(t, newNode(t, 1), 1, 30)
	found := get[Discovery](w, "/.well-known/agent.json")
	if found.ChainID != 4663 || found.Contracts["dealVault"] != lower(w.dep.DealVault) {
		t.Errorf("discovery: %+v", found)
	}
	can := get[Capabilities](w, "/v1/capabilities")
	if can.Deployment.DealVault != lower(w.dep.DealVault) || len(can.SupportedTerms) != 2 || can.USDGDecimals != 6 || can.Paused || can.Grace == 0 {
		t.Errorf("capabilities: %+v", can)
	}

	// A stock that the borrower has enough of.
	var stock Asset
	borrower, lender := w.actors[0], w.actors[1]
	assets := get[page[Asset]](w, "/v1/assets")
	if len(assets.Items) == 0 {
		t.Fatal("no stock may be listed")
	}
	stock = assets.Items[0]
	amount := stock.MinAmount
	chainID := can.Deployment.ChainID
	list := body{
		"action": "list", "chainId": chainID, "wallet": borrower.Hex(), "token": stock.Token, "amount": amount,
		"cap": "1100000", "term": can.SupportedTerms[0], "listingExpiry": 0, "minPrice": "1000000",
	}
	// Whatever the scenario let the vault take before, now it may take nothing.
	none := body{"action": "approveCollateral", "chainId": chainID, "wallet": borrower.Hex(), "token": stock.Token, "amount": "0"}
	if r := w.sent(w.prepared(none)); r.Status != types.ReceiptStatusSuccessful {
		t.Fatal("the approval of 0 reverted")
	}
	w.sync()
	if message := w.refused("SIMULATION_FAILED", list); !strings.Contains(message, "approveCollateral of "+amount) {
		t.Errorf("the missing approval is not named: %s", message)
	}
	none["amount"] = amount
	w.sent(w.prepared(none))
	w.sync()
	p := w.prepared(list)
	if r := w.sent(p); r.Status != types.ReceiptStatusSuccessful {
		t.Fatal("the listing reverted")
	}
	w.sync()

	listed := get[page[IndexedDeal]](w, "/v1/listings?sort=newest&limit=1")
	if len(listed.Items) != 1 || listed.Items[0].Borrower != lower(borrower) || string(listed.NextCursor) == "null" {
		t.Fatalf("listings: %+v", listed)
	}
	id := listed.Items[0].ID
	deal := get[DirectDeal](w, "/v1/deals/"+id)
	if deal.TermsHash != listed.Items[0].TermsHash || !deal.Fundable || deal.Repayment.GrossReturn != "100000" || deal.Repayment.CostBps != "1000" {
		t.Errorf("deal: %+v", deal)
	}

	w.sent(w.prepared(body{"action": "approveUsdg", "chainId": chainID, "wallet": lender.Hex(), "amount": deal.MinPrice}))
	w.sync()
	fund := body{"action": "fund", "chainId": chainID, "wallet": lender.Hex(), "dealId": id, "termsHash": deal.TermsHash, "maxPrice": deal.MinPrice}
	p = w.prepared(fund)
	want := Transfer{Kind: "ERC20", Token: &p.Spend.Token, From: lower(lender), To: lower(w.dep.DealVault), AmountOrTokenID: "1000000"}
	if len(p.Simulation.Transfers) != 1 || *p.Simulation.Transfers[0].Token != lower(w.dep.USDG) {
		t.Fatalf("transfers: %+v", p.Simulation.Transfers)
	}
	want.Token, p.Simulation.Transfers[0].Token = nil, nil
	if p.Simulation.Transfers[0] != want || p.Spend.Amount != "1000000" || p.Terms.TermsHash != deal.TermsHash {
		t.Errorf("prepared: %+v", p)
	}
	if p.Decoded.Function != "fund(uint256,bytes32)" || p.Decoded.Args[0].Value != id {
		t.Errorf("decoded: %+v", p.Decoded)
	}
	before := w.read(w.dep.USDG, "USDG", "balanceOf", lender)[0].(*big.Int)
	if r := w.sent(p); r.Status != types.ReceiptStatusSuccessful {
		t.Fatal("the funding reverted")
	}
	after := w.read(w.dep.USDG, "USDG", "balanceOf", lender)[0].(*big.Int)
	if paid := new(big.Int).Sub(before, after); paid.Int64() != 1_000_000 {
		t.Errorf("the lender paid %s", paid)
	}
	w.sync()
	deal = get[DirectDeal](w, "/v1/deals/"+id)
	if deal.State != "FUNDED" || *deal.Lender != lower(lender) || deal.Claim.Eligible || *deal.Claim.EligibleAfter != *deal.GraceEnd {
		t.Errorf("funded: %+v", deal)
	}
	w.refused("NOT_FUNDABLE", fund)

	mine := get[Portfolio](w, "/v1/portfolio/"+borrower.Hex())
	credit := w.read(w.dep.DealVault, "DealVault", "credits", borrower, w.dep.USDG)[0].(*big.Int)
	if mine.USDGCredit != credit.String() || len(mine.AsBorrower) == 0 || mine.AsBorrower[0].ID != id {
		t.Errorf("portfolio: credit %s of %s", mine.USDGCredit, credit)
	}
	if r := w.sent(w.prepared(body{"action": "withdrawCredit", "chainId": chainID, "wallet": borrower.Hex(), "token": w.dep.USDG.Hex()})); r.Status != types.ReceiptStatusSuccessful {
		t.Error("the withdrawal reverted")
	}
}

// TestEveryURLAnswers: each URL that the discovery document names answers, wherever in it that stands. The support service
// is another one; it is asked with the others in the test of the whole program.
func TestEveryURLAnswers(t *testing.T) {
	var served http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { served.ServeHTTP(rw, r) }))
	defer server.Close()
	const support = "https://support.example"
	w := newWorld(t, newNode(t, 1), 1, 0, func(cfg *Config, _ *Parts) { cfg.BaseURL, cfg.SupportURL = server.URL+"/", support })
	served = w.agent
	res := w.Get(t, "/.well-known/agent.json")
	var found Discovery
	res.Decode(t, &found)
	if found.BaseURL != server.URL || found.MCP == nil || found.Support == nil || *found.Support != support {
		t.Errorf("it is at %s, its tools at %v, support at %v", found.BaseURL, found.MCP, found.Support)
	}
	named := regexp.MustCompile(`https?://[^"]+`).FindAllString(string(res.Body), -1)
	if len(named) != 4 {
		t.Fatalf("it names %v", named)
	}
	for _, u := range named {
		method, content := http.MethodGet, ""
		switch u {
		case support:
			continue
		case *found.MCP:
			method, content = http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`
		}
		r, err := http.NewRequestWithContext(t.Context(), method, u, strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s %s answers %d", method, u, answer.StatusCode)
		}
	}
	for _, step := range found.Workflow {
		method, path, ok := strings.Cut(step.Do, " ")
		if ok && strings.HasPrefix(path, "/") && !slices.ContainsFunc(w.agent.routes(), func(r httpapi.Route) bool { return r.Method == method && r.Path == path }) {
			t.Errorf("the step %q is of no route", step.Do)
		}
	}
}

// TestPublicURLs: a URL at which nobody could ask is no URL of the service, and what is secret in one is not repeated.
func TestPublicURLs(t *testing.T) {
	w, _, _ := listed(t)
	cfg := w.agent.cfg
	for url, ok := range map[string]bool{
		"https://agent.example": true, "http://127.0.0.1:4300/base/": true, "": true,
		"agent.example": false, "ftp://agent.example": false, "https://agent.example/#docs": false, "https://agent.example?a=1": false,
		"https://user:hunter2@agent.example": false, "javascript://agent.example": false, "http://localhost:0": false,
	} {
		cfg.BaseURL = url
		err := cfg.Validate()
		if ok != (err == nil) {
			t.Errorf("%s: %v", url, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "agent-url: ") || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%s: the fault is %v", url, err)
		}
	}
}

// TestWithoutAPublicURL: agent.json names where the service listens.
func TestWithoutAPublicURL(t *testing.T) {
	w, _, _ := listed(t)
	a := w.service(func(cfg *Config, _ *Parts) { cfg.BaseURL = "" })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	found := get[Discovery](&world{t: t, Client: apitest.NewClient(t, a, description)}, "/.well-known/agent.json")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, found.OpenAPI, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatalf("%s: %v", found.OpenAPI, err)
	}
	if _ = answer.Body.Close(); answer.StatusCode != http.StatusOK {
		t.Errorf("%s answers %d", found.OpenAPI, answer.StatusCode)
	}
}

func TestEveryAnswerHasItsEvidence(t *testing.T) {
	w := newWorld(t, newNode(t, 2), 2, 20, func(_ *Config, p *Parts) {
		p.Valuation = worth{body: `{"dealId":"1","valueUSDG":"5","suggestedCap":"3","at":4000000000}`}
	})
	head := w.sync()
	for _, target := range []string{
		"/v1/capabilities", "/v1/assets?limit=1", "/v1/listings?term=604800&sort=cost", "/v1/deals/1", "/v1/portfolio/" + w.actors[0].Hex(),
	} {
		res := w.Get(t, target)
		var v struct {
			Evidence   Evidence
			Checkpoint *Checkpoint
		}
		res.Decode(t, &v)
		want := Evidence{ChainID: 4663, BlockNumber: strconv.FormatUint(head.Number, 10), BlockHash: head.Hash.Hex(), BlockTimestamp: head.Timestamp, ObservedAt: v.Evidence.ObservedAt}
		if v.Evidence != want || time.Now().Unix()-v.Evidence.ObservedAt > 5 {
			t.Errorf("%s: evidence %+v, head %+v", target, v.Evidence, head)
		}
		if v.Checkpoint != nil && v.Checkpoint.BlockHash != head.Hash.Hex() {
			t.Errorf("%s: checkpoint %+v", target, v.Checkpoint)
		}
		if res.Header.Get("Cache-Control") != "no-store" || res.Header.Get("Access-Control-Allow-Origin") != "*" || res.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: %v", target, res.Header)
		}
	}
}

// TestEmptyPageHasACursor: assets that the registry does not allow leave gaps, and paging goes on over them.
func TestEmptyPageHasACursor(t *testing.T) {
	w := newWorld(t, newNode(t, 3), 3, 0)
	all := get[page[Asset]](w, "/v1/assets").Items
	if len(all) < 2 {
		t.Fatalf("%d stocks", len(all))
	}
	// The first of the list is not allowed any more.
	registry, err := contracts.ABI("AssetRegistry")
	if err != nil {
		t.Fatal(err)
	}
	type limits struct {
		Allowed                           bool
		Kind, Lane                        uint8
		MinAmount, MaxDealRaw, MaxOpenRaw *big.Int
	}
	number := func(s string) *big.Int { n, _ := new(big.Int).SetString(s, 10); return n }
	first := all[0]
	data, err := registry.Pack("setAsset", addressOf(first.Token), limits{
		MinAmount: number(first.MinAmount), MaxDealRaw: number(first.MaxDealRaw), MaxOpenRaw: number(first.MaxOpenRaw),
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := w.mine(w.sign(w.admin, w.dep.AssetRegistry, data, 1_000_000)); r.Status != types.ReceiptStatusSuccessful {
		t.Fatal("setAsset reverted")
	}
	w.sync()
	var seen []string
	empty := 0
	for cursor := ""; ; {
		p := get[page[Asset]](w, "/v1/assets?limit=1"+cursor)
		if len(p.Items) == 0 {
			empty++
		}
		for _, a := range p.Items {
			seen = append(seen, a.Token)
		}
		var next *string
		if err := json.Unmarshal(p.NextCursor, &next); err != nil {
			t.Fatal(err)
		}
		if next == nil {
			break
		}
		cursor = "&cursor=" + *next
	}
	if len(seen) != len(all)-1 || empty != 1 {
		t.Errorf("%d of %d assets over pages of which %d are empty", len(seen), len(all)-1, empty)
	}
	if message := w.isError("INVALID_INPUT", w.Get(t, "/v1/assets?cursor=AAAA")); !strings.Contains(message, "cursor") {
		t.Errorf("a made-up cursor: %s", message)
	}
}

func TestStaleIndex(t *testing.T) {
	w := newWorld(t, newNode(t, 4), 4, 3)
	head := w.sync()
	w.index.claims(topics.BlockRef{Number: head.Number - 2, Hash: [32]byte{1}, Timestamp: head.Timestamp})
	w.isError("STALE_INDEXER", w.Get(t, "/v1/assets"))
	w.index.claims(topics.BlockRef{Number: head.Number, Hash: head.Hash, Timestamp: head.Timestamp})
	get[page[Asset]](w, "/v1/assets")
	w.index.leaves(true)
	w.isError("UPSTREAM_UNAVAILABLE", w.Get(t, "/v1/listings"))
	w.index.leaves(false)

	w.agent.cfg.MaxLag = time.Second
	w.steps(1)
	w.head()
	w.isError("STALE_INDEXER", w.Get(t, "/v1/portfolio/"+w.actors[0].Hex()))
	w.agent.cfg.MaxLag, w.agent.cfg.MaxLagBlocks = 0, 1
	get[Portfolio](w, "/v1/portfolio/"+w.actors[0].Hex())
	w.steps(1)
	w.head()
	w.isError("STALE_INDEXER", w.Get(t, "/v1/portfolio/"+w.actors[0].Hex()))

	// The index may be ahead of the nodes, but not by any number of blocks.
	w.agent.cfg.MaxLagBlocks = 300
	head = w.sync()
	for _, ahead := range []uint64{1, 301} {
		w.index.claims(topics.BlockRef{Number: head.Number + ahead, Hash: [32]byte{1}, Timestamp: head.Timestamp})
		res := w.Get(t, "/v1/assets")
		if ahead > 300 {
			w.isError("STALE_INDEXER", res)
		} else if res.Status != 200 {
			t.Errorf("%d blocks ahead: %s", ahead, res.Body)
		}
	}
}
