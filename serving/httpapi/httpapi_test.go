package httpapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// newAPI builds an API of the routes, with its metrics and its log.
func newAPI(t testing.TB, change func(*Config), routes ...Route) (*API, *prometheus.Registry, *observer.ObservedLogs) {
	t.Helper()
	cfg := DefaultConfig("127.0.0.1:0")
	cfg.Client.MaxReads = 64 // all requests of a test are one client's
	if change != nil {
		change(&cfg)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zapcore.InfoLevel)
	reg := prometheus.NewRegistry()
	return New(cfg, Options{Service: "test", Deployment: "1", Routes: routes, Logger: zap.New(core), Registerer: reg}), reg, logs
}

func get(path string, handle Handler, query ...string) Route {
	return Route{Method: http.MethodGet, Path: path, Query: query, Handle: handle}
}

func text(body string) Handler {
	return func(_ context.Context, _ *Request, res *Response) error {
		res.Body = append(res.Body, body...)
		return nil
	}
}

func do(h http.Handler, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), method, target, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func errorOf(t *testing.T, w *httptest.ResponseRecorder) (code, message string) {
	t.Helper()
	var body struct {
		Error struct{ Code, Message string }
	}
	dec := json.NewDecoder(w.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&body); err != nil {
		t.Fatalf("body of an error: %v", err)
	}
	return body.Error.Code, body.Error.Message
}

func TestEveryErrorHasItsStatus(t *testing.T) {
	own := Code{"OUT_OF_TEA", http.StatusTeapot} // of a service
	for _, code := range []Code{
		InvalidInput, InvalidCursor, NotFound, MethodNotAllowed, BodyTooLarge, UnsupportedMediaType, RateLimited,
		Internal, UpstreamUnavailable, own,
	} {
		a, _, _ := newAPI(t, nil, get("/", func(context.Context, *Request, *Response) error {
			return &Error{Code: code, Message: "because", RetryAfter: 1500 * time.Millisecond}
		}))
		w := do(a, http.MethodGet, "/", "")
		got, message := errorOf(t, w)
		if w.Code != code.Status || got != code.Name || w.Header().Get("X-Request-Id") == "" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: status %d, code %s, headers %v", code.Name, w.Code, got, w.Header())
		}
		if retry := w.Header().Get("Retry-After"); (retry == "2") != (code.Status == 503 || code.Status == 429) {
			t.Errorf("%s: Retry-After %q", code.Name, retry)
		}
		if code != Internal && message != "because" {
			t.Errorf("%s: message %q", code.Name, message)
		}
	}
}

func TestNoDetailLeavesTheProcess(t *testing.T) {
	secret := "password=hunter2"
	a, reg, logs := newAPI(t, nil,
		get("/error", func(context.Context, *Request, *Response) error { return errors.New(secret) }),
		get("/panic", func(_ context.Context, _ *Request, res *Response) error {
			res.Body = append(res.Body, "half an answer"...)
			panic(secret)
		}),
		get("/code", func(context.Context, *Request, *Response) error { return &Error{Code: Internal, Message: secret} }))
	for _, path := range []string{"/error", "/panic", "/code"} {
		w := do(a, http.MethodGet, path, "", "X-Request-Id", "me-1")
		if w.Code != 500 || strings.Contains(w.Body.String(), secret) || strings.Contains(w.Body.String(), "half") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		if code, _ := errorOf(t, w); code != "INTERNAL" || w.Header().Get("X-Request-Id") != "me-1" {
			t.Errorf("%s: code %s, headers %v", path, code, w.Header())
		}
	}
	for _, message := range []string{"request failed", "handler panicked"} {
		found := logs.FilterMessage(message).FilterField(zap.String("request_id", "me-1"))
		if found.Len() != 1 {
			t.Errorf("%d log lines %q with the request's ID", found.Len(), message)
		}
	}
	if n := testutil.ToFloat64(a.metrics.panics); n != 1 {
		t.Errorf("%v panics counted", n)
	}
	if n, err := testutil.GatherAndCount(reg, "lienstream_httpapi_requests_total"); err != nil || n != 3 {
		t.Errorf("%d series of requests, %v", n, err)
	}
}

