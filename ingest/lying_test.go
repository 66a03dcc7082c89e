package ingest_test

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
)

// message is a JSON-RPC message; fields that it has not are left out.
type message struct {
	ID     json.RawMessage   `json:"id,omitempty"`
	Method string            `json:"method,omitempty"`
	Params []json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage   `json:"result,omitempty"`
	Error  json.RawMessage   `json:"error,omitempty"`
}

// liar is a proxy before an honest node. tell may change an answer, or answer by itself and be true.
type liar struct {
	tell  func(w http.ResponseWriter, req message, resp *message) (answered bool)
	delay time.Duration
	mu    sync.Mutex
}

func startLiar(t *testing.T, honest string, delay time.Duration, tell func(http.ResponseWriter, message, *message) bool) string {
	t.Helper()
	l := &liar{tell: tell, delay: delay}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { l.serve(w, r, honest) }))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}

func (l *liar) serve(w http.ResponseWriter, r *http.Request, honest string) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, honest, bytes.NewReader(body))
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	answer, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()

	<-time.After(l.delay)
	asked, batch := messages(body)
	answers, _ := messages(answer)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range answers {
		if i < len(asked) && l.tell(w, asked[i], &answers[i]) {
			return
		}
	}
	var out any = answers
	if !batch {
		out = answers[0]
	}
	_ = json.NewEncoder(w).Encode(out)
}

func messages(b []byte) (all []message, batch bool) {
	if json.Unmarshal(b, &all) == nil {
		return all, true
	}
	all = make([]message, 1)
	_ = json.Unmarshal(b, &all[0])
	return all, false
}

// logsOf decodes the result of eth_getLogs.
func logsOf(req message, resp *message) (logs []map[string]any, byNumber bool) {
	if req.Method != "eth_getLogs" || json.Unmarshal(resp.Result, &logs) != nil {
		return nil, false
	}
	return logs, strings.Contains(string(req.Params[0]), "fromBlock")
}

func result(resp *message, v any) { resp.Result, _ = json.Marshal(v) }

func honestly(http.ResponseWriter, message, *message) bool { return false }

