package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.yaml.in/yaml/v3"

	"github.com/lienstream/lienstream/serving/httpapi"
)

// The same operations as MCP tools. A tool calls the service's own HTTP API in this process, so schemas, codes,
// limits and evidence are those of the API.

const mcpRoute = "/mcp"

// tool is an operation as an MCP tool.
type tool struct {
	name, title, what string
	path              string // path template; empty: the prepare route, with the arguments as its body
	input, output     string // schema names in the OpenAPI document; for a GET, input is built from params
	params            []string
	names             []string // of the arguments, from the input's schema
}

var tools = []tool{
	{name: "get_capabilities", title: "Capabilities", what: "The contracts, supported terms, grace, pause state and settlement rules. Read it first.", path: "/v1/capabilities", output: "Capabilities"},
	{name: "list_assets", title: "Stock collateral", what: "Stocks that may be collateral. Page until nextCursor is null.", path: "/v1/assets", output: "AssetPage", params: []string{"Limit", "Cursor"}},
	{name: "list_listings", title: "Listings", what: "Open listings of stocks; the order is no recommendation. Page until nextCursor is null.", path: "/v1/listings", output: "ListingPage", params: []string{"Term", "Asset", "Sort", "Limit", "Cursor"}},
	{name: "get_deal", title: "Deal", what: "A deal read from the chain, with its termsHash, repayment arithmetic and whether it can be claimed.", path: "/v1/deals/{dealId}", output: "Deal", params: []string{"DealId"}},
	{name: "get_deal_valuation", title: "Valuation", what: "A fresh reference value of a deal's stock collateral.", path: "/v1/deals/{dealId}/valuation", output: "DealValuation", params: []string{"DealId"}},
	{name: "get_portfolio", title: "Portfolio", what: "What a wallet has in the market, with its USDG credit.", path: "/v1/portfolio/{wallet}", output: "Portfolio", params: []string{"Wallet"}},
	{name: "prepare_transaction", title: "Prepare a transaction", what: "Simulate one action and get the unsigned transaction. Nothing is signed or sent. Never pass a key.", input: "PrepareRequest", output: "Prepared"},
}

// newMCP makes the server of the tools. ask answers a request of the API, for which a call of a tool has so long.
func newMCP(ask http.Handler, within time.Duration) (http.Handler, error) {
	var described map[string]any
	if err := yaml.Unmarshal(description, &described); err != nil {
		return nil, fmt.Errorf("parse the OpenAPI document: %w", err)
	}
	schemas := newSchemas(described)
	server := mcp.NewServer(&mcp.Implementation{Name: "lienstream-agent", Title: "Lienstream Agent API", Version: "1.0.0"}, &mcp.ServerOptions{
		Instructions: skill,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}, Resources: &mcp.ResourceCapabilities{}}, // none of them changes
	})
	server.AddReceivingMiddleware(guarded)
	closed := false
	for _, t := range tools {
		input, err := schemas.input(&t)
		if err != nil {
			return nil, err
		}
		properties, _ := input["properties"].(map[string]any)
		t.names = slices.Sorted(maps.Keys(properties))
		server.AddTool(&mcp.Tool{
			Name: t.name, Title: t.title, Description: t.what, InputSchema: input, OutputSchema: schemas.output(t.output),
			Annotations: &mcp.ToolAnnotations{Title: t.title, ReadOnlyHint: true, IdempotentHint: true, DestructiveHint: &closed, OpenWorldHint: &closed},
		}, t.handler(ask, within))
	}
	for _, doc := range []struct{ uri, name, media, text string }{
		{"lienstream://agent/skill.md", "skill", "text/markdown", skill},
		{"lienstream://agent/quickstart.md", "quickstart", "text/markdown", quickstart},
		{"lienstream://agent/openapi.yaml", "openapi", "application/yaml", string(description)},
	} {
		server.AddResource(&mcp.Resource{URI: doc.uri, Name: doc.name, MIMEType: doc.media}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: doc.uri, MIMEType: doc.media, Text: doc.text}}}, nil
		})
	}
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, PropagateRequestCancellation: true, DisableLocalhostProtection: true, // there is no state that a page in a browser could steal
	}), nil
}

// handler calls the API for the tool.
func (t *tool) handler(ask http.Handler, within time.Duration) mcp.ToolHandler {
	return func(ctx context.Context, call *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		ctx, cancel := context.WithTimeout(context.WithValue(ctx, countedKey{}, true), within)
		defer cancel()
		r, err := t.request(ctx, call.Params.Arguments)
		if err != nil {
			return refused(err)
		}
		w := newRecorder()
		ask.ServeHTTP(w, r)
		if w.status != http.StatusOK {
			return failed(w.body, w.header)
		}
		return &mcp.CallToolResult{
			Content: []mcp.Content{&mcp.TextContent{Text: string(w.body)}}, StructuredContent: json.RawMessage(w.body),
		}, nil
	}
}

// errorHeaders are the headers of an API error that a tool's result, which has no headers, must repeat.
var errorHeaders = []string{"Retry-After", "RateLimit", "RateLimit-Policy", "X-Request-Id"}

// failed is a tool's result for an API error: its body, and its errorHeaders.
func failed(body []byte, from http.Header) (*mcp.CallToolResult, error) {
	fault := map[string]any{}
	if err := json.Unmarshal(body, &fault); err != nil {
		return nil, err
	}
	headers := map[string]string{}
	for _, name := range errorHeaders {
		if value := from.Get(name); value != "" {
			headers[name] = value
		}
	}
	fault["headers"] = headers
	content, err := json.Marshal(fault)
	return &mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: string(content)}}, StructuredContent: json.RawMessage(content), IsError: true,
	}, err
}