func TestRouting(t *testing.T) {
	a, _, _ := newAPI(t, nil, get("/deals", text("{}")), get("/deals/{id}", func(_ context.Context, req *Request, res *Response) error {
		id := req.Path("id").Uint256()
		if err := req.Err(); err != nil {
			return err
		}
		res.Body = AppendAmount(res.Body, id)
		return nil
	}), Route{Method: http.MethodPost, Path: "/deals", Handle: text("{}")})
	for _, c := range []struct {
		method, path string
		status       int
		code, allow  string
	}{
		{"GET", "/deals", 200, "", ""},
		{"HEAD", "/deals", 200, "", ""},
		{"POST", "/deals", 200, "", ""},
		{"GET", "/deals/7", 200, "", ""},
		{"GET", "/deals/", 404, "NOT_FOUND", ""},
		{"GET", "//deals", 404, "NOT_FOUND", ""},
		{"GET", "/Deals", 404, "NOT_FOUND", ""},
		{"GET", "/deals/7/bids", 404, "NOT_FOUND", ""},
		{"GET", "/deals/../deals", 404, "NOT_FOUND", ""},
		{"OPTIONS", "/nowhere", 404, "NOT_FOUND", ""},
		{"GET", "/deals/x", 400, "INVALID_INPUT", ""},
		{"DELETE", "/deals", 405, "METHOD_NOT_ALLOWED", "GET, HEAD, POST, OPTIONS"},
		{"PUT", "/deals/7", 405, "METHOD_NOT_ALLOWED", "GET, HEAD, OPTIONS"},
		{"BREW", "/deals/7", 405, "METHOD_NOT_ALLOWED", "GET, HEAD, OPTIONS"},
		{"OPTIONS", "/deals", 204, "", "GET, HEAD, POST, OPTIONS"},
	} {
		w := do(a, c.method, c.path, "")
		if w.Code != c.status || w.Header().Get("Allow") != c.allow {
			t.Errorf("%s %s: %d, Allow %q", c.method, c.path, w.Code, w.Header().Get("Allow"))
			continue
		}
		if c.code != "" {
			if code, _ := errorOf(t, w); code != c.code {
				t.Errorf("%s %s: %s", c.method, c.path, code)
			}
		}
	}
}

