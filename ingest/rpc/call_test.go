package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// caller is a node that is only asked what contracts say.
type caller struct {
	name  string
	says  byte                                              // each contract's word
	fault func(w http.ResponseWriter, r *http.Request) bool // answers by itself; nil: never
	asked atomic.Int64                                      // requests of calls
}

func (n *caller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var q struct {
		ID     json.RawMessage
		Method string
	}
	_ = json.Unmarshal(body, &q)
	if q.Method == "eth_chainId" {
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":"0x7"}`, q.ID)
		return
	}
	n.asked.Add(1)
	if n.fault != nil && n.fault(w, r) {
		return
	}
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":"0x%064x"}`, q.ID, n.says)
}

// callers is a client of callers in a bubble.
func callers(t *testing.T, nodes ...*caller) *Client {
	t.Helper()
	var all []http.Handler
	for _, n := range nodes {
		all = append(all, n)
	}
	return piped(t, func(cfg *Config) {
		for i, n := range nodes {
			cfg.Endpoints[i].Name = n.name
		}
	}, all...)
}

// piped is a client of nodes in a bubble. The first is asked first.
func piped(t *testing.T, set func(*Config), nodes ...http.Handler) *Client {
	t.Helper()
	cfg := DefaultConfig()
	cfg.ChainID, cfg.Addresses = 7, []common.Address{{1}}
	handlers := map[string]http.Handler{}
	for i, n := range nodes {
		name := fmt.Sprint("node", i)
		cfg.Endpoints = append(cfg.Endpoints, Endpoint{URL: "http://" + name, Name: name})
		handlers[name] = n
	}
	cfg.Dial = rpctest.Pipes(t, handlers)
	set(&cfg)
	c, err := New(cfg, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, e := range c.endpoints {
			e.http.CloseIdleConnections()
		}
	})
	return c
}

// is what a call of the client comes to: the contract's word, or -1 if it is unknown; and how long it took.
func (c *Client) said(t *testing.T) (word int, took time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	began := time.Now()
	results, err := c.Call(ctx, common.Hash{1}, []Call{{To: common.Address{1}, Bytes: 32}})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return -1, time.Since(began)
	case err != nil:
		t.Fatal(err)
	case results[0].Failed:
		return -1, time.Since(began)
	}
	return int(results[0].Data[31]), time.Since(began)
}

// Faults of a caller.
func away(_ http.ResponseWriter, r *http.Request) bool {
	<-r.Context().Done()
	return true
}

func slow(by time.Duration) func(http.ResponseWriter, *http.Request) bool {
	return func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-time.After(by):
		case <-r.Context().Done():
		}
		return false
	}
}

func answers(status int, result string, during time.Duration) func(http.ResponseWriter, *http.Request) bool {
	var began time.Time
	return func(w http.ResponseWriter, _ *http.Request) bool {
		if began.IsZero() {
			began = time.Now()
		}
		if time.Since(began) >= during {
			return false
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":2,`+result+`}`)
		return true
	}
}

// subscribed runs a client whose endpoints have a WebSocket, in a bubble, until the test ends.
func subscribed(t *testing.T, c *Client) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var g sync.WaitGroup
	g.Go(func() { _ = c.Run(ctx) })
	t.Cleanup(func() { cancel(); g.Wait() })
	if synctest.Wait(); !c.Subscribed() {
		t.Fatal("it is not subscribed")
	}
	return ctx
}

func inBubble(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// TestSilentBesideACall: of two nodes one answers, and the other does not, or late. The result is known all the same,
// and blocks wait for the silent one only once.
func TestSilentBesideACall(t *testing.T) {
	const unavailable = `"error":{"code":-32603,"message":"unavailable"}`
	for _, test := range []struct {
		name        string
		fault       func(http.ResponseWriter, *http.Request) bool
		first, next time.Duration // at most, for the first calls and for those after
		unknown     bool          // at first: an error of its own may say that it has not the state
	}{
		{"away", away, 8 * time.Second, 1100 * time.Millisecond, false},
		{"slow", slow(1500 * time.Millisecond), 4 * time.Second, 4 * time.Second, false},
		{"fails", answers(http.StatusBadGateway, unavailable, time.Hour), 8 * time.Second, 1100 * time.Millisecond, false},
		{"fails for a moment", answers(http.StatusOK, unavailable, 2*time.Second), 4 * time.Second, time.Millisecond, true},
	} {
		for first := range 2 { // who is asked first
			inBubble(t, fmt.Sprint(test.name, ", asked as number ", first), func(t *testing.T) {
				nodes := []*caller{{name: "other", says: 5, fault: test.fault}, {name: "honest", says: 5}}
				nodes[0], nodes[first] = nodes[first], nodes[0]
				c := callers(t, nodes...)
				for i := range 6 {
					word, took := c.said(t)
					most, says := test.next, 5
					if i == 0 {
						if most = test.first; test.unknown {
							says = -1
						}
					}
					if word != says || took > most {
						t.Errorf("call %d says %d after %s", i, word, took)
					}
					<-time.After(12 * time.Second)
				}
			})
		}
	}
}

// TestSilentAtTimes: a node that is silent at every other call delays them all by little more than one that always is.
func TestSilentAtTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		other := &caller{name: "other", says: 5, fault: func(w http.ResponseWriter, r *http.Request) bool { return silent.Load() && away(w, r) }}
		c := callers(t, other, &caller{name: "honest", says: 5})
		for i := range 10 {
			silent.Store(i%2 == 0)
			if word, took := c.said(t); word != 5 || i > 0 && took > 3*time.Second {
				t.Errorf("call %d says %d after %s", i, word, took)
			}
			<-time.After(12 * time.Second)
		}
	})
}

