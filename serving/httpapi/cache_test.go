package httpapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// while is an answer that is true as long as it says, and counts how often it was asked for.
func while(holds func() bool, asked *atomic.Int64, body func() string) Handler {
	return func(_ context.Context, _ *Request, res *Response) error {
		asked.Add(1)
		res.SetHeader("X-Indexed-Block", "7")
		res.Body = append(res.Body, body()...)
		res.FreshWhile = holds
		return nil
	}
}

func always() bool { return true }

// Whoever asks cannot tell an answer that was kept from one that was not.
func TestCachedResponsesAreLikeOthers(t *testing.T) {
	for _, body := range []string{"{}", `{"items":"` + strings.Repeat("lienstream ", 300) + `"}`} {
		var asked, others atomic.Int64
		text := func() string { return body }
		kept, _, _ := newAPI(t, nil, get("/{what}", while(always, &asked, text), "limit"))
		plain, _, _ := newAPI(t, func(c *Config) { c.MaxCacheBytes = 0 }, get("/{what}", while(always, &others, text), "limit"))
		tag := do(plain, http.MethodGet, "/a", "").Header().Get("Etag")
		requests := 0
		for range 3 { // the first is not kept yet
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPost} {
				for _, encoding := range []string{"", "gzip", "gzip;q=0", "br, *"} {
					for _, match := range []string{"", tag, "W/" + tag, strings.TrimSuffix(tag, `"`) + `-gzip"`, "*", `"other"`} {
						for _, target := range []string{"/a", "/a?limit=1", "/a?unknown=1"} {
							headers := []string{"X-Request-Id", "same", "Accept-Encoding", encoding, "If-None-Match", match}
							want, got := do(plain, method, target, "", headers...), do(kept, method, target, "", headers...)
							if want.Code != got.Code || !cmp.Equal(want.Header(), got.Header()) || want.Body.String() != got.Body.String() {
								t.Fatalf("%s %s %v: %d %v, want %d %v", method, target, headers, got.Code, got.Header(), want.Code, want.Header())
							}
							requests++
						}
					}
				}
			}
		}
		if asked.Load() != 2 || others.Load() < int64(requests)/3 {
			t.Errorf("the handlers were asked %d and %d times in %d requests", asked.Load(), others.Load(), requests)
		}
	}
}

// Who admits requests is asked for each, also where the answer is kept, and what it says stands in that answer alone.
func TestCachedAnswersAreAdmitted(t *testing.T) {
	var asked, admitted, answered atomic.Int64
	a := New(DefaultConfig("127.0.0.1:0"), Options{
		Service: "test", Logger: zap.NewNop(), Registerer: prometheus.NewRegistry(),
		Routes: []Route{get("/a", while(always, &asked, func() string { return "{}" }))},
		Admit: func(_ context.Context, _ *Route, h http.Header) error {
			n := admitted.Add(1)
			h["Ratelimit"] = []string{fmt.Sprint("r=", 3-n)}
			if n > 3 {
				return &Error{Code: RateLimited, RetryAfter: time.Second}
			}
			return nil
		},
		Answered: func(_ string, err error) {
			if err == nil {
				answered.Add(1)
			}
		},
	})
	for i := range int64(4) {
		res := do(a, http.MethodGet, "/a", "")
		want := http.StatusOK
		if i == 3 {
			want = http.StatusTooManyRequests
		}
		if res.Code != want || res.Header().Get("Ratelimit") != fmt.Sprint("r=", 2-i) || res.Header().Get("X-Indexed-Block") == "" && want == http.StatusOK {
			t.Errorf("request %d: %d %v", i, res.Code, res.Header())
		}
	}
	if asked.Load() != 1 || answered.Load() != 3 {
		t.Errorf("%d answers were made, %d given", asked.Load(), answered.Load())
	}
}

