// Package rpctest is a node that lies, for tests: a proxy before an honest one. Nothing that runs in
// production imports it.
package rpctest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
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
	resp, err := http.DefaultClient.Do(req)
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
	asked, batch := messages(body)
	answers, _ := messages(answer)
	for i := range answers {
		if tell != nil && i < len(asked) && tell(w, r, asked[i], &answers[i]) {
			return
		}
	}
	var out any = answers
	if !batch {
		out = answers[0]
	}
	_ = json.NewEncoder(w).Encode(out)
}

func messages(b []byte) (all []Message, batch bool) {
	if json.Unmarshal(b, &all) == nil {
		return all, true
	}
	all = make([]Message, 1)
	_ = json.Unmarshal(b, &all[0])
	return all, false
}
