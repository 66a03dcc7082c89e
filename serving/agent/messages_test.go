package agent

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/serving/httpapi/apitest"
)

// message posts to the server of the tools, with headers as name, value.
func (w *world) message(text string, headers ...string) *apitest.Response {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), http.MethodPost, mcpRoute, strings.NewReader(text))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return w.Do(w.t, r)
}

const oneCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_deal","arguments":{"dealId":"1"}}}`

// TestABatchIsNotOneRequest: many calls in one body would go by the limits.
func TestABatchIsNotOneRequest(t *testing.T) {
	w, _, _ := listed(t)
	before := w.nodeRequests()
	batch := "[" + strings.Repeat(oneCall+",", 99) + oneCall + "]"
	for _, version := range []string{"", "2025-03-26", "2025-06-18"} {
		w.isError("INVALID_INPUT", w.message(batch, "Mcp-Protocol-Version", version))
	}
	if n := w.nodeRequests() - before; n != 0 {
		t.Errorf("a batch came to %d requests to the chain", n)
	}
	if res := w.message(oneCall); res.Status != http.StatusOK {
		t.Errorf("one call: %d %s", res.Status, res.Body)
	}
}

// TestAnAnswerHasTheIDOfItsMessage: an ID that would come back as another is refused, for its caller would wait for ever.
func TestAnAnswerHasTheIDOfItsMessage(t *testing.T) {
	w, _, _ := listed(t)
	for id, ok := range map[string]bool{
		`1`: true, `0`: true, `-7`: true, `"a"`: true, `""`: true, `9007199254740991`: true,
		`9007199254740993`: false, `12345678901234567890123`: false, `1.5`: false, `1e3`: false, `true`: false, `null`: false, `[1]`: false,
	} {
		res := w.message(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`)
		if !ok {
			w.isError("INVALID_INPUT", res)
			continue
		}
		var said struct{ ID json.RawMessage }
		if res.Decode(t, &said); string(said.ID) != id {
			t.Errorf("the answer to %s is of %s", id, said.ID)
		}
	}
}

// TestABrowserMaySendWhatMCPNeeds: a page of another origin may send each header that a version of the protocol asks for.
func TestABrowserMaySendWhatMCPNeeds(t *testing.T) {
	w, _, _ := listed(t)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodOptions, mcpRoute, http.NoBody)
	r.Header.Set("Origin", "https://client.example")
	r.Header.Set("Access-Control-Request-Method", http.MethodPost)
	allowed := strings.Split(w.Do(t, r).Header.Get("Access-Control-Allow-Headers"), ", ")
	headers := []string{"Content-Type", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name"}
	for _, name := range headers {
		if !slices.Contains(allowed, name) {
			t.Errorf("of %v it may not send %s", allowed, name)
		}
	}
	call := strings.Replace(oneCall, `"params":{`, `"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
		`"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}},`, 1)
	if res := w.message(call, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "get_deal"); res.Status != http.StatusOK {
		t.Errorf("with them: %d %s", res.Status, res.Body)
	}
	if res := w.message(call, "Mcp-Protocol-Version", "2026-07-28"); res.Status == http.StatusOK {
		t.Errorf("they are not needed: %s", res.Body)
	}
}

// TestMalformedMessages: whatever is sent is answered as described, at once, and goes into no text of ours.
func TestMalformedMessages(t *testing.T) {
	w, _, _ := listed(t)
	const key = "4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318"
	const mnemonic = "legal winner thank year wave sausage worth useful legal winner thank yellow"
	messages := []string{
		"", "null", "1", `"x"`, "{}", "[]", "[[]]", "{", oneCall[:40], oneCall + oneCall, oneCall + "]", "\x00", "\xff\xfe",
		`{"jsonrpc":"2.0"}`, `{"jsonrpc":"1.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":{},"method":"ping"}`, `{"jsonrpc":"2.0","id":[1],"method":"ping"}`,
		`{"jsonrpc":"2.0","id":1,"method":null}`, `{"jsonrpc":"2.0","id":1,"method":7}`, `{"jsonrpc":"2.0","id":1,"method":""}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"error":1}`,
		`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{}}`, `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///etc/passwd"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"lienstream://agent/skill.md"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"a","value":"b"}}}`,
		`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"get_deal"}}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{}}`, `{"jsonrpc":"2.0","id":1,"method":"` + key + `"}`,
		`{"jsonrpc":"2.0","id":1,"method":"` + mnemonic + `"}`, `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"` + key + `"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"no/such"}`,
	}
	for _, params := range []string{
		"null", "1", "[]", "{}", `{"name":null}`, `{"name":1}`, `{"name":""}`, `{"name":"` + key + `"}`, `{"name":"` + mnemonic + `"}`,
		`{"name":"get_deal","arguments":null}`, `{"name":"get_deal","arguments":[]}`, `{"name":"get_deal","arguments":"x"}`,
		`{"name":"get_deal","arguments":{"dealId":null}}`, `{"name":"get_deal","arguments":{"dealId":{"a":1}}}`, `{"name":"get_deal","arguments":{"dealId":"1","dealId":"2"}}`,
		`{"name":"get_deal","arguments":{"dealId":"../portfolio/` + key + `"}}`, `{"name":"get_deal","arguments":{"` + mnemonic + `":"1"}}`,
		`{"name":"prepare_transaction","arguments":null}`, `{"name":"prepare_transaction","arguments":[1]}`, `{"name":"prepare_transaction"}`,
		`{"name":"prepare_transaction","arguments":{"action":"fund","privateKey":"` + key + `"}}`, `{"name":"get_deal","arguments":{},"_meta":1}`,
		`{"name":"get_deal","arguments":{"dealId":"1"},"_meta":{"progressToken":{}}}`, `{"name":"get_deal","task":{"ttl":-1},"arguments":{"dealId":"1"}}`,
	} {
		messages = append(messages, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`)
	}
	rng := rand.New(rand.NewPCG(seed(t), 1))
	for range 300 { // and some that are nearly one
		mutated := []byte(oneCall)
		for range 1 + rng.IntN(3) {
			at := rng.IntN(len(mutated))
			switch rng.IntN(3) {
			case 0:
				mutated[at] = byte(rng.IntN(256))
			case 1:
				mutated = append(mutated[:at], mutated[at+1:]...)
			case 2:
				mutated = append(mutated[:at], append([]byte(`"{}[],:0`)[rng.IntN(8):][:1:1], mutated[at:]...)...)
			}
		}
		messages = append(messages, string(mutated))
	}
	running := runtime.NumGoroutine()
	for _, text := range messages {
		for _, version := range []string{"", "2025-06-18", "2026-07-28"} {
			began := time.Now()
			res := w.message(text, "Mcp-Protocol-Version", version)
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("%s took %s", text, took)
			}
			if res.Status == http.StatusInternalServerError || res.Status == http.StatusOK && !json.Valid(res.Body) {
				t.Errorf("%s of %q: %d %s", text, version, res.Status, res.Body)
			}
			for _, secret := range []string{key, mnemonic, "winner"} {
				if strings.Contains(string(res.Body), secret) {
					t.Errorf("%s is repeated: %s", text, res.Body)
				}
			}
		}
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > running+10; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines became %d", running, runtime.NumGoroutine())
		}
	}
	for _, entry := range w.logs.All() {
		if line := entry.Message + fmt.Sprint(entry.ContextMap()); strings.Contains(line, key) || strings.Contains(line, "winner") {
			t.Errorf("in the log: %s", line)
		}
	}
}

