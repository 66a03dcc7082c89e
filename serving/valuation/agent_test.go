package valuation

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/agent"
	"github.com/lienstream/lienstream/serving/httpapi/apitest"
	"github.com/lienstream/lienstream/serving/indexer"
)

// TestTheAgentAsksForValuations: the Agent API over this service, on one chain. Its valuations are ours, it warns of a
// cap above them, and refuses where we do.
func TestTheAgentAsksForValuations(t *testing.T) {
	w := newWorld(t)
	ours := httptest.NewServer(w.service)
	defer ours.Close()
	service := w.agent(ours)
	ask := func(method, target, body string) (int, []byte) {
		recorder := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		service.ServeHTTP(recorder, r)
		return recorder.Code, recorder.Body.Bytes()
	}
	lane := contracts.LaneStock
	page, err := w.reader.Listings(t.Context(), query.ListingsQuery{Lane: &lane, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	valued, refused := 0, 0
	for _, d := range page.Value.Items {
		id := d.Deal.ID.Dec()
		status, body := ask(http.MethodGet, "/v1/deals/"+id+"/valuation", "")
		oursStatus, oursBody := w.ask("/deals/" + id + "/valuation")
		if oursStatus != http.StatusOK {
			refused++
			if !strings.Contains(string(body), "STALE_VALUATION") || status != http.StatusServiceUnavailable {
				t.Errorf("deal %s: we answer %d %s, the agent %d %s", id, oursStatus, oursBody, status, body)
			}
			continue
		}
		var answer struct {
			Cap       string
			Valuation json.RawMessage
		}
		if err := json.Unmarshal(body, &answer); err != nil || string(answer.Valuation) != string(oursBody) {
			t.Fatalf("deal %s: the agent answers %d %s, we %s", id, status, body, oursBody)
		}
		var value struct{ ValueUSDG string }
		if err := json.Unmarshal(oursBody, &value); err != nil {
			t.Fatal(err)
		}
		valued++
		status, body = ask(http.MethodPost, "/v1/transactions/prepare", fmt.Sprintf(
			`{"action":"placeBid","chainId":%d,"wallet":"%s","dealId":"%s","termsHash":"%s","price":"%s","expiry":%d,"spendLimit":"%[5]s"}`,
			w.dep.ChainID, d.Deal.Borrower, id, d.Deal.TermsHash, d.Deal.MinPrice.Dec(), w.at.Timestamp+1000))
		if status != http.StatusOK { // the scenario's borrowers bid on nothing of their own: a refusal is the chain's
			continue
		}
		worth, _ := new(big.Int).SetString(value.ValueUSDG, 10)
		if below := worth.Cmp(d.Deal.Cap.ToBig()) < 0; below != strings.Contains(string(body), "VALUATION_BELOW_CAP") {
			t.Errorf("deal %s is worth %s against a cap of %s: %s", id, worth, d.Deal.Cap.Dec(), body)
		}
	}
	if valued == 0 {
		t.Errorf("of %d listings of stocks none is valued, %d are refused", len(page.Value.Items), refused)
	}
	t.Logf("%d valued, %d refused", valued, refused)
}

// agent is the Agent API over the service at a URL, on the same chain.
func (w *world) agent(ours *httptest.Server) *agent.Agent {
	w.t.Helper()
	if _, err := w.client.Refresh(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	cfg := agent.DefaultConfig()
	cfg.HTTP.Listen, cfg.Deployment, cfg.BaseURL = "127.0.0.1:0", w.dep, "http://agent.example"
	cfg.Limits.Requests, cfg.Limits.Prepares = 1e6, 1e6
	cfg.MaxLag, cfg.MaxHeadAge, cfg.MaxValuation = 0, 0, 0
	service, err := agent.New(cfg, agent.Parts{
		Chain: w.client, Index: w.reader, Valuation: agent.NewValuationHTTP(ours.URL, ours.Client(), 10*time.Second),
	}, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		w.t.Fatal(err)
	}
	return service
}

// page is the URL of the indexer's page over the three services on one chain.
func (w *world) page() string {
	w.t.Helper()
	ours := httptest.NewServer(w.service)
	w.t.Cleanup(ours.Close)
	prepares := httptest.NewServer(w.agent(ours))
	w.t.Cleanup(prepares.Close)
	cfg := indexer.DefaultConfig()
	cfg.HTTP.Listen, cfg.ChainID, cfg.AgentURL, cfg.ValuationURL = "127.0.0.1:0", w.dep.ChainID, prepares.URL, ours.URL
	page, err := indexer.New(cfg, w.reader, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		w.t.Fatal(err)
	}
	server := httptest.NewServer(page)
	w.t.Cleanup(server.Close)
	return server.URL
}

// TestPageShowsValueAndTransaction: a deal's drawer has its value, and the transaction that would fund it.
func TestPageShowsValueAndTransaction(t *testing.T) {
	ctx := apitest.Browser(t)
	w := newWorld(t)
	page := w.page()
	lane := contracts.LaneStock
	listings, err := w.reader.Listings(t.Context(), query.ListingsQuery{Lane: &lane, Limit: 100})
	if err != nil || len(listings.Value.Items) == 0 {
		t.Fatal(err, "no listing of a stock")
	}
	deal := listings.Value.Items[0].Deal
	var value dealBody
	w.get("/deals/"+deal.ID.Dec()+"/valuation", &value)
	// What is shown of the chart, until somebody points at it, is the value now, and not that at the highest price.
	worth, err := strconv.ParseFloat(value.ValueUSDG, 64)
	if err != nil {
		t.Fatal(err)
	}
	shown := fmt.Sprintf(`document.querySelector(".worth .readout b")?.textContent.replaceAll(",", "") === (%.2f).toString()`, worth/1e6)
	const submit = `document.querySelector(".prepare form").requestSubmit()`
	apitest.Drive(t, ctx, "its value", chromedp.Navigate(page+"/#/deal/"+deal.ID.Dec()),
		apitest.Until(`document.querySelector(".worth .chart svg") !== null && document.querySelector(".worth").textContent.includes("is suggested")`),
		apitest.Until(`document.querySelector(".worth").textContent.includes("Cap") && document.querySelectorAll(".worth .legend").length === 2`),
		apitest.Until(shown))
	// Its own borrower may not fund it; a wallet without a dollar cannot.
	apitest.Drive(t, ctx, "a refusal", chromedp.Evaluate(`document.querySelector(".prepare input").value = "0xdead000000000000000000000000000000000001"`, nil),
		chromedp.Evaluate(submit, nil), apitest.Until(`document.querySelector('.prepare [data-code="INSUFFICIENT_BALANCE"]') !== null`))
	found := false
	for _, other := range listings.Value.Items {
		lender := other.Deal.Borrower
		if lender == deal.Borrower {
			continue
		}
		var text string
		apitest.Drive(t, ctx, "a preview", chromedp.Evaluate(`document.querySelector(".prepare .answer").replaceChildren(); document.querySelector(".prepare input").value = "`+lender.Hex()+`"`, nil),
			chromedp.Evaluate(submit, nil), apitest.Until(`document.querySelector(".prepare .answer p") !== null`),
			chromedp.Evaluate(`document.querySelector(".prepare .answer").textContent`, &text))
		if found = strings.Contains(text, "fund(uint256,bytes32)") && strings.Contains(text, "Spends"); found {
			break
		}
	}
	if !found {
		t.Error("no actor of the scenario can fund the deal")
	}
	lane = contracts.LanePosition
	if listings, err = w.reader.Listings(t.Context(), query.ListingsQuery{Lane: &lane, Limit: 100}); err != nil {
		t.Fatal(err)
	}
	position := ""
	for _, l := range listings.Value.Items {
		if status, _ := w.ask("/deals/" + l.Deal.ID.Dec() + "/valuation"); status == http.StatusOK {
			position = l.Deal.ID.Dec()
		}
	}
	if position == "" {
		t.Fatal("no listing of a position has a value")
	}
	apitest.Drive(t, ctx, "a position's range", chromedp.Navigate(page+"/#/deal/"+position),
		apitest.Until(`Number(document.querySelector(".worth .chart .band")?.getAttribute("width")) > 0`),
		apitest.Until(`document.querySelectorAll(".worth .legend").length === 2`), // the cap and the price
		chromedp.Navigate("about:blank")) // the page's stream ends
}
