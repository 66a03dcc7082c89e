package ingest_test

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// TestLies: beside an honest node stands one that lies, and the topic still equals the chain; the metrics
// name the endpoint and the lie.
func TestLies(t *testing.T) {
	turn := func() bool { return rand.IntN(2) == 0 }
	tests := []struct {
		name string
		want string // the lie, or the class of the error, that is counted
		tell rpctest.Lie
	}{
		{"drops all logs of a range", "missing_logs", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if logs, byNumber := rpctest.Logs(req, resp); byNumber && len(logs) > 0 {
				resp.Say([]any{})
			}
			return false
		}},
		{"drops all logs of a block", "missing_logs", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if logs, byNumber := rpctest.Logs(req, resp); !byNumber && len(logs) > 0 {
				resp.Say([]any{})
			}
			return false
		}},
		{"cuts ranges", "missing_logs", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if logs, byNumber := rpctest.Logs(req, resp); byNumber && len(logs) > 10 {
				resp.Say(logs[:len(logs)/3])
			}
			return false
		}},
		{"drops one log", "disagreement", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if logs, _ := rpctest.Logs(req, resp); len(logs) > 1 && turn() {
				resp.Say(logs[1:])
			}
			return false
		}},
		{"another block's hash", "block_hash", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if logs, _ := rpctest.Logs(req, resp); len(logs) > 0 && turn() {
				logs[0]["blockHash"] = logs[0]["transactionHash"]
				resp.Say(logs)
			}
			return false
		}},
		{"disorder", "order", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if logs, _ := rpctest.Logs(req, resp); len(logs) > 1 && turn() {
				logs[0], logs[1] = logs[1], logs[0]
				resp.Say(logs)
			}
			return false
		}},
		{"twice the same log", "order", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if logs, _ := rpctest.Logs(req, resp); len(logs) > 0 {
				resp.Say(append(logs[:1:1], logs...))
			}
			return false
		}},
		{"removed logs", "removed", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if logs, _ := rpctest.Logs(req, resp); len(logs) > 0 && turn() {
				logs[0]["removed"] = true
				resp.Say(logs)
			}
			return false
		}},
		{"blocks outside the range", "out_of_range", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if logs, byNumber := rpctest.Logs(req, resp); byNumber && len(logs) > 0 {
				logs[len(logs)-1]["blockNumber"] = "0xfffff"
				resp.Say(logs)
			}
			return false
		}},
		{"null logs", "null", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if logs, _ := rpctest.Logs(req, resp); len(logs) > 0 {
				resp.Result = json.RawMessage("null")
			}
			return false
		}},
		{"wrong parents", "parent", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			var h map[string]any
			if req.Method == "eth_getBlockByNumber" && json.Unmarshal(resp.Result, &h) == nil && h["number"] != nil && h["number"] != "0x0" && turn() {
				h["parentHash"] = h["hash"]
				resp.Say(h)
			}
			return false
		}},
		{"null blocks", "gone", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if req.Method == "eth_getBlockByNumber" && turn() {
				resp.Result = json.RawMessage("null")
			}
			return false
		}},
		{"another chain", "chain_id", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if req.Method == "eth_chainId" {
				resp.Say(hexutil.Uint64(1))
			}
			return false
		}},
		{"ranges are too large", "range", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			var q struct{ FromBlock, ToBlock hexutil.Uint64 }
			if req.Method == "eth_getLogs" && json.Unmarshal(req.Params[0], &q) == nil && q.ToBlock > q.FromBlock+9 {
				resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32614,"message":"eth_getLogs is limited to a 10 block range"}`)
			}
			return false
		}},
		{"too often", "rate", func(w http.ResponseWriter, _ *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
			if req.Method == "eth_chainId" || !turn() {
				return false
			}
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}},
		{"bad gateway", "failure", func(w http.ResponseWriter, _ *http.Request, _ rpctest.Message, _ *rpctest.Message) bool {
			if turn() {
				w.WriteHeader(http.StatusBadGateway)
				return true
			}
			return false
		}},
		{"stalls", "failure", func(w http.ResponseWriter, r *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
			if req.Method != "eth_getLogs" || !turn() {
				return false
			}
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return true
		}},
		{"garbage", "malformed", func(w http.ResponseWriter, _ *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
			if req.Method != "eth_getLogs" {
				return false
			}
			_, _ = io.WriteString(w, `<html>{"result":[`)
			return true
		}},
	}
	w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
	w.step(t, 60)
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := w.config()
			// Each lie has a topic of its own; the chain goes on.
			cfg.Kafka.Prefix = "lie" + string(rune('a'+i))
			topic := w.provision(t, cfg.Kafka)
			liar, honest := rpctest.NewLiar(t, w.chain.HTTP(), 0), rpctest.NewLiar(t, w.chain.HTTP(), 50*time.Millisecond) // the liar is asked first
			liar.Tells(test.tell)
			cfg.RPC.Endpoints = []rpc.Endpoint{{URL: liar.URL, Name: "liar"}, {URL: honest.URL, Name: "honest"}}
			cfg.RPC.Timeout = 3 * time.Second
			if test.name == "stalls" {
				cfg.RPC.Timeout = 300 * time.Millisecond
			}
			cfg.RangeBlocks = 25
			if test.want == "disagreement" {
				cfg.RPC.Confirm = 2
			}
			in := run(t, cfg)
			for deadline := time.Now().Add(time.Minute); ; {
				w.step(t, 4) // more than one: they are asked for as a range, or each by its hash
				checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
				if count(t, in.reg, "liar", test.want) > 0 {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("the liar was never counted for %s", test.want)
				}
			}
			if err := in.stop(); err != nil {
				t.Error(err)
			}
			for _, lie := range []string{"missing_logs", "block_hash", "order", "malformed"} {
				if n := count(t, in.reg, "honest", lie); n > 0 {
					t.Errorf("the honest node was counted %v times for %s", n, lie)
				}
			}
		})
	}
}

// TestOnlyALiar: a node that drops logs now and then is all there is. What it drops it is asked for again, and
// then tells: nobody could know of a log that it dropped twice.
func TestOnlyALiar(t *testing.T) {
	w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
	w.step(t, 60)
	cfg := w.config()
	liar := rpctest.NewLiar(t, w.chain.HTTP(), 0)
	var mu sync.Mutex
	dropped := map[any]bool{} // blocks, by hash
	liar.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		mu.Lock()
		defer mu.Unlock()
		logs, _ := rpctest.Logs(req, resp)
		again := slices.ContainsFunc(logs, func(log map[string]any) bool { return dropped[log["blockHash"]] })
		if again || len(logs) == 0 || rand.IntN(4) > 0 {
			return false
		}
		for _, log := range logs {
			dropped[log["blockHash"]] = true
		}
		resp.Say([]any{})
		return false
	})
	cfg.RPC.Endpoints = []rpc.Endpoint{{Name: "liar", URL: liar.URL}}
	in := run(t, cfg)
	for rounds := 1; rounds <= 5 || count(t, in.reg, "liar", "missing_logs") == 0; rounds++ {
		if rounds > 100 {
			t.Fatal("the liar was never caught")
		}
		w.step(t, 4)
		checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	}
}

// count reads how often an endpoint was counted for a lie or for a class of error.
func count(t *testing.T, reg *prometheus.Registry, endpoint, what string) (n float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "lienstream_ingest_rpc_lies_total" && f.GetName() != "lienstream_ingest_rpc_errors_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["endpoint"] == endpoint && (labels["lie"] == what || labels["class"] == what) {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}
