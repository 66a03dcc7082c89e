package system

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// lies are wrong responses, and how the ingester counts each: as a lie, or by the class of an error, one or the other. Lies about final
// ranges are tested in package ingest.
func lies() []struct {
	name, counted string
	tell          rpctest.Lie
} {
	receipts := func(change func(receipt map[string]any, logs []any)) rpctest.Lie {
		return func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if all, at := rpctest.Receipts(req, resp); all != nil {
				change(all[at], all[at]["logs"].([]any))
				resp.Say(all)
			}
			return false
		}
	}
	return []struct {
		name, counted string
		tell          rpctest.Lie
	}{
		{"drops a log", "receipts_root", receipts(func(receipt map[string]any, logs []any) { receipt["logs"] = logs[1:] })},
		{"adds a log", "receipts_root", receipts(func(receipt map[string]any, logs []any) { receipt["logs"] = append(logs, logs[0]) })},
		{"moves a log", "position", receipts(func(_ map[string]any, logs []any) { logs[0].(map[string]any)["logIndex"] = "0x7777" })},
		{"drops the logs of a block", "receipts_root", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if all, _ := rpctest.Receipts(req, resp); all != nil {
				resp.Say([]any{})
			}
			return false
		}},
		{"hides a block's logs behind an empty bloom filter", "header_hash", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if h, _ := rpctest.Header(req, resp); h != nil {
				h["logsBloom"] = "0x" + strings.Repeat("0", 512)
				resp.Say(h)
			}
			return false
		}},
		{"answers 429", "rate", func(w http.ResponseWriter, _ *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
			if req.Method != "eth_getBlockReceipts" {
				return false
			}
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}},
		{"stalls", "failure|slow", func(_ http.ResponseWriter, r *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
			if req.Method != "eth_getBlockReceipts" {
				return false
			}
			<-r.Context().Done()
			return true
		}},
		{"answers from a stale head", "stale_head", rpctest.StaleHead()},
	}
}

// TestLyingNode: one of two endpoints lies, in each case in another way. The state still equals the chain, and the
// ingester's metrics name the endpoint and the lie.
func TestLyingNode(t *testing.T) {
	w := newWorld(t, "devchain", "embedded", devchain.ScenarioConfig{Seed: seed(t), TxsPerBlock: 6, TimePerBlock: 6 * time.Hour, Reorgs: true, ReorgEvery: 40, MaxReorgDepth: 10})
	w.mine(t.Context(), t, 100)
	honest := startProxy(t, hostport(t, w.backend.HTTP()))
	honest.slow(5 * time.Millisecond) // so that the liar is asked first
	liar := rpctest.NewLiar(t, w.backend.HTTP(), 0)
	f := &fleet{t: t, w: w, nodes: map[string]*member{}}
	serving := address(t)
	up := f.join(t, "up", "up", "--rpc="+liar.URL+",http://"+honest.addr, "--rpc-confirm=2", "--rpc-timeout=1s",
		"--data-dir="+t.TempDir(), "--indexer-addr="+serving, "--agent-addr=127.0.0.1:0", "--valuation-addr=127.0.0.1:0", "--query-addr="+address(t))
	f.api = newAPI(serving)
	counted := func(t *testing.T, endpoint, as string) float64 {
		t.Helper()
		sum := 0.0
		for metric, label := range map[string]string{"lienstream_ingest_rpc_lies_total": "lie", "lienstream_ingest_rpc_errors_total": "class"} {
			for value := range strings.SplitSeq(as, "|") {
				// A counter that was never incremented has no series.
				n, _ := up.metric(t.Context(), metric, `endpoint="`+endpoint+`"`, label+`="`+value+`"`)
				sum += n
			}
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
	for _, wrong := range []string{"receipts_root", "header_hash", "stale_head"} {
		if n := counted(t, honest.addr, wrong); n > 0 {
			t.Errorf("the honest node was counted %v times for %s", n, wrong)
		}
	}
	up.interrupt(t)
}
