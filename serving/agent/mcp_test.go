package agent

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// session is a client of the tools, over HTTP.
func (w *world) session() *mcp.ClientSession {
	w.t.Helper()
	server := httptest.NewServer(w.agent)
	w.t.Cleanup(server.Close)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	s, err := client.Connect(w.t.Context(), &mcp.StreamableClientTransport{Endpoint: server.URL + mcpRoute, DisableStandaloneSSE: true}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestSchemasOfTools: clients give them to a model, so each has the definitions that it reaches and no others.
func TestSchemasOfTools(t *testing.T) {
	w, _, _ := listed(t)
	listing, err := w.session().ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range listing.Tools {
		for what, schema := range map[string]any{"input": tool.InputSchema, "output": tool.OutputSchema} {
			text := string(marshal(t, schema))
			defs, _ := schema.(map[string]any)["$defs"].(map[string]any)
			for name := range defs {
				if !strings.Contains(text, `"#/$defs/`+name+`"`) {
					t.Errorf("the %s of %s defines %s, and does not need it", what, tool.Name, name)
				}
			}
		}
		if size := len(marshal(t, tool.InputSchema)); tool.Name == "get_capabilities" && size > 200 {
			t.Errorf("a tool without arguments has an input schema of %d bytes", size)
		}
	}
	if size := len(marshal(t, listing)); size > 64<<10 {
		t.Errorf("the list of tools has %d bytes", size)
	} else {
		t.Logf("%d bytes", size)
	}
}

// TestTools: every tool is listed, says that it only reads, and answers as its path does, by its own schema.
func TestTools(t *testing.T) {
	w, _, fund := listed(t)
	s := w.session()
	listing, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	before := w.metric(`lienstream_agent_answers_total{code="OK"}`)
	arguments := map[string]any{
		"get_capabilities": map[string]any{}, "list_assets": map[string]any{"limit": 2}, "list_listings": map[string]any{"term": 604_800, "sort": "cost"},
		"get_deal": map[string]any{"dealId": "1"}, "get_deal_valuation": map[string]any{"dealId": "1"},
		"get_portfolio": map[string]any{"wallet": w.actors[0].Hex()}, "prepare_transaction": fund,
	}
	if len(listing.Tools) != len(arguments) {
		t.Errorf("%d tools", len(listing.Tools))
	}
	for _, tool := range listing.Tools {
		if a := tool.Annotations; a == nil || !a.ReadOnlyHint || a.DestructiveHint == nil || *a.DestructiveHint {
			t.Errorf("%s does not say that it only reads", tool.Name)
		}
		res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool.Name, Arguments: arguments[tool.Name]})
		if err != nil {
			t.Fatalf("%s: %v", tool.Name, err)
		}
		if res.IsError != (tool.Name == "get_deal_valuation") { // there is no valuation service
			t.Errorf("%s: %+v", tool.Name, res.StructuredContent)
		}
		for schema, value := range map[any]any{&tool.InputSchema: arguments[tool.Name], &tool.OutputSchema: res.StructuredContent} {
			if err := validate(schema, value); err != nil {
				t.Errorf("%s: %v", tool.Name, err)
			}
		}
	}
	if n := w.metric(`lienstream_agent_answers_total{code="OK"}`) - before; n != float64(len(arguments)-1) {
		t.Errorf("%d calls that went well are counted as %v", len(arguments)-1, n)
	}
	var said DirectDeal
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "get_deal", Arguments: map[string]any{"dealId": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	remarshal(t, res.StructuredContent, &said)
	for _, tool := range listing.Tools {
		if more := maps.Clone(res.StructuredContent.(map[string]any)); tool.Name == "get_deal" {
			if more["more"] = 1; validate(&tool.OutputSchema, more) == nil {
				t.Error("the schema of a deal lets a field through that it has not")
			}
		}
	}
	want := get[DirectDeal](w, "/v1/deals/1")
	said.Evidence.ObservedAt = want.Evidence.ObservedAt
	if a, b := marshal(t, said), marshal(t, want); !bytes.Equal(a, b) {
		t.Errorf("the tool says %s, the path %s", a, b)
	}

	// Codes are in structured content.
	for _, c := range []struct {
		tool string
		args any
		code string
	}{
		{"get_deal", map[string]any{"dealId": "99"}, "DEAL_NOT_FOUND"},
		{"get_deal", map[string]any{}, "INVALID_INPUT"},
		{"get_deal", map[string]any{"dealId": "1", "privateKey": "x"}, "INVALID_INPUT"},
		{"get_deal", map[string]any{"dealId": "1", "hunter2": "x"}, "INVALID_INPUT"},
		{"get_deal", map[string]any{"dealId": "1/valuation"}, "INVALID_INPUT"},
		{"list_listings", map[string]any{"limit": 101}, "INVALID_INPUT"},
		{"get_portfolio", map[string]any{"wallet": "../deals/1"}, "INVALID_INPUT"},
		{"prepare_transaction", fund.with("maxPrice", "1"), "SPEND_LIMIT"},
		{"prepare_transaction", fund.with("mnemonic", "legal winner"), "INVALID_INPUT"},
	} {
		res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool, Arguments: c.args})
		if err != nil {
			t.Fatalf("%s %v: %v", c.tool, c.args, err)
		}
		var v struct {
			Error struct{ Code, Message string }
		}
		remarshal(t, res.StructuredContent, &v)
		if !res.IsError || v.Error.Code != c.code || strings.Contains(v.Error.Message, "hunter2") {
			t.Errorf("%s %v: %+v, want %s", c.tool, c.args, res.StructuredContent, c.code)
		}
	}
	resources, err := s.ListResources(t.Context(), nil)
	if err != nil || len(resources.Resources) != 3 {
		t.Fatal(resources, err)
	}
	for _, r := range resources.Resources {
		read, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: r.URI})
		if err != nil || len(read.Contents) != 1 || len(read.Contents[0].Text) < 1000 {
			t.Errorf("%s: %v", r.URI, err)
		}
	}
}

