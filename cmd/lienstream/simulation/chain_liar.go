package simulation

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// liarHost is the second node of the chain that ingesters ask, over HTTP, in the runs that have one.
const liarHost = "liar"

// liar is a node that answers honestly until it is told a lie.
type liar struct {
	*node

	mu   sync.Mutex
	tell rpctest.Lie
}

func (l *liar) tells(tell rpctest.Lie) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell = tell
}

// ServeHTTP implements http.Handler.
func (l *liar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil || len(raw) == 0 {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	l.node.mu.Lock()
	answer := l.answerAll(raw)
	l.node.mu.Unlock()
	l.mu.Lock()
	tell := l.tell
	l.mu.Unlock()
	if tell != nil {
		if raw[0] == '[' {
			r.Header.Set(batchHeader, "true")
		}
		answer = rpctest.Told(tell, w, r, raw, answer)
	}
	if answer != nil { // else the lie has answered
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	}
}

// startLiar runs it on a host of its own, and with a witness an honest node besides.
func (s *system) startLiar(witness bool) error {
	if witness {
		l, err := s.net.listen(witnessHost + ":8545")
		if err != nil {
			return err
		}
		s.witness = &http.Server{Handler: s.chain, ReadHeaderTimeout: time.Minute}
		go func() { _ = s.witness.Serve(l) }() // until close
	}
	l, err := s.net.listen(liarHost + ":8545")
	if err != nil {
		return err
	}
	s.liar = &liar{node: s.chain}
	s.liarServer = &http.Server{Handler: s.liar, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.liarServer.Serve(l) }() // until close
	return nil
}

// rpc are the nodes of the chain. The first is asked by scheme.
func (s *system) rpc(scheme string) string {
	rpc := "--rpc=" + scheme + "://chain:8545"
	if s.liar != nil {
		rpc += ",http://" + liarHost + ":8545"
	}
	if s.witness != nil {
		rpc += ",http://" + witnessHost + ":8545"
	}
	return rpc
}

// lies are those about blocks that are not final: one of two nodes cannot be refuted about what is.
func lies() []rpctest.Lie {
	receipts := func(change func(receipt map[string]any, logs []any)) rpctest.Lie {
		return func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if all, at := rpctest.Receipts(req, resp); all != nil {
				change(all[at], all[at]["logs"].([]any))
				resp.Say(all)
			}
			return false
		}
	}
	refuses := func(status int, body string, methods string) rpctest.Lie {
		return func(w http.ResponseWriter, _ *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
			if !strings.Contains(methods, req.Method) {
				return false
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
			return true
		}
	}
	return []rpctest.Lie{
		receipts(func(receipt map[string]any, logs []any) { receipt["logs"] = logs[1:] }),
		receipts(func(receipt map[string]any, logs []any) { receipt["logs"] = append(logs, logs[0]) }),
		receipts(func(_ map[string]any, logs []any) { logs[0].(map[string]any)["logIndex"] = "0x7777" }),
		func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if all, _ := rpctest.Receipts(req, resp); all != nil {
				resp.Say([]any{})
			}
			return false
		},
		func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if h, _ := rpctest.Header(req, resp); h != nil {
				h["logsBloom"] = "0x" + strings.Repeat("0", 512)
				resp.Say(h)
			}
			return false
		},
		func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if logs, _ := rpctest.Logs(req, resp); len(logs) > 0 {
				resp.Say([]any{})
			}
			return false
		},
		refuses(http.StatusTooManyRequests, "", "eth_getBlockReceipts"),
		refuses(http.StatusOK, `{"jsonrpc":"2.0","id":null,"error":{"code":-32005,"message":"query returned more than 10 results"}}`, "eth_getLogs"),
		refuses(http.StatusBadGateway, "<html>", "eth_getBlockByNumber eth_getLogs eth_getBlockReceipts eth_call"),
		rpctest.StaleHead(),
	}
}

// withoutHistory is a lie: no range has logs.
func withoutHistory(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
	if _, ranged := rpctest.Logs(req, resp); ranged {
		resp.Say([]any{})
	}
	return false
}

// liarKinds are the faults of one chain node of two.
func liarKinds() []faultKind {
	return []faultKind{
		{"chain node lies", 4, "", func(_ context.Context, r *run, f fault) error {
			all := lies()
			n := rand.New(rand.NewPCG(f.seed, 0)).IntN(len(all))
			r.story.tell("LIE", fmt.Sprint(n))
			r.liar.tells(all[n])
			time.Sleep(f.lasts)
			r.liar.tells(nil)
			return nil
		}},
		{"chain node is away", 2, "", func(_ context.Context, r *run, f fault) error { return r.hold(liarHost, f.hosts, true, f.lasts) }},
		{"chain node is slow", 2, "", func(_ context.Context, r *run, f fault) error {
			r.net.slow(liarHost, time.Second)
			time.Sleep(f.lasts)
			r.net.slow(liarHost, 0)
			return nil
		}},
	}
}
