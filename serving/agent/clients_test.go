package agent

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/serving/httpapi/apitest"
)

// TestNothingUndescribed: whatever the description leads to is answered as it says.
func TestNothingUndescribed(t *testing.T) {
	w, _, _ := listed(t)
	apitest.Schemathesis(t, w.agent, "../..")
}

// TestClientOfMCP: the official client, in TypeScript, lists every tool and calls it.
func TestClientOfMCP(t *testing.T) {
	w, _, fund := listed(t)
	server := httptest.NewServer(w.agent)
	defer server.Close()
	given := marshal(t, map[string]any{
		"get_deal": body{"dealId": "1"}, "get_deal_valuation": body{"dealId": "1"}, "get_portfolio": body{"wallet": w.actors[0].Hex()},
		"list_listings": body{"sort": "cost", "limit": 5}, "prepare_transaction": fund,
	})
	var answers map[string]struct {
		IsError           bool
		StructuredContent struct {
			Evidence Evidence
			Error    struct{ Code string }
		}
	}
	if err := json.Unmarshal(apitest.Node(t, "../clients", nil, "tools.mjs", server.URL+mcpRoute, string(given)), &answers); err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools {
		switch answer, called := answers[tool.name]; {
		case !called:
			t.Errorf("%s is not listed", tool.name)
		case tool.name == "get_deal_valuation": // there is no valuation service in this world
			if answer.StructuredContent.Error.Code != "UPSTREAM_UNAVAILABLE" || !answer.IsError {
				t.Errorf("%s: %+v", tool.name, answer)
			}
		case answer.IsError || answer.StructuredContent.Evidence.BlockHash != w.head().Hash.Hex():
			t.Errorf("%s: %+v", tool.name, answer)
		}
	}
}

// TestRoundTrips: what an answer asks of the chain. A transaction is prepared in two round trips, and in three where the
// node cannot simulate, the first time.
func TestRoundTrips(t *testing.T) {
	w, deal, fund := listed(t)
	asked := func(ask func()) uint64 {
		t.Helper()
		before := w.nodeRequests()
		ask()
		return w.nodeRequests() - before
	}
	for action, b := range map[string]body{
		"fund": fund, "approveUsdg": {"action": "approveUsdg", "chainId": 4663, "wallet": fund["wallet"], "amount": "1"},
		"cancel": {"action": "cancel", "chainId": 4663, "wallet": w.actors[0].Hex(), "dealId": "1", "termsHash": deal.TermsHash},
		"placeBid": {
			"action": "placeBid", "chainId": 4663, "wallet": fund["wallet"], "dealId": "1", "termsHash": deal.TermsHash, "price": "900000",
			"expiry": deal.ListedAt + 1000, "spendLimit": "900000",
		},
	} {
		if n := asked(func() { w.prepared(b) }); n != 2 {
			t.Errorf("%s is prepared in %d round trips", action, n)
		}
	}
	if n := asked(func() { w.refused("SPEND_LIMIT", fund.with("maxPrice", "1")) }); n != 1 {
		t.Errorf("what is refused by what was read takes %d round trips", n)
	}
	for _, target := range []string{"/v1/capabilities", "/v1/assets", "/v1/listings", "/v1/deals/1", "/v1/portfolio/" + w.actors[0].Hex()} {
		if n := asked(func() { w.Get(t, target) }); n > 2 {
			t.Errorf("%s takes %d round trips", target, n)
		}
	}
	plain := rpctest.NewLiar(t, w.node.HTTP(), 0)
	plain.Tells(noSimulation)
	client := w.client(plain.URL)
	if _, err := client.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Client = apitest.NewClient(t, w.service(func(_ *Config, p *Parts) { p.Chain = client }), description)
	for range 2 {
		if n := asked(func() { w.prepared(fund) }); n > 3 {
			t.Errorf("without eth_simulateV1 it takes %d round trips", n)
		}
	}
}

// TestABlockIsReadOnce: what was read of a block is kept until there is another.
func TestABlockIsReadOnce(t *testing.T) {
	w, deal, _ := listed(t)
	for _, target := range []string{"/v1/capabilities", "/v1/deals/1", "/v1/portfolio/" + w.actors[0].Hex()} {
		for range 3 {
			before := w.nodeRequests()
			for range 5 {
				if res := w.Get(t, target); res.Status != 200 {
					t.Fatalf("%s: %s", target, res.Body)
				}
			}
			if n := w.nodeRequests() - before; n != 1 {
				t.Errorf("%s at one block asks the chain %d times", target, n)
			}
			if _, err := w.node.Mine(t.Context(), w.head().Timestamp+1, nil); err != nil {
				t.Fatal(err)
			}
			w.sync()
		}
	}
	w.call(w.actors[0], w.dep.DealVault, "DealVault", "cancel", big.NewInt(1), common.HexToHash(deal.TermsHash))
	if d := get[DirectDeal](w, "/v1/deals/1"); d.State != "CANCELLED" {
		t.Errorf("after another block the deal is still %s", d.State)
	}
}

// TestMetrics: what answers came to, how long simulations took, what was prepared.
func TestMetrics(t *testing.T) {
	w, _, fund := listed(t)
	w.prepared(fund)
	w.refused("SPEND_LIMIT", fund.with("maxPrice", "1"))
	for name, want := range map[string]float64{
		`lienstream_agent_answers_total{code="SPEND_LIMIT"}`:                1,
		`lienstream_agent_prepared_total{action="fund"}`:                    1,
		`lienstream_agent_simulation_seconds{method="eth_simulateV1"}`:      4, // three made the deal
		`lienstream_agent_chain_requests{route="/v1/transactions/prepare"}`: 5,
	} {
		if got := w.metric(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// metric is the value of a counter, or the count of a histogram.
func (w *world) metric(name string) float64 {
	w.t.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			if name == f.GetName()+"{"+strings.Join(labels, ",")+"}" {
				return m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

// nodeRequests is how many requests to nodes the metrics of the service's answers have.
func (w *world) nodeRequests() uint64 {
	w.t.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	var sum float64
	for _, f := range families {
		if f.GetName() == "lienstream_agent_chain_requests" {
			for _, m := range f.GetMetric() {
				sum += m.GetHistogram().GetSampleSum()
			}
		}
	}
	return uint64(sum)
}
