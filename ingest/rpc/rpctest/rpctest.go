// Package rpctest is a node that lies, for tests: a proxy before an honest one. Nothing that runs in
// production imports it.
package rpctest

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// Message is a JSON-RPC message; fields that it has not are left out.
type Message struct {
	ID     json.RawMessage   `json:"id,omitempty"`
	Method string            `json:"method,omitempty"`
	Params []json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage   `json:"result,omitempty"`
	Error  json.RawMessage   `json:"error,omitempty"`
}

// Say replaces the result.
func (m *Message) Say(v any) { m.Result, _ = json.Marshal(v) }

// Logs decodes an answer to eth_getLogs; none: it is another answer. byNumber: of a range, not of one block's hash.
func Logs(req Message, resp *Message) (logs []map[string]any, byNumber bool) {
	if req.Method != "eth_getLogs" || json.Unmarshal(resp.Result, &logs) != nil {
		return nil, false
	}
	return logs, strings.Contains(string(req.Params[0]), "fromBlock")
}

// Lie changes an answer, or answers by itself and is true. Several may be told at once.
type Lie func(w http.ResponseWriter, r *http.Request, req Message, resp *Message) (answered bool)

// Receipts decodes an answer to eth_getBlockReceipts that has logs, and says where the first is; none: it is another
// answer.
func Receipts(req Message, resp *Message) (receipts []map[string]any, first int) {
	if req.Method != "eth_getBlockReceipts" || json.Unmarshal(resp.Result, &receipts) != nil {
		return nil, 0
	}
	for i, receipt := range receipts {
		if logs, _ := receipt["logs"].([]any); len(logs) > 0 {
			return receipts, i
		}
	}
	return nil, 0
}

// Header decodes an answer to eth_getBlockByNumber, for a tag or a number; none: it is another answer.
func Header(req Message, resp *Message) (header map[string]any, tag string) {
	if req.Method != "eth_getBlockByNumber" || json.Unmarshal(resp.Result, &header) != nil || header["number"] == nil {
		return nil, ""
	}
	_ = json.Unmarshal(req.Params[0], &tag)
	return header, tag
}

// StaleHead repeats the first head for ever.
func StaleHead() Lie {
	var mu sync.Mutex
	var first json.RawMessage
	return func(_ http.ResponseWriter, _ *http.Request, req Message, resp *Message) bool {
		mu.Lock()
		defer mu.Unlock()
		if req.Method == "eth_getBlockByNumber" && strings.Contains(string(req.Params[0]), "latest") {
			if first == nil {
				first = resp.Result
			}
			resp.Result = first
		}
		return false
	}
}

// Sometimes tells the lie in the answers to a quarter of the requests, by chance: in all answers to a batch, or in none.
func Sometimes(tell Lie) Lie {
	var mu sync.Mutex
	chosen := map[*http.Request]bool{} // requests are answered side by side
	return func(w http.ResponseWriter, r *http.Request, req Message, resp *Message) bool {
		mu.Lock()
		telling, known := chosen[r]
		if !known {
			telling = rand.IntN(4) == 0
			chosen[r] = telling
		}
		mu.Unlock()
		return telling && tell(w, r, req, resp)
	}
}

// plain asks the honest node, which is in this process: compression would be a tenth of what a test costs.
var plain = &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 8}}

// Liar is a proxy before an honest node. It is honest itself until it is told a lie.
type Liar struct {
	URL    string
	honest string
	delay  time.Duration

	mu   sync.Mutex
	tell Lie
}

// NewLiar starts a liar that answers so much later than the honest node, and ends with the test.
func NewLiar(t testing.TB, honest string, delay time.Duration) *Liar {
	t.Helper()
	l := &Liar{honest: honest, delay: delay}
	s := httptest.NewServer(l)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	l.URL = s.URL
	return l
}

// Tells makes it lie like this from now on; nil: no more.
func (l *Liar) Tells(tell Lie) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell = tell
}

