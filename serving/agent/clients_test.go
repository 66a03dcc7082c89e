package agent

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

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