// TestLies: beside an honest node stands one that lies, and the topic still equals the chain; the metrics
// name the endpoint and the lie.
func TestLies(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	turn := func() bool { return random.IntN(2) == 0 } // called under the liar's lock
	tests := []struct {
		name string
		want string // the lie, or the class of the error, that is counted
		tell func(w http.ResponseWriter, req message, resp *message) bool
	}{
		{"drops all logs of a range", "missing_logs", func(_ http.ResponseWriter, req message, resp *message) bool {
			if logs, byNumber := logsOf(req, resp); byNumber && len(logs) > 0 {
				result(resp, []any{})
			}
			return false
		}},
		{"drops all logs of a block", "missing_logs", func(_ http.ResponseWriter, req message, resp *message) bool {
			if logs, byNumber := logsOf(req, resp); !byNumber && len(logs) > 0 {
				result(resp, []any{})
			}
			return false
		}},
		{"cuts ranges", "missing_logs", func(_ http.ResponseWriter, req message, resp *message) bool {
			if logs, byNumber := logsOf(req, resp); byNumber && len(logs) > 10 {
				result(resp, logs[:len(logs)/3])
			}
			return false
		}},
		{"drops one log", "disagreement", func(_ http.ResponseWriter, req message, resp *message) bool {
			if logs, _ := logsOf(req, resp); len(logs) > 1 && turn() {
				result(resp, logs[1:])
			}
			return false
		}},
		{"another block's hash", "block_hash", func(_ http.ResponseWriter, req message, resp *message) bool {
			if logs, _ := logsOf(req, resp); len(logs) > 0 && turn() {
				logs[0]["blockHash"] = logs[0]["transactionHash"]
				result(resp, logs)
			}
			return false
		}},
		{"disorder", "order", func(_ http.ResponseWriter, req message, resp *message) bool {
			if logs, _ := logsOf(req, resp); len(logs) > 1 && turn() {
				logs[0], logs[1] = logs[1], logs[0]
				result(resp, logs)
			}
			return false
		}},
		{"twice the same log", "order", func(_ http.ResponseWriter, req message, resp *message) bool {
			if logs, _ := logsOf(req, resp); len(logs) > 0 {
				result(resp, append(logs[:1:1], logs...))
			}
			return false
		}},
		{"removed logs", "removed", func(_ http.ResponseWriter, req message, resp *message) bool {
			if logs, _ := logsOf(req, resp); len(logs) > 0 && turn() {
				logs[0]["removed"] = true
				result(resp, logs)
			}
			return false
		}},
		{"blocks outside the range", "out_of_range", func(_ http.ResponseWriter, req message, resp *message) bool {
			if logs, byNumber := logsOf(req, resp); byNumber && len(logs) > 0 {
				logs[len(logs)-1]["blockNumber"] = "0xfffff"
				result(resp, logs)
			}
			return false
		}},
		{"null logs", "null", func(_ http.ResponseWriter, req message, resp *message) bool {
			if logs, _ := logsOf(req, resp); len(logs) > 0 {
				resp.Result = json.RawMessage("null")
			}
			return false
		}},
		{"wrong parents", "parent", func(_ http.ResponseWriter, req message, resp *message) bool {
			var h map[string]any
			if req.Method == "eth_getBlockByNumber" && json.Unmarshal(resp.Result, &h) == nil && h["number"] != nil && h["number"] != "0x0" && turn() {
				h["parentHash"] = h["hash"]
				result(resp, h)
			}
			return false
		}},
		{"null blocks", "gone", func(_ http.ResponseWriter, req message, resp *message) bool {
			if req.Method == "eth_getBlockByNumber" && turn() {
				resp.Result = json.RawMessage("null")
			}
			return false
		}},
		{"another chain", "chain_id", func(_ http.ResponseWriter, req message, resp *message) bool {
			if req.Method == "eth_chainId" {
				result(resp, hexutil.Uint64(1))
			}
			return false
		}},
		{"ranges are too large", "range", func(_ http.ResponseWriter, req message, resp *message) bool {
			var q struct{ FromBlock, ToBlock hexutil.Uint64 }
			if req.Method == "eth_getLogs" && json.Unmarshal(req.Params[0], &q) == nil && q.ToBlock > q.FromBlock+9 {
				resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32614,"message":"eth_getLogs is limited to a 10 block range"}`)
			}
			return false
		}},
		{"too often", "rate", func(w http.ResponseWriter, req message, _ *message) bool {
			if req.Method == "eth_chainId" || !turn() {
				return false
			}
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}},
		{"bad gateway", "failure", func(w http.ResponseWriter, _ message, _ *message) bool {
			if turn() {
				w.WriteHeader(http.StatusBadGateway)
				return true
			}
			return false
		}},
		{"stalls", "failure", func(w http.ResponseWriter, req message, _ *message) bool {
			if req.Method != "eth_getLogs" || !turn() {
				return false
			}
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(400 * time.Millisecond) //nolint:forbidigo // the lie itself: longer than the timeout
			return true
		}},
		{"garbage", "malformed", func(w http.ResponseWriter, req message, _ *message) bool {
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
			cfg.RPC.Endpoints = []rpc.Endpoint{
				{URL: startLiar(t, w.chain.HTTP(), 0, test.tell), Name: "liar"},
				{URL: startLiar(t, w.chain.HTTP(), 50*time.Millisecond, honestly), Name: "honest"}, // slower, so that the liar is asked first
			}
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

// TestOnlyALiar: a node that drops logs now and then is all there is. What it drops it is asked for again.
func TestOnlyALiar(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
	w.step(t, 60)
	cfg := w.config()
	cfg.RPC.Endpoints = []rpc.Endpoint{{Name: "liar", URL: startLiar(t, w.chain.HTTP(), 0, func(_ http.ResponseWriter, req message, resp *message) bool {
		if logs, _ := logsOf(req, resp); len(logs) > 0 && random.IntN(4) == 0 {
			result(resp, []any{})
		}
		return false
	})}}
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