// An answer is repeated while it is true, and to nobody after that; what is no answer is not repeated at all.
func TestCachedNoLongerThanFresh(t *testing.T) {
	var (
		asked  atomic.Int64
		at     atomic.Int64
		broken atomic.Bool
	)
	a, _, _ := newAPI(t, nil, get("/block", func(_ context.Context, _ *Request, res *Response) error {
		asked.Add(1)
		now := at.Load()
		res.Body = fmt.Append(res.Body, now)
		res.FreshWhile = func() bool { return at.Load() == now }
		if broken.Load() {
			return &Error{Code: NotFound, Message: "gone"}
		}
		return nil
	}), get("/teapot", func(_ context.Context, _ *Request, res *Response) error {
		asked.Add(1)
		res.Status, res.FreshWhile = http.StatusTeapot, always
		return nil
	}), get("/panic", func(_ context.Context, _ *Request, res *Response) error {
		asked.Add(1)
		res.FreshWhile = always
		panic("no")
	}), get("/stream", func(_ context.Context, _ *Request, res *Response) error {
		asked.Add(1)
		res.FreshWhile, res.Stream = always, func(*Stream) {}
		return nil
	}))
	ask := func(target string, status int, body string, times int64) {
		t.Helper()
		asked.Store(0)
		for range 3 {
			if w := do(a, http.MethodGet, target, ""); w.Code != status || !strings.Contains(w.Body.String(), body) {
				t.Fatalf("%s: %d %s, want %d %s", target, w.Code, w.Body, status, body)
			}
		}
		if asked.Load() != times {
			t.Errorf("%s: the handler was asked %d times, want %d", target, asked.Load(), times)
		}
	}
	ask("/block", 200, "0", 1)
	at.Store(1)
	ask("/block", 200, "1", 1)
	at.Store(2)
	broken.Store(true)
	ask("/block", 404, "gone", 3)
	at.Store(1) // as it was: what was true then is true again
	ask("/block", 200, "1", 0)
	ask("/teapot", 418, "", 3)
	ask("/panic", 500, "", 3)
	ask("/stream", 200, "", 3)
	if w := do(a, http.MethodGet, "/block", "a body"); w.Code != 404 {
		t.Errorf("a GET with a body was answered %d", w.Code)
	}
}

// However much is asked for, and in whatever forms, no more is kept than the bound; what is asked for all the time
// stays.
func TestCacheIsBounded(t *testing.T) {
	const bound = 64 << 10
	random := rand.New(rand.NewPCG(1, 2))
	var asked atomic.Int64
	a, _, _ := newAPI(t, func(c *Config) { c.MaxCacheBytes = bound }, get("/hot", while(always, &asked, func() string { return "{}" })),
		get("/{size}", func(_ context.Context, req *Request, res *Response) error {
			res.Body = append(res.Body, make([]byte, req.Path("size").Uint256().Uint64())...)
			for i := range res.Body {
				res.Body[i] = byte(random.Uint32()) // which gzip makes longer
			}
			res.FreshWhile = always
			return nil
		}))
	held := func() (size int) {
		for _, generation := range []map[cacheKey]*cachedResponse{a.cache.now, a.cache.old} {
			for q, answer := range generation {
				size += len(q.path) + len(q.query) + len(answer.plain) + len(answer.packed)
			}
		}
		return size
	}
	do(a, http.MethodGet, "/hot", "")
	most := 0
	for range 500 {
		do(a, http.MethodGet, "/hot", "")
		size := random.IntN(2 * bound >> random.IntN(10))
		if w := do(a, http.MethodGet, fmt.Sprint("/", size), "", "Accept-Encoding", "gzip"); w.Code != 200 {
			t.Fatalf("%d bytes: %d", size, w.Code)
		}
		if most = max(most, held()); most > bound {
			t.Fatalf("%d bytes are kept, after one of %d", most, size)
		}
	}
	if most < bound/4 {
		t.Errorf("no more than %d bytes were ever kept", most)
	}
	if asked.Load() != 1 {
		t.Errorf("what is asked for all the time was forgotten %d times", asked.Load()-1)
	}
}