// ServeHTTP implements http.Handler.
func (l *Liar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, l.honest, bytes.NewReader(body))
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := plain.Do(req)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return
	}
	if l.delay > 0 {
		<-time.After(l.delay)
	}
	l.mu.Lock()
	tell := l.tell
	l.mu.Unlock()
	if tell != nil {
		answer = Told(tell, w, r, body, answer)
	}
	_, _ = w.Write(answer)
}

// Told is an honest answer to a request, or to a batch of them, with a lie in it; nil: the lie has answered by itself.
func Told(tell Lie, w http.ResponseWriter, r *http.Request, body, answer []byte) []byte {
	asked, batch := messages(body)
	answers, _ := messages(answer)
	for i := range answers {
		if i < len(asked) && tell(w, r, asked[i], &answers[i]) {
			return nil
		}
	}
	var out any = answers
	if !batch {
		out = answers[0]
	}
	told, _ := json.Marshal(out)
	return told
}

// Refusal is what a provider answers in place of an answer; the zero value: nothing.
type Refusal struct {
	Status     int // of HTTP; 0: 200
	RetryAfter string
	Body       string
}

// Provider is an honest node behind rules about what it takes at once.
type Provider struct {
	URL, WS string // by HTTP, by WebSocket

	mu       sync.Mutex
	calls    int
	denied   int // calls of refused requests
	refused  int
	repeated int
	last     string // refused
	since    int    // requests that were served since then
}

// NewProvider starts a provider that ends with the test. rule is asked about every request, a batch or one message.
func NewProvider(t testing.TB, honest string, rule func(r *http.Request, asked []Message) Refusal) *Provider {
	t.Helper()
	p := &Provider{}
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		asked, _ := messages(body)
		refusal := rule(r, asked)
		p.note(asked, refusal != Refusal{})
		if (refusal != Refusal{}) {
			if refusal.RetryAfter != "" {
				w.Header().Set("Retry-After", refusal.RetryAfter)
			}
			if refusal.Status != 0 {
				w.WriteHeader(refusal.Status)
			}
			_, _ = io.WriteString(w, refusal.Body)
			return
		}
		req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, honest, bytes.NewReader(body))
		if err != nil {
			return
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := plain.Do(req)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		_, _ = io.Copy(w, resp.Body)
	})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if websocket.IsWebSocketUpgrade(r) {
			overSocket(w, r, answer)
			return
		}
		answer.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	p.URL, p.WS = s.URL, "ws"+strings.TrimPrefix(s.URL, "http")
	return p
}

// overSocket answers by WebSocket what answer does, one message after the other. It tells of no head.
func overSocket(w http.ResponseWriter, r *http.Request, answer http.Handler) {
	var up websocket.Upgrader
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	for {
		_, body, err := conn.ReadMessage()
		if err != nil {
			return
		}
		said, again := httptest.NewRecorder(), httptest.NewRequestWithContext(r.Context(), http.MethodPost, "/", bytes.NewReader(body))
		if asked, batch := messages(body); !batch && asked[0].Method == "eth_subscribe" {
			Serve(said, again, func(Message) string { return `"0x1"` })
		} else {
			answer.ServeHTTP(said, again)
		}
		if conn.WriteMessage(websocket.TextMessage, said.Body.Bytes()) != nil {
			return
		}
	}
}

// note counts, and sees whether a refused request comes again as it was.
func (p *Provider) note(asked []Message, refused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls += len(asked)
	if !refused {
		p.since++
		return
	}
	p.refused++
	p.denied += len(asked)
	for i := range asked {
		asked[i].ID = nil
	}
	b, _ := json.Marshal(asked)
	if string(b) == p.last && p.since < again {
		p.repeated++
	}
	p.last, p.since = string(b), 0
}

// again is after how many that are served a request may come again as it was refused: sizes grow back, and a poll asks the same.
const again = 50

// Counts are the calls, each of a batch counted, those of them that were refused, the requests refused, and those that came again
// soon after, unchanged.
func (p *Provider) Counts() (calls, denied, refused, repeated int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls, p.denied, p.refused, p.repeated
}

func messages(b []byte) (all []Message, batch bool) {
	if json.Unmarshal(b, &all) == nil {
		return all, true
	}
	all = make([]Message, 1)
	_ = json.Unmarshal(b, &all[0])
	return all, false
}