func TestLabelsComeFromTheRoutes(t *testing.T) {
	a, reg, _ := newAPI(t, nil, get("/deals/{id}", text("{}")))
	for _, r := range [][2]string{{"GET", "/deals/1"}, {"GET", "/deals/2"}, {"GET", "/a"}, {"GET", "/b"}, {"BREW", "/c"}, {"X", "/d"}} {
		do(a, r[0], r[1], "")
	}
	const want = `# HELP lienstream_httpapi_requests_total Responses, by route, method and status; 499: the client disconnected first.
# TYPE lienstream_httpapi_requests_total counter
lienstream_httpapi_requests_total{method="GET",route="/deals/{id}",service="test",status="200"} 2
lienstream_httpapi_requests_total{method="GET",route="unmatched",service="test",status="404"} 2
lienstream_httpapi_requests_total{method="other",route="unmatched",service="test",status="404"} 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "lienstream_httpapi_requests_total"); err != nil {
		t.Error(err)
	}
}

// TestRequestIDOfAPrivateAPI: it is logged and sent back, so it is none that could be a key.
func TestRequestIDOfAPrivateAPI(t *testing.T) {
	private := New(DefaultConfig("127.0.0.1:0"), Options{
		Service: "test", Deployment: "1", Logger: zap.NewNop(), Registerer: prometheus.NewRegistry(), Private: true,
		Routes: []Route{get("/", text("{}"))},
	})
	for given, kept := range map[string]bool{
		"6f9619ff-8b86-d011-b42d-00cf4fc964ff": true, "4BF92F3577B34DA6A3CE929D0E0E4736": true,
		"5HueCGU8rMjxEXxiPuD5BDku4MkFqeZyd4dZ1jvhTVqvbTLvyTJ": false, // WIF
		"TAiDppwQKU1iMUcbXbtiBP5RKWFwgnkq5GjQGj82Mhg":         false, // base64url of 32 bytes
		"cat-dog-sun-cup-ice-fox-gap-hub-jar-key-lab-mad":     false, // twelve words
		"6f9619ff-8b86-d011-b42d-00cf4fc964fg":                false,
		"6f9619ff8b86-d011-b42d-00cf4fc964ff0":                false,
		"--------------------------------":                    false,
		"abc-DEF_1.2":                                         false,
	} {
		got := do(private, http.MethodGet, "/", "", "X-Request-Id", given).Header().Get("X-Request-Id")
		if (got == given) != kept || !isTraceID(got) {
			t.Errorf("given %q, sent back %q", given, got)
		}
	}
}

func TestRequestID(t *testing.T) {
	a, _, _ := newAPI(t, nil, get("/", text("{}")))
	for given, kept := range map[string]bool{
		"abc-DEF_1.2": true, strings.Repeat("x", 63): true,
		"": false, strings.Repeat("a1", 32): false, "a b": false, "a\tb": false, "é": false, `a"b`: false,
	} {
		got := do(a, http.MethodGet, "/", "", "X-Request-Id", given).Header().Get("X-Request-Id")
		if (got == given) != kept || !saneRequestID(got) {
			t.Errorf("given %q, sent back %q", given, got)
		}
	}
	if w := do(a, http.MethodGet, "/", "", "X-Request-Id", "a", "X-Request-Id", "b"); len(w.Header().Get("X-Request-Id")) != 32 {
		t.Errorf("two IDs given, sent back %q", w.Header().Get("X-Request-Id"))
	}
	first, second := do(a, http.MethodGet, "/", ""), do(a, http.MethodGet, "/", "")
	if first.Header().Get("X-Request-Id") == second.Header().Get("X-Request-Id") {
		t.Error("two requests with one ID")
	}
}

func TestETagAndGzip(t *testing.T) {
	body := `{"items":"` + strings.Repeat("lienstream ", 300) + `"}`
	a, _, _ := newAPI(t, nil, get("/long", text(body)), get("/short", text("{}")))

	plain := do(a, http.MethodGet, "/long", "")
	packed := do(a, http.MethodGet, "/long", "", "Accept-Encoding", "br, gzip;q=0.5")
	if plain.Header().Get("Content-Encoding") != "" || packed.Header().Get("Content-Encoding") != "gzip" {
		t.Fatalf("encodings %q and %q", plain.Header().Get("Content-Encoding"), packed.Header().Get("Content-Encoding"))
	}
	if packed.Body.Len() >= plain.Body.Len() {
		t.Errorf("%d bytes packed of %d", packed.Body.Len(), plain.Body.Len())
	}
	zip, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	if unpacked, err := io.ReadAll(zip); err != nil || string(unpacked) != body {
		t.Fatalf("unpacked to %d bytes, %v", len(unpacked), err)
	}
	tag, packedTag := plain.Header().Get("Etag"), packed.Header().Get("Etag")
	if tag == packedTag {
		t.Errorf("one strong tag %s for two sequences of bytes", tag)
	}
	for _, w := range []*httptest.ResponseRecorder{plain, packed, do(a, http.MethodGet, "/short", "")} {
		if w.Header().Get("Vary") != "Accept-Encoding" || w.Header().Get("Etag") == "" {
			t.Errorf("headers %v", w.Header())
		}
	}

	for _, c := range []struct {
		match  string
		status int
	}{
		{tag, 304},
		{packedTag, 304},
		{"W/" + tag, 304},
		{`"other", ` + tag, 304},
		{"*", 304},
		{`"other"`, 200},
		{strings.Trim(tag, `"`), 200},
		{"", 200},
	} {
		w := do(a, http.MethodGet, "/long", "", "If-None-Match", c.match)
		if w.Code != c.status {
			t.Errorf("If-None-Match %s: %d", c.match, w.Code)
		}
		if c.status == 304 && (w.Body.Len() > 0 || w.Header().Get("Etag") != tag || w.Header().Get("Content-Type") != "" || w.Header().Get("Vary") == "") {
			t.Errorf("If-None-Match %s: %d bytes, headers %v", c.match, w.Body.Len(), w.Header())
		}
	}
	if w := do(a, http.MethodGet, "/nowhere", "", "If-None-Match", "*"); w.Code != 404 {
		t.Errorf("an error is not answered from a cache: %d", w.Code)
	}

	for accept, want := range map[string]bool{
		"": false, "gzip": true, "GZIP": true, "x-gzip": true, "*": true, "identity": false, "br": false,
		"gzip;q=0": false, "gzip; q=0.0": false, "gzip;q=0, *": false, "*;q=0": false, "gzip;q=1": true, "gzip;q=x": false, "br, *;q=0.1": true,
	} {
		if got := acceptsGzip([]string{accept}); got != want {
			t.Errorf("Accept-Encoding %q: %v", accept, got)
		}
	}
}