// TestToolOnAStalledNode: a call of a tool ends in time, with a code.
func TestToolOnAStalledNode(t *testing.T) {
	w, _, _ := listed(t)
	stalled := rpctest.NewLiar(t, w.node.HTTP(), 0)
	client := w.client(stalled.URL)
	if _, err := client.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	stalled.Tells(func(_ http.ResponseWriter, r *http.Request, _ rpctest.Message, _ *rpctest.Message) bool {
		<-r.Context().Done()
		return true
	})
	w.Client = apitest.NewClient(t, w.service(func(cfg *Config, p *Parts) {
		p.Chain, cfg.HTTP.RequestTimeout = client, 500*time.Millisecond
	}), description)
	var answer struct {
		Result struct {
			IsError           bool
			StructuredContent struct{ Error struct{ Code string } }
		}
	}
	res := w.message(oneCall)
	if res.Status != http.StatusOK {
		t.Fatalf("%d %s", res.Status, res.Body)
	}
	res.Decode(t, &answer)
	if !answer.Result.IsError || answer.Result.StructuredContent.Error.Code != "UPSTREAM_UNAVAILABLE" {
		t.Errorf("on a stalled node: %s", res.Body)
	}
}

// TestErrorsInOurWords: whatever is wrong with a message or its headers, the answer has the caller's ID and repeats nothing else.
func TestErrorsInOurWords(t *testing.T) {
	w, _, _ := listed(t)
	const key = "4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318"
	call := func(method, params string) string {
		return `{"jsonrpc":"2.0","id":"seven","method":"` + method + `","params":` + params + `}`
	}
	for _, c := range []struct {
		body    string
		status  int
		code    int64 // of JSON-RPC; 0: the body is none of it
		headers []string
	}{
		{call("tools/call", `{"name":"prepare_transaction","arguments":{"privateKey":"`+key+`"},"_meta":"x"}`), 200, -32602, nil},
		{call("tools/call", `{"name":7,"arguments":{"privateKey":"`+key+`"}}`), 200, -32602, nil},
		{call("tools/call", `{"name":"`+key+`"}`), 200, -32602, nil},
		{call("tools/call", `"`+key+`"`), 200, -32602, nil},
		{call("tools/list", `["`+key+`"]`), 200, -32602, nil},
		{call("tools/list", `{"cursor":"`+key+`"}`), 200, -32602, nil},
		{call("resources/read", `{"uri":"file:///`+key+`"}`), 200, -32602, nil},
		{call("completion/complete", `{"ref":{"type":"`+key+`"},"argument":{"name":"x","value":"`+key+`"}}`), 200, -32602, nil},
		{call("legal/winner", `{}`), 400, 0, nil},
		{call("legal/winner", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`), 404, -32601, []string{"Mcp-Protocol-Version", "2026-07-28"}},
		{strings.Replace(call("ping", `{}`), `"2.0"`, `"`+key+`"`, 1), 400, 0, nil},
		{strings.Replace(call("ping", `{}`), `"jsonrpc":"2.0",`, ``, 1), 400, 0, nil},
		{strings.Replace(call("ping", `{}`), `"seven"`, `{"`+key+`":1}`, 1), 400, 0, nil},
		{call("ping", `{}`), 415, 0, []string{"Content-Type", "text/" + key}},
		{call("ping", `{}`), 400, 0, []string{"Accept", key}},
		{call("ping", `{}`), 400, 0, []string{"Mcp-Protocol-Version", "1" + key}},
		{call("tools/list", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"`+key+`"}}`), 400, -32020, []string{"Mcp-Protocol-Version", "2026-07-28"}},
	} {
		res := w.message(c.body, c.headers...)
		if res.Status != c.status {
			t.Errorf("%s: %d %s", c.body, res.Status, res.Body)
		}
		for _, secret := range []string{key, "winner"} {
			if strings.Contains(string(res.Body), secret) {
				t.Errorf("%s is repeated: %s", c.body, res.Body)
			}
		}
		if c.code == 0 {
			continue
		}
		var answer struct {
			ID    string
			Error struct {
				Code    int64
				Message string
			}
		}
		res.Decode(t, &answer)
		if answer.ID != "seven" || answer.Error.Code != c.code || answer.Error.Message == "" {
			t.Errorf("%s: %s, want the code %d", c.body, res.Body, c.code)
		}
	}
	for _, entry := range w.logs.All() {
		if line := entry.Message + fmt.Sprint(entry.ContextMap()); strings.Contains(line, key) {
			t.Errorf("in the log: %s", line)
		}
	}
}

// TestAVersionToComeIsToldWhatThereIs: a client that is ahead learns which versions it may use.
func TestAVersionToComeIsToldWhatThereIs(t *testing.T) {
	w, _, _ := listed(t)
	const body = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2099-hunter2","io.modelcontextprotocol/clientCapabilities":{}}}}`
	res := w.message(body, "Mcp-Protocol-Version", "2099-hunter2", "Mcp-Method", "tools/list")
	var answer struct {
		Error struct {
			Code int64
			Data struct{ Supported []string }
		}
	}
	res.Decode(t, &answer)
	if answer.Error.Code != -32022 || len(answer.Error.Data.Supported) == 0 || strings.Contains(string(res.Body), "hunter2") {
		t.Errorf("%d %s", res.Status, res.Body)
	}
}