// TestToolsHaveTheSameLimits: a call counts once, and a preparation for its own quota too. What an error says in its
// headers, when to ask again above all, a tool says in its content.
func TestToolsHaveTheSameLimits(t *testing.T) {
	w, _, fund := listed(t)
	w.agent = w.service(func(cfg *Config, _ *Parts) { cfg.Limits = Limits{Requests: 100, Prepares: 1, Nodes: 1} })
	s := w.session()
	for i, code := range []string{"", "RATE_LIMITED"} {
		res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "prepare_transaction", Arguments: fund})
		if err != nil {
			t.Fatal(err)
		}
		var v struct {
			Error   struct{ Code string }
			Headers map[string]string
		}
		remarshal(t, res.StructuredContent, &v)
		if v.Error.Code != code {
			t.Errorf("preparation %d: %+v", i, res.StructuredContent)
		}
		if code == "" {
			continue
		}
		wait, err := strconv.Atoi(v.Headers["Retry-After"])
		if err != nil || wait < 1 || wait > 60 {
			t.Errorf("a tool at its limit says to wait for %q s", v.Headers["Retry-After"])
		}
		if v.Headers["RateLimit"] == "" || v.Headers["RateLimit-Policy"] != w.agent.policy || v.Headers["X-Request-Id"] == "" {
			t.Errorf("a tool at its limit says %v", v.Headers)
		}
	}
	w.agent = w.service(func(_ *Config, p *Parts) { p.Chain = w.client("http://127.0.0.1:1") })
	res, err := w.session().CallTool(t.Context(), &mcp.CallToolParams{Name: "get_capabilities"})
	if err != nil {
		t.Fatal(err)
	}
	var v struct{ Headers map[string]string }
	if remarshal(t, res.StructuredContent, &v); !res.IsError || v.Headers["Retry-After"] == "" {
		t.Errorf("without a node a tool says %v", v.Headers)
	}
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func remarshal(t *testing.T, from, into any) {
	t.Helper()
	if err := json.Unmarshal(marshal(t, from), into); err != nil {
		t.Fatal(err)
	}
}

// validate holds a value to a schema as a client would.
func validate(schema, value any) error {
	raw, err := json.Marshal(schema)
	if err != nil {
		return err
	}
	var parsed jsonschema.Schema
	if err := json.Unmarshal(raw, &parsed); err != nil {
		return err
	}
	resolved, err := parsed.Resolve(nil)
	if err != nil {
		return err
	}
	raw, err = json.Marshal(value)
	if err != nil {
		return err
	}
	var plain any
	if err := json.Unmarshal(raw, &plain); err != nil {
		return err
	}
	return resolved.Validate(plain)
}