func TestHeadEqualsGet(t *testing.T) {
	a, _, _ := newAPI(t, nil, get("/", text(strings.Repeat("x", 5000))))
	server := httptest.NewServer(a)
	defer server.Close()
	for _, accept := range []string{"identity", "gzip"} {
		var headers []http.Header
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			r, err := http.NewRequestWithContext(t.Context(), method, server.URL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Accept-Encoding", accept)
			r.Header.Set("X-Request-Id", "same")
			resp, err := server.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			resp.Header.Del("Date")
			headers = append(headers, resp.Header)
		}
		if len(headers[0]) != len(headers[1]) {
			t.Fatalf("GET %v, HEAD %v", headers[0], headers[1])
		}
		for name := range headers[0] {
			if headers[0].Get(name) != headers[1].Get(name) {
				t.Errorf("%s: GET %q, HEAD %q", name, headers[0].Get(name), headers[1].Get(name))
			}
		}
	}
}

func TestCORSWithoutCredentials(t *testing.T) {
	a, _, _ := newAPI(t, nil, get("/", text("{}")))
	w := do(a, http.MethodOptions, "/", "", "Origin", "https://app.example", "Access-Control-Request-Method", "GET")
	h := w.Header()
	if w.Code != 204 || h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Access-Control-Allow-Methods") != "GET, HEAD, OPTIONS" ||
		h.Get("Access-Control-Allow-Headers") == "" || h.Get("Access-Control-Max-Age") == "" || w.Body.Len() > 0 {
		t.Errorf("preflight: %d %v", w.Code, h)
	}
	for _, path := range []string{"/", "/nowhere"} {
		h := do(a, http.MethodGet, path, "", "Origin", "https://app.example").Header()
		if h.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(h.Get("Access-Control-Expose-Headers"), "X-Request-Id") ||
			h.Get("Access-Control-Allow-Credentials") != "" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", path, h)
		}
	}
}

