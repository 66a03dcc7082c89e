package apitest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Client asks a handler and fails the test at the first response that is not as described.
type Client struct {
	Document *Document
	handler  http.Handler
}

// NewClient returns a client of a service with this description, in YAML.
func NewClient(t testing.TB, handler http.Handler, document []byte) *Client {
	t.Helper()
	d, err := Parse(document)
	if err != nil {
		t.Fatal(err)
	}
	return &Client{Document: d, handler: handler}
}

// Response is a response that is as described.
type Response struct {
	Status int
	Header http.Header
	Body   []byte // without compression
}

// Get asks for a target such as "/listings?limit=5", with headers as name, value, name, value.
func (c *Client) Get(t testing.TB, target string, headers ...string) *Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return c.Do(t, r)
}

// Do sends any request.
func (c *Client) Do(t testing.TB, r *http.Request) *Response {
	t.Helper()
	method, path := r.Method, r.URL.Path
	recorder := httptest.NewRecorder()
	c.handler.ServeHTTP(recorder, r)
	resp := recorder.Result()
	defer func() { _ = resp.Body.Close() }()
	resp.Request = r
	body, err := c.Document.Check(method, path, resp)
	if err != nil {
		t.Fatalf("%s %s answered %d: %v\n%s", method, r.URL, resp.StatusCode, err, recorder.Body)
	}
	return &Response{Status: resp.StatusCode, Header: resp.Header, Body: body}
}

// Decode reads the body into v.
func (r *Response) Decode(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(r.Body, v); err != nil {
		t.Fatalf("body %s: %v", r.Body, err)
	}
}

// Error is the code and the message of an error.
func (r *Response) Error(t testing.TB) (code, message string) {
	t.Helper()
	var body struct {
		Error struct{ Code, Message string }
	}
	r.Decode(t, &body)
	return body.Error.Code, body.Error.Message
}