// TestLiarBesideASlowOne: a liar answers at once, and the honest node late, lacks the block for a moment, or fails at first.
// The liar is not believed.
func TestLiarBesideASlowOne(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault func(http.ResponseWriter, *http.Request) bool
	}{
		{"slow", slow(3 * time.Second)},
		{"lacks the block", answers(http.StatusOK, `"error":{"code":-32000,"message":"header not found"}`, 500*time.Millisecond)},
		{"fails", answers(http.StatusBadGateway, `"error":{"code":-32603,"message":"unavailable"}`, 2*time.Second)},
		{"is busy", answers(http.StatusTooManyRequests, `"error":{"code":429,"message":"slow down"}`, 2*time.Second)},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			c := callers(t, &caller{name: "liar", says: 6}, &caller{name: "honest", says: 5, fault: test.fault})
			if word, took := c.said(t); word == 6 {
				t.Errorf("the liar is believed after %s", took)
			}
		})
	}
}

// TestTwoLiarsBesideACall: nothing proves the result of a call, so two nodes that lie alike outvote an honest one:
// comparing endpoints cannot do more. Two that lie differently leave it unknown.
func TestTwoLiarsBesideACall(t *testing.T) {
	for second, says := range map[byte]int{6: 6, 7: -1} {
		inBubble(t, fmt.Sprint("6 and ", second), func(t *testing.T) {
			c := callers(t, &caller{name: "liar", says: 6}, &caller{name: "honest", says: 5}, &caller{name: "other liar", says: second})
			if word, _ := c.said(t); word != says {
				t.Errorf("it says %d, not %d", word, says)
			}
		})
	}
}

// TestOddErrorBesideACall: a node answers with an error in an unknown wording. A single other one is not believed, two
// are.
func TestOddErrorBesideACall(t *testing.T) {
	for have, says := range map[int]int{1: -1, 2: 5} {
		for first := range have + 1 {
			inBubble(t, fmt.Sprint("beside ", have, ", as number ", first), func(t *testing.T) {
				var nodes []*caller
				for range have {
					nodes = append(nodes, &caller{name: "says", says: 5})
				}
				odd := &caller{name: "odd", fault: answers(http.StatusOK, `"error":{"code":-32000,"message":"no such root"}`, 1000*time.Hour)}
				if word, _ := callers(t, slices.Insert(nodes, first, odd)...).said(t); word != says {
					t.Errorf("it says %d, not %d", word, says)
				}
			})
		}
	}
}

// TestPrunedBesideACall: beside a node that lacks the state of a block, two others decide; one decides only if the
// first has shown nothing new for Config.Alone.
func TestPrunedBesideACall(t *testing.T) {
	pruned := func() *caller {
		return &caller{name: "pruned", fault: answers(http.StatusOK, `"error":{"code":-32000,"message":"missing trie node 0123 (path )"}`, 1000*time.Hour)}
	}
	for _, test := range []struct {
		name  string
		have  int           // nodes that have the state
		quiet time.Duration // for so long the pruned one was
		alone time.Duration
		says  int
	}{
		{"one", 1, 0, time.Minute, -1},
		{"one, and the other is quiet", 1, 30 * time.Second, time.Minute, -1},
		{"one, and the other is quiet for long", 1, time.Minute, time.Minute, 5},
		{"one, and quiet ones count for ever", 1, time.Hour, 0, -1},
		{"two", 2, 0, time.Minute, 5},
	} {
		for first := range test.have + 1 {
			inBubble(t, fmt.Sprint(test.name, ", and pruned is number ", first), func(t *testing.T) {
				var nodes []*caller
				for range test.have {
					nodes = append(nodes, &caller{name: "has it", says: 5})
				}
				c := callers(t, slices.Insert(nodes, first, pruned())...)
				c.cfg.Alone = test.alone
				if e := c.endpoints[first]; test.quiet > 0 {
					e.mu.Lock()
					e.silentSince, e.missedAt, e.silence = time.Now(), time.Now(), test.quiet
					e.mu.Unlock()
				}
				if word, took := c.said(t); word != test.says || took > time.Second {
					t.Errorf("it says %d after %s, not %d", word, took, test.says)
				}
			})
		}
	}
}