func TestBodies(t *testing.T) {
	type order struct {
		Wallet string `json:"wallet"`
		Count  int    `json:"count"`
	}
	a, _, _ := newAPI(t, nil, get("/", text("{}")), Route{Method: http.MethodPost, Path: "/", Handle: func(_ context.Context, req *Request, res *Response) error {
		var o order
		if err := req.JSON(&o); err != nil {
			return err
		}
		res.Body = AppendString(res.Body, o.Wallet)
		return nil
	}})
	long := `{"wallet":"` + strings.Repeat("a", 16<<10) + `"}`
	for _, c := range []struct {
		name, media, body string
		status            int
		code, names       string
	}{
		{"good", "application/json", `{"wallet":"w","count":1}`, 200, "", ""},
		{"good with charset", "application/json; charset=UTF-8", `{"wallet":"w"}`, 200, "", ""},
		{"no media type", "", `{}`, 415, "UNSUPPORTED_MEDIA_TYPE", "application/json"},
		{"a form", "application/x-www-form-urlencoded", `wallet=1`, 415, "UNSUPPORTED_MEDIA_TYPE", ""},
		{"another charset", "application/json; charset=latin1", `{}`, 415, "UNSUPPORTED_MEDIA_TYPE", ""},
		{"empty", "application/json", ``, 400, "INVALID_INPUT", `"body"`},
		{"cut", "application/json", `{"wallet":`, 400, "INVALID_INPUT", `"body"`},
		{"two", "application/json", `{} {}`, 400, "INVALID_INPUT", `"body"`},
		{"an array", "application/json", `[]`, 400, "INVALID_INPUT", `"body"`},
		{"unknown field", "application/json", `{"purse":1}`, 400, "INVALID_INPUT", `"purse"`},
		{"wrong type", "application/json", `{"count":"1"}`, 400, "INVALID_INPUT", `"count"`},
		{"too long", "application/json", long, 413, "BODY_TOO_LARGE", "16384"},
		{"too long after the object", "application/json", `{}` + strings.Repeat(" ", 16<<10), 413, "BODY_TOO_LARGE", "16384"},
	} {
		for _, chunked := range []bool{false, true} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(c.body))
			r.Header.Set("Content-Type", c.media)
			if chunked {
				r.ContentLength = -1
			}
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			if w.Code != c.status {
				t.Errorf("%s (chunked %v): %d %s", c.name, chunked, w.Code, w.Body)
				continue
			}
			if c.code != "" {
				if code, message := errorOf(t, w); code != c.code || !strings.Contains(message, c.names) {
					t.Errorf("%s: %s %q", c.name, code, message)
				}
			}
		}
	}
	if w := do(a, http.MethodGet, "/", long); w.Code != 413 {
		t.Errorf("GET with a long body: %d", w.Code)
	}
}

func TestTooManyAtOnceAreRefused(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	a, _, _ := newAPI(t, func(c *Config) { c.MaxInFlight = 2 }, get("/", func(context.Context, *Request, *Response) error {
		entered <- struct{}{}
		<-leave
		return nil
	}))
	done := make(chan int)
	for range 2 {
		go func() { done <- do(a, http.MethodGet, "/", "").Code }()
		<-entered
	}
	w := do(a, http.MethodGet, "/", "")
	if code, _ := errorOf(t, w); w.Code != 503 || code != "UPSTREAM_UNAVAILABLE" || w.Header().Get("Retry-After") == "" {
		t.Errorf("the third of two: %d %v", w.Code, w.Header())
	}
	if n := testutil.ToFloat64(a.metrics.refused); n != 1 {
		t.Errorf("%v refusals counted", n)
	}
	close(leave)
	for range 2 {
		if status := <-done; status != 200 {
			t.Errorf("one within the limit: %d", status)
		}
	}
	go func() { <-entered }()
	if w := do(a, http.MethodGet, "/", ""); w.Code != 200 {
		t.Errorf("after the others left: %d", w.Code)
	}
}

func TestDeadlineAndClientGone(t *testing.T) {
	wait := func(ctx context.Context, _ *Request, _ *Response) error {
		<-ctx.Done()
		return ctx.Err()
	}
	a, reg, _ := newAPI(t, func(c *Config) { c.RequestTimeout = time.Millisecond }, get("/", wait))
	if w := do(a, http.MethodGet, "/", ""); w.Code != 503 || w.Header().Get("Retry-After") != "1" {
		t.Errorf("past the deadline: %d %v", w.Code, w.Header())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
	var out bytes.Buffer
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		out.WriteString(f.String())
	}
	for _, status := range []string{`"503"`, `"499"`} {
		if !strings.Contains(out.String(), status) {
			t.Errorf("no request counted with status %s", status)
		}
	}
}

func TestConfigFaultsAreAllNamed(t *testing.T) {
	err := (&Config{Listen: "nowhere", DrainDelay: -1, CursorSecret: "short"}).Validate()
	for _, want := range []string{"listen", "read timeout", "drain-delay", "in flight", "body bytes", "cursor-secret-file"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no fault of %q in: %v", want, err)
		}
	}
}
