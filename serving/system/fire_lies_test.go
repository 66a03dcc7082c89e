package system

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// rangeErrors are how providers refuse a range.
var rangeErrors = []string{
	`{"code":-32005,"message":"query returned more than 10000 results. Try with this block range [0x1, 0x2]."}`,
	`{"code":-32602,"message":"Log response size exceeded. You can make eth_getLogs requests with up to a 2K block range"}`,
	`{"code":-32614,"message":"eth_getLogs is limited to a 10,000 range"}`,
	`{"code":-32000,"message":"block range is too wide"}`,
	`{"code":-32701,"message":"Please specify an address in your request or, to remove restrictions, order a dedicated full node","data":"exceed maximum block range: 5000"}`,
	`{"code":-32000,"message":"exceed maximum block range: 50000"}`,
	`{"code":-32602,"message":"query exceeds max results 20000, retry with the range 1-2"}`,
	`{"code":-32008,"message":"response is too big"}`,
}

// lies are what is told, and as what the ingester counts it: a lie, or the class of an error.
func lies() []struct {
	name, counted string
	tell          rpctest.Lie
} {
	var mu sync.Mutex
	said := 0
	next := func() int { mu.Lock(); defer mu.Unlock(); said++; return said }
	return []struct {
		name, counted string
		tell          rpctest.Lie
	}{
		{"drops the logs of a block", "missing_logs", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if logs, _ := rpctest.Logs(req, resp); len(logs) > 0 {
				resp.Say([]any{})
			}
			return false
		}},
		{"drops one log", "disagreement", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if logs, _ := rpctest.Logs(req, resp); len(logs) > 1 {
				resp.Say(logs[1:])
			}
			return false
		}},
		{"cuts a range short", "missing_logs", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if logs, _ := rpctest.Logs(req, resp); len(logs) > 2 && logs[0]["blockNumber"] != logs[len(logs)-1]["blockNumber"] {
				last := logs[len(logs)-1]["blockNumber"]
				for logs[len(logs)-1]["blockNumber"] == last {
					logs = logs[:len(logs)-1]
				}
				resp.Say(logs)
			}
			return false
		}},
		{"answers null", "null", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if logs, _ := rpctest.Logs(req, resp); len(logs) > 0 {
				resp.Result = json.RawMessage("null")
			}
			return false
		}},
		{"refuses ranges, as every provider does", "range", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			var q struct{ FromBlock, ToBlock hexutil.Uint64 }
			if req.Method == "eth_getLogs" && json.Unmarshal(req.Params[0], &q) == nil && q.ToBlock > q.FromBlock {
				resp.Result, resp.Error = nil, json.RawMessage(rangeErrors[next()%len(rangeErrors)])
			}
			return false
		}},
		{"answers 429", "rate", func(w http.ResponseWriter, _ *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
			if req.Method != "eth_getLogs" {
				return false
			}
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}},
		{"stalls", "failure", func(_ http.ResponseWriter, r *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
			if req.Method != "eth_getLogs" {
				return false
			}
			<-r.Context().Done()
			return true
		}},
		{"answers from a stale head", "stale_head", staleHead()},
	}
}

// staleHead tells of the first head that passes, for ever.
func staleHead() rpctest.Lie {
	var mu sync.Mutex
	var first json.RawMessage
	return func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		mu.Lock()
		defer mu.Unlock()
		if req.Method == "eth_getBlockByNumber" && strings.Contains(string(req.Params[0]), "latest") {
			if first == nil {
				first = resp.Result
			}
			resp.Result = first
		}
		return false
	}
}

// TestLyingNode: of two endpoints one lies, each time in another way. The state equals the chain all the
// same, and the ingester's metrics name the endpoint and the lie.
func TestLyingNode(t *testing.T) {
	w := newWorld(t, "devchain", "embedded", devchain.ScenarioConfig{Seed: seed(t), TxsPerBlock: 6, TimePerBlock: 6 * time.Hour, Reorgs: true, ReorgEvery: 40, MaxReorgDepth: 10})
	w.mine(t.Context(), t, 100)
	honest := startProxy(t, hostport(t, w.backend.HTTP()))
	honest.slow(5 * time.Millisecond) // so that the liar is asked first
	liar := rpctest.NewLiar(t, w.backend.HTTP(), 0)
	f := &fleet{t: t, w: w, nodes: map[string]*member{}}
	serving := address(t)
	up := f.join(t, "up", "up", "--rpc="+liar.URL+",http://"+honest.addr, "--rpc-confirm=2", "--rpc-timeout=1s",
		"--data-dir="+t.TempDir(), "--indexer-addr="+serving, "--query-addr="+address(t))
	f.api = newAPI(serving)
	counted := func(t *testing.T, endpoint, as string) float64 {
		t.Helper()
		sum := 0.0
		for metric, label := range map[string]string{"lienstream_ingest_rpc_lies_total": "lie", "lienstream_ingest_rpc_errors_total": "class"} {
			// A series that nothing was counted in does not exist.
			n, _ := up.metric(t.Context(), metric, `endpoint="`+endpoint+`"`, label+`="`+as+`"`)
			sum += n
		}
		return sum
	}
	stateEqualsChain(t.Context(), t, f.api, w.judge, time.Minute)
	for _, lie := range lies() {
		t.Run(lie.name, func(t *testing.T) {
			before := counted(t, hostport(t, liar.URL), lie.counted)
			liar.Tells(lie.tell)
			defer liar.Tells(nil)
			for deadline := time.Now().Add(40 * time.Second); counted(t, hostport(t, liar.URL), lie.counted) == before; {
				if time.Now().After(deadline) {
					t.Fatalf("the liar was never counted for %s", lie.counted)
				}
				w.mine(t.Context(), t, 20) // more than one: a range, or each by its hash; and more than a head may lag
				settle(t, f.api, w.judge, 40*time.Second)
			}
			stateEqualsChain(t.Context(), t, f.api, w.judge, 40*time.Second)
		})
	}
	for _, wrong := range []string{"missing_logs", "null", "stale_head"} {
		if n := counted(t, honest.addr, wrong); n > 0 {
			t.Errorf("the honest node was counted %v times for %s", n, wrong)
		}
	}
	up.interrupt(t)
}
