package ingest_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/gorilla/websocket"

	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics/polltest"
)

const (
	floodEvery = 2 * time.Millisecond
	rounds     = 4
)

// flood is a node's WebSocket that tells of a head every floodEvery, from when it is on.
type flood struct {
	url  string
	on   atomic.Bool
	told atomic.Int64
}

func newFlood(t *testing.T, w *world, head func(n int64) any) *flood {
	t.Helper()
	f := &flood{}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		ws, err := new(websocket.Upgrader).Upgrade(rw, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = ws.Close() }()
		for subscribed := false; !subscribed; {
			var req rpctest.Message
			if ws.ReadJSON(&req) != nil {
				return
			}
			resp := rpctest.Message{ID: req.ID}
			subscribed = req.Method == "eth_subscribe"
			resp.Say(fmt.Sprintf("0x%x", w.market.Deployment.ChainID))
			if ws.WriteJSON(resp) != nil {
				return
			}
		}
		every := time.NewTicker(floodEvery)
		defer every.Stop()
		for range every.C {
			if !f.on.Load() {
				continue
			}
			params, _ := json.Marshal(map[string]any{"subscription": "0x1", "result": head(f.told.Add(1))})
			if ws.WriteJSON(map[string]any{"jsonrpc": "2.0", "method": "eth_subscription", "params": json.RawMessage(params)}) != nil {
				return
			}
		}
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	f.url = "ws" + strings.TrimPrefix(server.URL, "http")
	return f
}

// TestFloodOfHeads: one of three endpoints announces heads all the time, which contradict the chain and each other,
// are below the final block, are old, or are none. That costs the others next to nothing, blocks come in as ever, also
// in a backfill, and the ingester goes on.
func TestFloodOfHeads(t *testing.T) {
	w := lyingWorld(t)
	head := func(number int64) *types.Header { // negative: from the head down
		latest, err := w.chain.Client().BlockNumber(t.Context())
		if err != nil {
			return nil
		}
		if number < 0 {
			number += int64(latest)
		}
		h, err := w.chain.Client().HeaderByNumber(t.Context(), big.NewInt(number))
		if err != nil {
			return nil
		}
		return h
	}
	contradict := func(n int64) any {
		h := head(-1)
		if h == nil {
			return nil
		}
		h.Number.Add(h.Number, big.NewInt(1+n%2))
		h.ParentHash, h.Bloom, h.ReceiptHash = common.BigToHash(big.NewInt(n)), types.Bloom{}, types.EmptyReceiptsHash
		return h
	}
	for i, test := range []struct {
		name string
		head func(n int64) any
	}{
		{"contradict", contradict},
		{"below what is final", func(int64) any { return head(3) }},
		{"true and old", func(int64) any { return head(-5) }},
		{"of another hash", func(int64) any { return map[string]string{"number": "0x50", "hash": common.Hash{1}.Hex()} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFlood(t, w, test.head)
			var calls atomic.Int64
			endpoints := []rpc.Endpoint{{URL: rpctest.NewLiar(t, w.chain.HTTP(), 0).URL, WS: f.url, Name: "liar"}}
			for n := range 2 {
				honest := rpctest.NewLiar(t, w.chain.HTTP(), 5*time.Millisecond)
				honest.Tells(func(_ http.ResponseWriter, _ *http.Request, _ rpctest.Message, _ *rpctest.Message) bool {
					calls.Add(1)
					return false
				})
				endpoints = append(endpoints, rpc.Endpoint{URL: honest.URL, WS: w.chain.WS(), Name: fmt.Sprint("honest", n)})
			}
			cfg, topic := w.lyingConfig(t, fmt.Sprint("flood", i), endpoints...)
			cfg.ShortPatience, cfg.RPC.Timeout = 300*time.Millisecond, slowness*5*time.Second
			in := run(t, cfg)
			checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			lag := func() time.Duration {
				w.step(t, 1)
				began := time.Now()
				checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
				return time.Since(began)
			}
			// In turns, so that what else the machine does delays both.
			calm, flooded, called, during := time.Duration(0), time.Duration(0), int64(0), time.Duration(0)
			for n := range int64(rounds) {
				f.on.Store(false)
				calm += lag()
				f.on.Store(true)
				before, began := calls.Load(), time.Now()
				polltest.Within(t, time.Minute, func() error {
					if told := f.told.Load(); told < 500*(n+1) {
						return fmt.Errorf("told of %d heads", told)
					}
					return nil
				})
				flooded += lag()
				called, during = called+calls.Load()-before, during+time.Since(began)
			}
			if flooded > 2*calm+rounds*time.Second {
				t.Errorf("%d blocks came in within %s, without the flood within %s", rounds, flooded, calm)
			}
			t.Logf("%d blocks came in within %s, without the flood within %s", rounds, flooded, calm)
			// Polls, votes on what is final, and some of what the flood asks for.
			if rate := float64(called) / during.Seconds(); rate > 30 {
				t.Errorf("the honest endpoints were called %.0f times a second", rate)
			} else {
				t.Logf("the honest endpoints were called %.0f times a second", rate)
			}
			select {
			case <-in.done:
				t.Fatalf("the ingester ended: %v", in.stop())
			default:
			}
			blameless(t, in, 2)
			if err := in.stop(); err != nil {
				t.Fatal(err)
			}
			cfg.Kafka.Prefix += "again" // all of history, while it is flooded
			topic = w.provision(t, cfg.Kafka)
			in = run(t, cfg)
			checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			blameless(t, in, 2)
		})
	}
}

// TestWebSocketOfAnotherChain: by WebSocket the only endpoint announces heads that do not exist, and by HTTP those of
// the chain. The chain is followed.
func TestWebSocketOfAnotherChain(t *testing.T) {
	t.Parallel()
	w := lyingWorld(t)
	f := newFlood(t, w, func(n int64) any {
		h, err := w.chain.Client().HeaderByNumber(t.Context(), nil)
		if err != nil {
			return nil
		}
		h.Number.Add(h.Number, big.NewInt(1+n%2))
		h.ParentHash = common.BigToHash(big.NewInt(n))
		return h
	})
	cfg, topic := w.lyingConfig(t, "sockets", rpc.Endpoint{URL: w.chain.HTTP(), WS: f.url, Name: "node"})
	cfg.RPC.Timeout = rpc.DefaultConfig().Timeout // the machine may be busy
	in := run(t, cfg)
	checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
	f.on.Store(true)
	polltest.Until(t, "heads are told of", func() bool { return f.told.Load() > 10 })
	for range 5 {
		w.step(t, 1)
		checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
	}
	if err := in.stop(); err != nil {
		t.Error(err)
	}
}
