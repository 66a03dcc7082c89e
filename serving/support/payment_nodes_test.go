package support

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ethereum/go-ethereum/ethclient"
)

// A payment node that fails is left for the next; one of another chain is asked for nothing.
func TestPaymentNodes(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	var strangers atomic.Int64
	node := func(chain, block int, asked *atomic.Int64, fails func() bool) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if fails() {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			if strings.Contains(string(body), "eth_chainId") {
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"result":"0x%x"}`, chain)
				return
			}
			if asked != nil {
				asked.Add(1)
			}
			var id string
			_, id, _ = strings.Cut(string(body), `"id":`)
			id, _, _ = strings.Cut(id, ",")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":"0x%x"}`, id, block)
		}))
		t.Cleanup(s.Close)
		return s
	}
	never := func() bool { return false }
	first, other, second := node(8453, 1, nil, down.Load), node(1, 2, &strangers, never), node(8453, 3, nil, never)
	client, err := DialNodes(t.Context(), []string{first.URL, other.URL, second.URL}, "eip155:8453", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		down bool
		want uint64
	}{{false, 1}, {true, 3}, {false, 3}} { // it stays where it is answered
		down.Store(c.down)
		if got, err := client.BlockNumber(t.Context()); err != nil || got != c.want {
			t.Fatalf("block %d, %v; want %d", got, err, c.want)
		}
	}
	if n := strangers.Load(); n != 0 {
		t.Errorf("a node of another chain was asked %d times", n)
	}
	second.Close()
	down.Store(true)
	if _, err := client.BlockNumber(t.Context()); err == nil || strings.Contains(err.Error(), strings.TrimPrefix(first.URL, "http://")) {
		t.Errorf("no node answers: %v", err)
	}
	if _, err := DialNodes(t.Context(), []string{"ws://secret.example"}, "eip155:8453", nil); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a wrong endpoint: %v", err)
	}
}

// Whatever a node answers but 200, as 401 or 403 to a key that was revoked, the next one is asked.
func TestAPaymentNodeThatRefuses(t *testing.T) {
	t.Parallel()
	for _, refusal := range []int{
		http.StatusNoContent, http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound,
		http.StatusTooManyRequests, http.StatusServiceUnavailable,
	} {
		var refuses atomic.Bool
		node := func(block int, fails func() bool) string {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if fails() {
					w.WriteHeader(refusal)
					return
				}
				body, _ := io.ReadAll(r.Body)
				_, id, _ := strings.Cut(string(body), `"id":`)
				id, _, _ = strings.Cut(id, ",")
				result := block
				if strings.Contains(string(body), "eth_chainId") {
					result = 8453
				}
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":"0x%x"}`, id, result)
			}))
			t.Cleanup(s.Close)
			return s.URL
		}
		client, err := DialNodes(t.Context(), []string{node(1, refuses.Load), node(2, func() bool { return false })}, "eip155:8453", nil)
		check(t, err)
		for want := uint64(1); want <= 2; want++ { // the second once the first refuses
			if got, err := client.BlockNumber(t.Context()); err != nil || got != want {
				t.Errorf("%d: block %d, %v; want %d", refusal, got, err, want)
			}
			refuses.Store(true)
		}
	}
}

// A node that says with status 200 that it answers no more is passed over, as one that says it with 429; an error of the call
// is the answer.
func TestAPaymentNodeThatAnswersNoMore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		says   string // of everything, from when it does
		next   bool   // the next node is asked
		reason string // where there is no other
	}{
		{`{"jsonrpc":"2.0","id":%s,"error":{"code":-32005,"message":"daily request count exceeded, request rate limited"}}`, true, "daily request count"},
		{`{"jsonrpc":"2.0","id":%s,"error":{"code":-32005,"message":"query returned more than 10000 results"}}`, true, "10000 results"},
		{`{"jsonrpc":"2.0","id":%s,"error":{"code":429,"message":"come back later"}}`, true, "come back later"},
		{`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"Your app has exceeded its compute units per second capacity"}}`, true, "compute units"},
		{`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"node is under too much load"}}`, true, "too much load"},
		{`<html>Back soon</html>`, true, "no endpoint"},
		{`{"message":"Forbidden"}`, true, "no endpoint"},
		{`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"header not found"}}`, false, "header not found"},
		{`{"jsonrpc":"2.0","id":%s,"error":{"code":3,"message":"execution reverted: over the rate limit"}}`, false, "over the rate limit"},
	} {
		var refuses atomic.Bool
		node := func(block int, fails func() bool) string {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var request struct {
					ID     json.RawMessage
					Method string
				}
				_ = json.NewDecoder(r.Body).Decode(&request)
				w.Header().Set("Content-Type", "application/json")
				switch {
				case fails():
					_, _ = io.WriteString(w, strings.ReplaceAll(c.says, "%s", string(request.ID)))
				case request.Method == "eth_chainId":
					fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":"0x2105"}`, request.ID)
				default:
					fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":"0x%x"}`, request.ID, block)
				}
			}))
			t.Cleanup(s.Close)
			return s.URL
		}
		first, second := node(1, refuses.Load), node(2, func() bool { return false })
		both, err := DialNodes(t.Context(), []string{first, second}, "eip155:8453", nil)
		check(t, err)
		alone, err := DialNodes(t.Context(), []string{first}, "eip155:8453", nil)
		check(t, err)
		for _, client := range []*ethclient.Client{both, alone} {
			if got, err := client.BlockNumber(t.Context()); err != nil || got != 1 {
				t.Fatalf("block %d, %v", got, err)
			}
		}
		refuses.Store(true)
		if got, err := both.BlockNumber(t.Context()); (err == nil && got == 2) != c.next {
			t.Errorf("%s: block %d, %v", c.says, got, err)
		}
		if _, err := alone.BlockNumber(t.Context()); err == nil || !strings.Contains(err.Error(), c.reason) || strings.Contains(err.Error(), first) {
			t.Errorf("%s: alone: %v", c.says, err)
		}
	}
}