// TestCallRefused: whatever error the only node returns for calls, the contract's result is unknown, and the block is not gone. It
// is gone if the node does not return the block either.
func TestCallRefused(t *testing.T) {
	chain := rpctest.NewSparse(7, 9, 2, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close)
	node := func(refusal string) answering {
		return func(m rpctest.Message) string {
			switch {
			case m.Method == "eth_call":
				return refused(refusal)
			case m.Method == "eth_getBlockByHash" && strings.Contains(string(m.Params[0]), chain.Hash(4).Hex()):
				return chain.Answer(rpctest.Message{Method: "eth_getBlockByNumber", Params: []json.RawMessage{json.RawMessage(`"0x4"`), m.Params[1]}})
			case m.Method == "eth_getBlockByHash":
				return "null"
			}
			return chain.Answer(m)
		}
	}
	for _, refusal := range []string{
		`{"code":-32002,"message":"request timed out"}`,
		`{"code":-32000,"message":"header not found"}`,
		`{"code":-32001,"message":"Resource not found"}`,
		`{"code":-32008,"message":"Response is too big"}`,
		`{"code":-32000,"message":"the dog ate it"}`,
	} {
		inBubble(t, refusal, func(t *testing.T) {
			c := piped(t, func(*Config) {}, node(refusal))
			calls := slices.Repeat([]Call{{To: common.Address{1}, Bytes: 32}}, 5)
			began := time.Now()
			results, err := c.Call(t.Context(), chain.Hash(4), calls)
			if took := time.Since(began); err != nil || slices.ContainsFunc(results, func(r CallResult) bool { return !r.Failed }) || took > 2*time.Second {
				t.Errorf("%v after %s: %v", results, took, err)
			}
		})
	}
	inBubble(t, "no block", func(t *testing.T) {
		c := piped(t, func(*Config) {}, node(`{"code":-32000,"message":"header not found"}`))
		if _, err := c.Call(t.Context(), common.Hash{1}, []Call{{To: common.Address{1}}}); !errors.Is(err, ErrGone) {
			t.Errorf("a block that nobody has: %v", err)
		}
	})
}

// TestCallNotServed: who does not serve eth_call is not waited for, and asked again after a while only. Beside another one it has no say.
func TestCallNotServed(t *testing.T) {
	inBubble(t, "alone", func(t *testing.T) {
		asked, serves := 0, false
		c := piped(t, func(*Config) {}, answering(func(m rpctest.Message) string {
			switch {
			case m.Method == "eth_chainId":
				return `"0x7"`
			case serves:
				return fmt.Sprintf(`"0x%064x"`, 5)
			}
			asked++
			return refused(`{"code":-32601,"message":"the method eth_call does not exist/is not available"}`)
		}))
		began := time.Now()
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if _, err := c.Call(ctx, common.Hash{1}, []Call{{To: common.Address{1}}}); !errors.Is(err, ErrNoState) {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); asked != callsRefused || took > time.Second {
			t.Errorf("it was asked %d times, and waited for %s", asked, took)
		}
		serves = true
		<-time.After(noneAgain)
		if word, _ := c.said(t); word != 5 {
			t.Errorf("it serves calls again, and says %d", word)
		}
	})
	for first := range 2 {
		inBubble(t, fmt.Sprint("beside another one, as number ", first), func(t *testing.T) {
			lacks := &caller{name: "lacks", fault: answers(http.StatusOK, `"error":{"code":-32601,"message":"method not found"}`, 1000*time.Hour)}
			c := callers(t, slices.Insert([]*caller{{name: "has", says: 5}}, first, lacks)...)
			for range 10 {
				if word, took := c.said(t); word != 5 || took > time.Second {
					t.Errorf("it says %d after %s", word, took)
				}
			}
			if asked := lacks.asked.Load(); asked > callsRefused {
				t.Errorf("it was asked %d times", asked)
			}
		})
	}
}

// TestCallTooBig: a contract whose answer the node refuses for its size or time leaves the others' words known, of the same request.
func TestCallTooBig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		big, late := common.Address{2}, map[string]bool{}
		c := piped(t, func(*Config) {}, answering(func(m rpctest.Message) string {
			switch {
			case m.Method == "eth_chainId":
				return `"0x7"`
			case strings.Contains(string(m.Params[0]), strings.ToLower(big.Hex())):
				return refused(`{"code":-32008,"message":"Response is too big"}`)
			case !late[string(m.Params[0])] && strings.Contains(string(m.Params[0]), common.Address{3}.Hex()):
				late[string(m.Params[0])] = true
				return refused(`{"code":-32002,"message":"request timed out"}`)
			}
			return fmt.Sprintf(`"0x%064x"`, 5)
		}))
		var calls []Call
		for i := range 4 {
			calls = append(calls, Call{To: common.Address{byte(i + 1)}, Bytes: 32})
		}
		results, err := c.Call(t.Context(), common.Hash{1}, calls)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			if is := calls[i].To == big; r.Failed != is || !is && r.Data[31] != 5 {
				t.Errorf("contract %d says %x, failed: %t", i+1, r.Data, r.Failed)
			}
		}
		if len(late) != 1 {
			t.Error("no call was late at first")
		}
	})
}

// answering is a node of which only the results are given.
type answering func(rpctest.Message) string

// refused is an error in place of a result.
func refused(answer string) string { return `null,"error":` + answer }

func (a answering) ServeHTTP(w http.ResponseWriter, r *http.Request) { rpctest.Serve(w, r, a) }