// refused is the answer of a tool that did not come to ask the API.
func refused(err error) (*mcp.CallToolResult, error) {
	known, ok := errors.AsType[*httpapi.Error](err)
	if !ok {
		return nil, err
	}
	fault := struct {
		Code      string `json:"code"`
		Message   string `json:"message"`
		Retryable bool   `json:"retryable"`
	}{known.Code.Name, known.Message, retryable(known.Code)}
	body, err := json.Marshal(map[string]any{"error": fault})
	if err != nil {
		return nil, err
	}
	return failed(body, http.Header{})
}

// request builds the API request from a tool's arguments.
func (t *tool) request(ctx context.Context, arguments json.RawMessage) (*http.Request, error) {
	if t.path == "" {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, prepareRoute, strings.NewReader(string(arguments)))
		if err == nil {
			r.Header.Set("Content-Type", "application/json")
		}
		return r, err
	}
	given := map[string]json.RawMessage{}
	if len(arguments) > 0 {
		var err error
		if given, err = readObject(arguments); err != nil {
			return nil, err
		}
	}
	path, query := t.path, url.Values{}
	for name := range given {
		if !slices.Contains(t.names, name) { // its name is not repeated: it may be a secret
			return nil, invalid("there is an argument that the tool has not: it has " + cmp.Or(strings.Join(t.names, ", "), "none"))
		}
		var text string
		if json.Unmarshal(given[name], &text) != nil {
			text = string(given[name])
		}
		if variable := "{" + name + "}"; strings.Contains(path, variable) {
			path = strings.Replace(path, variable, segment(text), 1)
		} else {
			query.Set(name, text)
		}
	}
	// A missing variable stays in the path; it is no valid ID or address, and the API reports it.
	path = strings.NewReplacer("{", "%7B", "}", "%7D").Replace(path)
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return http.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
}

// segment encodes a text as a path segment. IDs and addresses are alphanumeric; anything else becomes an
// invalid one, and cannot lead to another path.
func segment(text string) string {
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return "-"
		}
	}
	if text == "" {
		return "-"
	}
	return text
}

// countedKey marks the context of a request that was already counted by the limits.
type countedKey struct{}

// recorder records a response within the process.
type recorder struct {
	header http.Header
	status int
	body   []byte
}

func newRecorder() *recorder { return &recorder{header: http.Header{}, status: http.StatusOK} }

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) { r.status = status }

func (r *recorder) Write(b []byte) (int, error) {
	r.body = append(r.body, b...)
	return len(b), nil
}

// schemas are the OpenAPI document's schemas, for use outside of it.
type schemas struct {
	all        map[string]any
	parameters map[string]any
}

func newSchemas(document map[string]any) *schemas {
	components, _ := document["components"].(map[string]any)
	s := &schemas{}
	s.all, _ = moved(components["schemas"]).(map[string]any)
	s.parameters, _ = moved(components["parameters"]).(map[string]any)
	return s
}

// moved rewrites the references of a schema to its own definitions.
func moved(node any) any {
	switch v := node.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for key, value := range v {
			if text, ok := value.(string); ok && key == "$ref" {
				m[key] = strings.Replace(text, "#/components/schemas/", "#/$defs/", 1)
			} else if key != "discriminator" { // of OpenAPI alone
				m[key] = moved(value)
			}
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i := range v {
			l[i] = moved(v[i])
		}
		return l
	}
	return node
}

// rooted is a schema with the definitions that it reaches: a client hands all of them to its model.
func (s *schemas) rooted(schema map[string]any) map[string]any {
	reached := map[string]any{}
	s.reach(schema, reached)
	schema = maps.Clone(schema)
	schema["type"] = "object"
	if len(reached) > 0 {
		schema["$defs"] = reached
	}
	return schema
}

// reach adds the definitions that are referenced below a node.
func (s *schemas) reach(node any, into map[string]any) {
	switch v := node.(type) {
	case map[string]any:
		ref, _ := v["$ref"].(string)
		if name, ok := strings.CutPrefix(ref, "#/$defs/"); ok && into[name] == nil {
			into[name] = s.all[name]
			s.reach(into[name], into)
		}
		for _, value := range v {
			s.reach(value, into)
		}
	case []any:
		for _, value := range v {
			s.reach(value, into)
		}
	}
}

func (s *schemas) output(name string) map[string]any {
	ref := func(name string) any { return map[string]any{"$ref": "#/$defs/" + name} }
	fault := map[string]any{"allOf": []any{ref("Error"), map[string]any{
		"properties": map[string]any{"headers": map[string]any{
			"type": "object", "additionalProperties": map[string]any{"type": "string"},
			"description": "What the API says in headers: " + strings.Join(errorHeaders, ", ") + ".",
		}},
		"required": []any{"headers"},
	}}}
	return s.rooted(map[string]any{"anyOf": []any{ref(name), fault}})
}

func (s *schemas) input(t *tool) (map[string]any, error) {
	if t.input != "" {
		schema, ok := s.all[t.input].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("the OpenAPI document has no schema %s", t.input)
		}
		return s.rooted(schema), nil
	}
	properties, required := map[string]any{}, []string{}
	for _, name := range t.params {
		p, ok := s.parameters[name].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("the OpenAPI document has no parameter %s", name)
		}
		properties[p["name"].(string)] = p["schema"]
		if p["in"] == "path" {
			required = append(required, p["name"].(string))
		}
	}
	return s.rooted(map[string]any{"properties": properties, "required": required, "additionalProperties": false}), nil
}
