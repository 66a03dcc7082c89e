package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// vain is a node that from some time on answers some methods at once with one error.
type vain struct {
	http.Handler

	says    string // members of a message in place of the result
	status  int    // of HTTP; 0: 200
	methods string // empty: all
	began   atomic.Bool
	calls   atomic.Int64 // in vain
}

func (n *vain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	select {
	case <-time.After(time.Millisecond): // there and back
	case <-r.Context().Done():
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	n.Handler.ServeHTTP(answer, r)
	if told := rpctest.Told(n.tell, w, r, body, answer.Body.Bytes()); told != nil {
		_, _ = w.Write(told)
	}
}

func (n *vain) tell(w http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
	if !n.began.Load() || n.methods != "" && !strings.Contains(n.methods, req.Method) {
		return false
	}
	n.calls.Add(1)
	if n.status != 0 {
		w.WriteHeader(n.status)
		return true
	}
	resp.Result = nil
	_ = json.Unmarshal([]byte("{"+n.says+"}"), resp)
	return false
}

// TestNoLogsBesideTheDead: of two endpoints one does not support eth_getLogs, and the other is down. History comes in
// by receipts, and the one without logs is not asked for them again and again.
func TestNoLogsBesideTheDead(t *testing.T) {
	chain := rpctest.NewSparse(7, 2000, 100, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close)
	inBubble(t, "", func(t *testing.T) {
		without, down := &vain{Handler: chain, methods: "eth_getLogs", says: `"result":` + noMethod}, &vain{Handler: chain, status: http.StatusBadGateway}
		c := piped(t, func(*Config) {}, without, down)
		without.began.Store(true)
		down.began.Store(true)
		for from := uint64(1); from < 2000; from += 500 {
			var tries atomic.Int64
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			blocks, err := c.Blocks(Watch(ctx, func(err error) {
				if err != nil && tries.Add(1) > 1000 {
					cancel()
				}
			}), from, from+499, 2000)
			cancel()
			logs := 0
			for i := range blocks {
				logs += len(blocks[i].Logs)
			}
			if logs != 5 || tries.Load() > 60 {
				t.Errorf("%d logs of the blocks from %d on, after %d tries in vain: %v", logs, from, tries.Load(), err)
			}
		}
		if n := without.calls.Load(); n != 1 {
			t.Errorf("it was asked for logs %d times", n)
		}
		<-time.After(time.Second) // for what was called off
	})
}

// TestNobodyIsPreferred: neither of two endpoints has a block's receipts, or returns them at once. Those of the next
// block are fetched all the same, one by one if need be.
func TestNobodyIsPreferred(t *testing.T) {
	chain := rpctest.NewSparse(7, 20, 2, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close)
	for _, test := range []struct {
		name, says string
		none       bool // nor one by one
	}{
		{"do not have them", `"result":` + noMethod, true},
		{"have too many", `"error":{"code":-32008,"message":"response too large"}`, false},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			nodes := []*vain{{Handler: chain, methods: "eth_getBlockReceipts", says: test.says}, {Handler: chain, methods: "eth_getBlockReceipts", says: test.says}}
			c := piped(t, func(*Config) {}, nodes[0], nodes[1])
			all, err := c.Headers(t.Context(), 2, 20, common.Hash{})
			if err != nil {
				t.Fatal(err)
			}
			logs := func(n int) error {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				blocks, err := c.Logs(ctx, all[n-2:n-1])
				if err == nil && len(blocks[0].Logs) != 1 {
					t.Errorf("block %d has %d logs", n, len(blocks[0].Logs))
				}
				return err
			}
			for _, n := range nodes {
				n.began.Store(true)
			}
			for n := 4; n < 12; n += 2 {
				if err := logs(n); test.none != errors.Is(err, ErrNoProof) || !test.none && err != nil {
					t.Errorf("block %d: %v", n, err)
				}
			}
			nodes[0].began.Store(false)
			if err := logs(14); err != nil {
				t.Errorf("they have them by then: %v", err)
			}
			<-time.After(time.Second) // for what was called off
		})
	}
}