// Of many who ask for what is no longer true one asks the handler. One that fails, or hangs, holds up nobody for
// long.
func TestOneAsksForAll(t *testing.T) {
	const callers = 8
	var (
		asked   atomic.Int64
		at      atomic.Int64
		entered = make(chan struct{}, 2*callers)
		leave   = make(chan struct{})
	)
	a, _, _ := newAPI(t, nil, get("/", func(_ context.Context, req *Request, res *Response) error {
		asked.Add(1)
		now := at.Load()
		res.Body = fmt.Append(res.Body, now)
		res.FreshWhile = func() bool { return at.Load() == now }
		if task := req.HTTP.Header.Get("X-Task"); task != "" {
			entered <- struct{}{}
			<-leave
			if task == "fail" {
				return errors.New("no luck")
			}
		}
		return nil
	}))
	a.cache.patience = time.Hour
	var calls sync.WaitGroup
	call := func(n, status int, headers ...string) {
		for range n {
			calls.Go(func() {
				if w := do(a, http.MethodGet, "/", "", headers...); w.Code != status {
					t.Errorf("answered %d, want %d", w.Code, status)
				}
			})
		}
	}
	do(a, http.MethodGet, "/", "")

	at.Add(1)
	asked.Store(0)
	call(1, 200, "X-Task", "wait")
	<-entered
	call(callers, 200) // before or after the first is answered: they do not ask
	leave <- struct{}{}
	calls.Wait()
	if asked.Load() != 1 {
		t.Errorf("%d callers asked", asked.Load())
	}

	at.Add(1)
	asked.Store(0)
	call(1, 500, "X-Task", "fail")
	<-entered
	call(callers, 200)
	leave <- struct{}{}
	calls.Wait()
	if asked.Load() < 2 {
		t.Error("nobody asked after the first had failed")
	}

	a.cache.patience = time.Millisecond
	at.Add(1)
	call(1, 200, "X-Task", "wait")
	<-entered
	if w := do(a, http.MethodGet, "/", ""); w.Code != 200 { // although the first is still at it
		t.Errorf("behind one that hangs: %d", w.Code)
	}
	leave <- struct{}{}
	calls.Wait()
}

// Where an answer is no longer true when it is found, nobody who came before it was asked for asks again, and
// nobody who came after takes it.
func TestOneAsksForAllWhereResponsesPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at, asked int
		leave := make(chan struct{})
		a, _, _ := newAPI(t, nil, get("/", func(_ context.Context, _ *Request, res *Response) error {
			asked++
			now := at
			res.Body = fmt.Append(res.Body, now)
			res.FreshWhile = func() bool { return at == now }
			<-leave
			at++
			return nil
		}))
		var mu sync.Mutex
		answers := map[string][]string{}
		call := func(who string, n int) {
			for range n {
				go func() {
					w := do(a, http.MethodGet, "/", "")
					mu.Lock()
					defer mu.Unlock()
					answers[who] = append(answers[who], w.Body.String())
				}()
				synctest.Wait()
			}
		}
		next := func() {
			leave <- struct{}{}
			synctest.Wait()
		}
		call("before all", 1)
		next()
		call("first", 1)
		call("second", 8)
		if asked != 2 {
			t.Fatalf("%d asked at once", asked-1)
		}
		next()
		call("third", 8)
		if asked != 3 {
			t.Fatalf("%d asked at once, after the first", asked-2)
		}
		next()
		next()
		want := map[string][]string{
			"before all": {"0"}, "first": {"1"}, "second": slices.Repeat([]string{"2"}, 8), "third": slices.Repeat([]string{"3"}, 8),
		}
		if diff := cmp.Diff(want, answers); diff != "" || asked != 4 {
			t.Errorf("%d asked in all, answers (-want +got):\n%s", asked, diff)
		}
	})
}

