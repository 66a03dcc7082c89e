package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestAServiceOfItsOwnKind(t *testing.T) {
	const secret = "0x4c0883a69102937d6231471b5dbb6204fe512961708279f2e3e8a5d4b8e3e3e3"
	core, logs := observer.New(zapcore.InfoLevel)
	cfg := DefaultConfig("127.0.0.1:0")
	cfg.MaxBodyBytes = 8
	admitted := 0
	a := New(cfg, Options{
		Service: "test", Deployment: "1", Logger: zap.New(core), Registerer: prometheus.NewRegistry(),
		NoStore: true, Private: true,
		Retryable: func(c Code) bool { return c.Status == http.StatusTooManyRequests },
		Admit: func(_ context.Context, route *Route, h http.Header) error {
			h["X-Route"] = []string{route.Path}
			if admitted++; admitted > 3 {
				return &Error{Code: RateLimited, Message: "enough"}
			}
			return nil
		},
		Routes: []Route{get("/a/{b}", text("{}")), {Method: http.MethodPost, Path: "/p", Handle: func(context.Context, *Request, *Response) error {
			return context.Canceled
		}}},
	})
	if w := do(a, "GET", "/nowhere", ""); w.Code != http.StatusNotFound || admitted != 0 || !strings.Contains(w.Body.String(), `"retryable":false}}`) {
		t.Errorf("a path that is not there: %d %s, %d admitted", w.Code, w.Body, admitted)
	}
	if w := do(a, "GET", "/a/"+secret, ""); w.Code != http.StatusOK || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("X-Route") != "/a/{b}" {
		t.Errorf("a success: %d %v", w.Code, w.Header())
	}
	if w := do(a, "GET", "/a/1?"+secret+"="+secret, ""); w.Code != http.StatusBadRequest || strings.Contains(w.Body.String(), secret) {
		t.Errorf("a query that nobody should send: %d %s", w.Code, w.Body)
	}
	if w := do(a, "GET", "/a/1?colour=red", ""); !strings.Contains(w.Body.String(), "colour") {
		t.Errorf("the parameter is not named: %s", w.Body)
	}
	if w := do(a, "POST", "/p", "123456789"); w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), `"retryable":true}}`) {
		t.Errorf("too many come before too much: %d %s", w.Code, w.Body)
	}
	for _, entry := range logs.All() {
		for _, v := range entry.ContextMap() {
			if s, ok := v.(string); ok && strings.Contains(s, secret) {
				t.Errorf("in the log: %s %v", entry.Message, entry.ContextMap())
			}
		}
	}
}

// A service that has a least block, and nobody who says which one answers are as of, would fail with its first such request.
func TestMinBlockRequiresBlock(t *testing.T) {
	begin := func(change func(*Options)) (fault string) {
		defer func() {
			if p := recover(); p != nil {
				fault = fmt.Sprint(p)
			}
		}()
		opt := Options{Service: "test", Deployment: "1", Logger: zap.NewNop(), Registerer: prometheus.NewRegistry()}
		change(&opt)
		New(DefaultConfig("127.0.0.1:0"), opt)
		return ""
	}
	if got := begin(func(o *Options) { o.MinBlock = "minBlock" }); !strings.Contains(got, "Options.Block:") {
		t.Errorf("without Block: %q", got)
	}
	for name, change := range map[string]func(*Options){
		"both":    func(o *Options) { o.MinBlock, o.Block = "minBlock", func(context.Context) uint64 { return 1 } },
		"neither": func(*Options) {},
	} {
		if got := begin(change); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestPlainName(t *testing.T) {
	for name, want := range map[string]bool{
		"dealId": true, "private_key": true, "": false, "0xabcdef": false, "a b": false, "9lives": false,
		"legalwinnerthankyearwaveso": false, "é": false, "[a": false,
	} {
		if got := PlainName(name); got != want {
			t.Errorf("PlainName(%q) = %t", name, got)
		}
	}
}