// TestNoMethodIsAvailable: a provider whose plan ended answers that every method is not available, with or without the
// same answer for receipts before. Alone, or beside one that is down, it is asked for a head with pauses.
func TestNoMethodIsAvailable(t *testing.T) {
	chain := rpctest.NewSparse(7, 20, 2, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close)
	for _, receipts := range []bool{false, true} {
		for _, beside := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("receipts before %t, beside one that is down %t", receipts, beside), func(t *testing.T) {
				ended, down := &vain{Handler: chain, says: `"result":` + noMethod}, &vain{Handler: chain, status: http.StatusBadGateway}
				nodes := []http.Handler{ended}
				if beside {
					nodes = append(nodes, down)
				}
				c := piped(t, func(*Config) {}, nodes...)
				heads(t, c)
				ended.began.Store(true)
				down.began.Store(true)
				if receipts {
					h := follow.Header{}
					h.Hash = chain.Hash(2)
					if err := c.endpoints[0].receipts(t.Context(), &c.filter, nil, []follow.Header{h}, nil, nil); err == nil {
						t.Fatal("it has the receipts")
					}
				}
				ended.calls.Store(0)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, err := c.Head(ctx, 0)
				if n := ended.calls.Load(); err == nil || n == 0 || n > 60 {
					t.Errorf("asked %d times for one head: %v", n, err)
				}
			})
		}
	}
}

// TestWhoRestsIsWaitedFor: a pruned node answers at once that it lacks the state, and is asked once. Archives that are
// paused for a moment are waited for, and no others.
func TestWhoRestsIsWaitedFor(t *testing.T) {
	const pruned = `"error":{"code":-32000,"message":"missing trie node 0123"}`
	good := &caller{says: 3}
	gone := &vain{Handler: good, says: `"error":{"code":-32000,"message":"header not found"}`}
	lies := &vain{Handler: good, says: `"result":7.5`}
	down := &vain{Handler: good, status: http.StatusBadGateway}
	for _, v := range []*vain{gone, lies, down} {
		v.methods = "eth_call"
		v.began.Store(true)
	}
	for _, test := range []struct {
		name   string
		others []http.Handler
		rest   time.Duration // of the others
		want   int           // -1: nobody has the state
		most   time.Duration
	}{
		{"alone", nil, 0, -1, 10 * time.Millisecond},
		{"beside two that rest for a second", []http.Handler{good, good}, time.Second, 3, 2 * time.Second},
		{"beside two that rest for long", []http.Handler{good, good}, time.Minute, -1, 10 * time.Millisecond},
		{"beside one that is down", []http.Handler{down}, 0, -1, 5 * time.Second},
		{"beside one that syncs", []http.Handler{gone}, 0, -1, time.Second},
		{"beside a liar", []http.Handler{lies}, 0, -1, time.Second},
		{"beside a liar, and one that rests for a second", []http.Handler{lies, good}, time.Second, 3, 2 * time.Second},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			first := &vain{Handler: good, methods: "eth_call", says: pruned}
			first.began.Store(true)
			c := piped(t, func(*Config) {}, append([]http.Handler{first}, test.others...)...)
			for _, e := range c.endpoints[1:] {
				e.mu.Lock()
				e.restFor(test.rest)
				e.mu.Unlock()
			}
			word, began := -1, time.Now()
			err := c.try(t.Context(), choice{}, func(ctx context.Context, e *endpoint) error {
				results, err := e.call(ctx, common.Hash{1}, []Call{{To: common.Address{1}, Bytes: 32}})
				if err == nil {
					word = int(results[0].Data[31])
				}
				return err
			})
			if took := time.Since(began); word != test.want || took > test.most || errors.Is(err, ErrNoState) != (test.want < 0) {
				t.Errorf("the word is %d after %s: %v", word, took, err)
			}
			if n := first.calls.Load(); n > 1 && len(test.others) > 0 {
				t.Errorf("it was asked %d times", n)
			}
		})
	}
}