// A request for a block beyond that of current answers delays no other request for the same resource, and its answer is not
// shared: the next answer of other clients could be as of an earlier block.
func TestNobodyWaitsForAnothersBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var block, asked uint64 = 99, 0
		leave := make(chan struct{})
		cfg := DefaultConfig("127.0.0.1:0")
		cfg.Client.MaxReads = 64
		a := New(cfg, Options{
			Service: "test", Logger: zap.NewNop(), Registerer: prometheus.NewRegistry(),
			MinBlock: "minBlock", Block: func(context.Context) uint64 { return block },
			Routes: []Route{get("/", func(_ context.Context, req *Request, res *Response) error {
				asked++
				at := block
				if least := req.Query("minBlock").Block(); least > at {
					<-leave
					at = least
				}
				res.Body, res.Block = fmt.Append(res.Body, at), at
				res.FreshWhile = func() bool { return block == at }
				return nil
			}, "minBlock")},
		})
		var mu sync.Mutex
		answers := map[string][]string{}
		call := func(target string, n int) {
			for range n {
				go func() {
					w := do(a, http.MethodGet, target, "")
					mu.Lock()
					defer mu.Unlock()
					answers[target] = append(answers[target], w.Body.String())
				}()
				synctest.Wait()
			}
		}
		const ahead = "/?minBlock=105"
		call("/", 1)
		block = 100
		call(ahead, 8)
		call("/", 2)
		call("/?minBlock=100", 2)
		want := map[string][]string{"/": {"99", "100", "100"}, "/?minBlock=100": {"100", "100"}}
		if diff := cmp.Diff(want, answers); diff != "" {
			t.Errorf("behind who waits for a block (-want +got):\n%s", diff)
		}
		for range 8 {
			select {
			case leave <- struct{}{}:
			case <-time.After(time.Hour):
			}
			synctest.Wait()
		}
		call("/", 1)
		want[ahead], want["/"] = slices.Repeat([]string{"105"}, 8), append(want["/"], "100")
		if diff := cmp.Diff(want, answers); diff != "" || asked != 10 {
			t.Errorf("%d asked in all, answers (-want +got):\n%s", asked, diff)
		}
	})
}

// What answers one request answers no other.
func TestCacheTellsRequestsApart(t *testing.T) {
	a, _, _ := newAPI(t, nil, get("/{x}", func(_ context.Context, req *Request, res *Response) error {
		res.Body = AppendString(res.Body, req.HTTP.URL.Path+" "+req.Query("a").text+" "+req.Query("b").text)
		res.FreshWhile = always
		return nil
	}, "a", "b"))
	want := map[string]string{
		"/x": `"/x  "`, "/y": `"/y  "`, "/x?a=1": `"/x 1 "`, "/x?b=1": `"/x  1"`, "/x?a=1&b=2": `"/x 1 2"`, "/x?b=2&a=1": `"/x 1 2"`,
		"/x?a=%31": `"/x 1 "`, "/%78": `"/x  "`, "/x?": `"/x  "`,
	}
	for range 2 {
		for target := range maps.Keys(want) {
			w := httptest.NewRecorder()
			a.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody))
			if w.Body.String() != want[target] {
				t.Errorf("%s: %s, want %s", target, w.Body, want[target])
			}
		}
	}
}

// However a request is spelt, it is the same: nobody makes the handler work by adding to the query.
func TestCacheKnowsEverySpelling(t *testing.T) {
	var asked atomic.Int64
	a, _, _ := newAPI(t, nil, get("/stats", while(always, &asked, func() string { return "{}" }), "from", "to"))
	for _, spellings := range [][]string{
		{"/stats", "/stats?", "/stats?&", "/stats?&&", "/%73tats"},
		{"/stats?from=a+b&to=", "/stats?to=&from=a%20b", "/stats?&&from=a%20b&to", "/stats?%66rom=%61+b&&to="},
	} {
		asked.Store(0)
		for _, target := range spellings {
			if w := do(a, http.MethodGet, target, ""); w.Code != http.StatusOK {
				t.Errorf("%s: %d %s", target, w.Code, w.Body)
			}
		}
		if asked.Load() != 1 {
			t.Errorf("%v: the handler was asked %d times", spellings, asked.Load())
		}
	}
}
