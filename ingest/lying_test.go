package ingest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// lies are what the suite's liars tell. Those of ranges are only told where ranges are believed.
var lies = []lie{
	{"drops all logs of a range", "missing_logs", true, ofLogs(func(logs []map[string]any, byNumber bool) any {
		if byNumber {
			return []any{}
		}
		return logs
	})},
	{"cuts ranges", "missing_logs", true, ofLogs(func(logs []map[string]any, _ bool) any { return logs[:(len(logs)+2)/3] })},
	{"cuts the end of ranges", "missing_logs", true, ofLogs(func(logs []map[string]any, _ bool) any { return logs[:len(logs)-1] })},
	{"changes transactions' hashes", "missing_logs", true, ofLogs(func(logs []map[string]any, _ bool) any {
		for _, log := range logs {
			log["transactionHash"] = log["blockHash"]
		}
		return logs
	})},
	{"changes data", "missing_logs disagreement", true, ofLogs(func(logs []map[string]any, _ bool) any {
		for _, log := range logs {
			log["data"] = log["data"].(string) + "00"
		}
		return logs
	})},
	{"drops one log", "missing_logs disagreement", true, ofLogs(func(logs []map[string]any, _ bool) any { return logs[1:] })},
	{"another block's hash", "block_hash", true, ofLogs(func(logs []map[string]any, _ bool) any {
		logs[0]["blockHash"] = logs[0]["transactionHash"]
		return logs
	})},
	{"disorder", "order", true, ofLogs(func(logs []map[string]any, _ bool) any {
		logs[0], logs[len(logs)-1] = logs[len(logs)-1], logs[0]
		return logs
	})},
	{"twice the same log", "order", true, ofLogs(func(logs []map[string]any, _ bool) any { return append(logs[:1:1], logs...) })},
	{"removed logs", "removed", true, ofLogs(func(logs []map[string]any, _ bool) any {
		logs[0]["removed"] = true
		return logs
	})},
	{"blocks outside the range", "out_of_range", true, ofLogs(func(logs []map[string]any, _ bool) any {
		logs[len(logs)-1]["blockNumber"] = "0xfffff"
		return logs
	})},
	{"null logs", "null", true, ofLogs(func([]map[string]any, bool) any { return nil })},

	{"leaves a log out of a receipt", "receipts_root", false, ofReceipt(func(receipt map[string]any, logs []any) { receipt["logs"] = logs[1:] })},
	{"leaves all logs out of a receipt", "receipts_root", false, ofReceipt(func(receipt map[string]any, _ []any) {
		receipt["logs"], receipt["logsBloom"] = []any{}, "0x"+strings.Repeat("0", 512)
	})},
	{"adds a log", "receipts_root", false, ofReceipt(func(receipt map[string]any, logs []any) { receipt["logs"] = append(logs, logs[0]) })},
	{"changes a log's data", "receipts_root", false, ofReceipt(func(_ map[string]any, logs []any) {
		log := logs[0].(map[string]any)
		log["data"] = "0x" + strings.Repeat("f", len(log["data"].(string))-2)
	})},
	{"changes a log's address", "receipts_root", false, ofReceipt(func(_ map[string]any, logs []any) {
		logs[0].(map[string]any)["address"] = "0x" + strings.Repeat("1", 40)
	})},
	{"changes a log's place", "position", false, ofReceipt(func(_ map[string]any, logs []any) { logs[0].(map[string]any)["logIndex"] = "0x7777" })},
	{"changes the hash of a log's transaction", "transaction_hash", false, ofReceipt(func(receipt map[string]any, logs []any) {
		receipt["transactionHash"] = receipt["blockHash"]
		for _, log := range logs {
			log.(map[string]any)["transactionHash"] = receipt["blockHash"]
		}
	})},
	{"replaces a transaction", "transactions_root", false, func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if block, all := transactionsIn(req, resp); len(all) > 0 {
			all[0] = types.NewTx(&types.LegacyTx{GasPrice: new(big.Int), Value: new(big.Int), V: big.NewInt(27), R: big.NewInt(1), S: big.NewInt(1)})
			resp.Say(block)
		}
		return false
	}},
	{"makes up a type of transaction", "transactions_root", false, func(w http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if strings.Contains(req.Method, "_getRawTransaction") {
			resp.Error = nil
			resp.Say("0x02c0")
		}
		return ofTransaction(func(tx map[string]any) { tx["type"] = "0x55" })(w, r, req, resp)
	}},
	{"leaves a transaction out", "transactions_root", false, func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if block, all := transactionsIn(req, resp); len(all) > 0 {
			block["transactions"] = all[1:]
			resp.Say(block)
		}
		return false
	}},
	{"no receipts", "receipts_root", false, func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_getBlockReceipts" {
			resp.Say([]any{})
		}
		return false
	}},
	{"null receipts", "gone", false, func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_getBlockReceipts" {
			resp.Result = json.RawMessage("null")
		}
		return false
	}},

	{"forges the bloom filter", "header_hash", false, ofHeader(func(h map[string]any, _ string) { h["logsBloom"] = "0x" + strings.Repeat("0", 512) })},
	{"forges the bloom filter of heads", "header_hash", false, ofHeader(func(h map[string]any, tag string) {
		if tag == "latest" {
			h["logsBloom"] = "0x" + strings.Repeat("0", 512)
		}
	})},
	{"alters timestamps", "header_hash", false, ofHeader(func(h map[string]any, _ string) { h["timestamp"] = "0x7fffffff" })},
	{"alters the receipts' root", "header_hash", false, ofHeader(func(h map[string]any, _ string) { h["receiptsRoot"] = h["stateRoot"] })},
	{"inflates heads", "header_hash", false, ofHeader(func(h map[string]any, tag string) {
		if tag == "latest" || tag == "finalized" {
			h["number"] = hexutil.Uint64(1_000_000_000)
		}
	})},
	{"wrong parents", "header_hash", false, ofHeader(func(h map[string]any, _ string) { h["parentHash"] = h["hash"] })},
	{"null blocks", "gone", false, func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_getBlockByNumber" {
			resp.Result = json.RawMessage("null")
		}
		return false
	}},

	{"another chain", "chain_id", false, func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_chainId" {
			resp.Say(hexutil.Uint64(1))
		}
		return false
	}},
	{"ranges are too large", "range", true, func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		var q struct{ FromBlock, ToBlock hexutil.Uint64 }
		if req.Method == "eth_getLogs" && json.Unmarshal(req.Params[0], &q) == nil && q.ToBlock > q.FromBlock+9 {
			resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32614,"message":"eth_getLogs is limited to a 10 block range"}`)
		}
		return false
	}},
	{"too often", "rate", false, func(w http.ResponseWriter, _ *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
		if req.Method == "eth_chainId" {
			return false
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}},
	{"bad gateway", "failure", false, func(w http.ResponseWriter, _ *http.Request, _ rpctest.Message, _ *rpctest.Message) bool {
		w.WriteHeader(http.StatusBadGateway)
		return true
	}},
	{"fails at receipts alone", "failure", false, func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_getBlockReceipts" {
			resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32603,"message":"internal error"}`)
		}
		return false
	}},
	{"stalls", "failure", false, func(w http.ResponseWriter, r *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
		if req.Method != "eth_getBlockReceipts" {
			return false
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return true
	}},
	{"garbage", "malformed", false, func(w http.ResponseWriter, _ *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
		if req.Method != "eth_getBlockReceipts" {
			return false
		}
		_, _ = io.WriteString(w, `<html>{"result":[`)
		return true
	}},
}

// ofLogs changes answers to eth_getLogs that have logs enough to lie about.
func ofLogs(change func(logs []map[string]any, byNumber bool) any) rpctest.Lie {
	return func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if logs, byNumber := rpctest.Logs(req, resp); len(logs) > 1 {
			resp.Say(change(logs, byNumber))
		}
		return false
	}
}

// ofReceipt changes the first receipt of a block that has a log.
func ofReceipt(change func(receipt map[string]any, logs []any)) rpctest.Lie {
	return func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if all, at := rpctest.Receipts(req, resp); all != nil {
			change(all[at], all[at]["logs"].([]any))
			resp.Say(all)
		}
		return false
	}
}

// transactionsIn decodes an answer to eth_getBlockByHash with all transactions; none: it is another answer.
func transactionsIn(req rpctest.Message, resp *rpctest.Message) (block map[string]any, all []any) {
	if req.Method != "eth_getBlockByHash" || string(req.Params[1]) != "true" || json.Unmarshal(resp.Result, &block) != nil {
		return nil, nil
	}
	all, _ = block["transactions"].([]any)
	return block, all
}

// ofTransaction changes the first transaction of blocks.
func ofTransaction(change func(tx map[string]any)) rpctest.Lie {
	return func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if block, all := transactionsIn(req, resp); len(all) > 0 {
			change(all[0].(map[string]any))
			resp.Say(block)
		}
		return false
	}
}

// ofHeader changes headers, but for the genesis block's.
func ofHeader(change func(header map[string]any, tag string)) rpctest.Lie {
	return func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if h, tag := rpctest.Header(req, resp); h != nil && h["number"] != "0x0" {
			change(h, tag)
			resp.Say(h)
		}
		return false
	}
}

// lyingWorld is a chain of which the most is final.
func lyingWorld(t *testing.T) *world {
	t.Helper()
	w := newWorldOn(t, devchain.Config{Seed: 7, SafeBlocks: 4, FinalizedBlocks: 8})
	w.step(t, 60)
	return w
}

func (w *world) lyingConfig(t *testing.T, prefix string, endpoints ...rpc.Endpoint) (cfg ingest.Config, topic string) {
	t.Helper()
	cfg = w.config()
	cfg.Kafka.Prefix = prefix // each lie has a topic of its own; the chain goes on
	cfg.RPC.Endpoints = endpoints
	cfg.RPC.Timeout = slowness * time.Second
	cfg.RangeBlocks, cfg.ReorgWindow = 25, 8
	return cfg, w.provision(t, cfg.Kafka)
}

// lie is what a liar of the suite tells.
type lie struct {
	name   string
	want   string // the lies, or the classes of errors, one of which is counted
	ranges bool
	tell   rpctest.Lie
}

func counted(t *testing.T, reg *prometheus.Registry, endpoint, want string) (n float64) {
	t.Helper()
	for what := range strings.FieldsSeq(want) {
		n += count(t, reg, endpoint, what)
	}
	return n
}

// TestLies: an honest node is beside one that lies, and the topic still equals the chain; the metrics name the
// endpoint and the lie.
func TestLies(t *testing.T) {
	t.Parallel()
	const parts = 4 // beside each other, each on a chain of its own
	for part := range parts {
		t.Run(fmt.Sprint("part ", part), func(t *testing.T) {
			t.Parallel()
			w := lyingWorld(t)
			for i := part; i < len(lies); i += parts {
				lie := lies[i]
				t.Run(lie.name, func(t *testing.T) {
					liar, honest := rpctest.NewLiar(t, w.chain.HTTP(), 0), rpctest.NewLiar(t, w.chain.HTTP(), 20*time.Millisecond) // the liar is asked first
					liar.Tells(lie.tell)
					var in *running
					for again := 0; in == nil || counted(t, in.reg, "liar", lie.want) == 0; again++ {
						if again > 20 {
							t.Fatalf("the liar was never counted for %s", lie.want)
						}
						cfg, topic := w.lyingConfig(t, fmt.Sprint("beside", i, "x", again), rpc.Endpoint{URL: liar.URL, Name: "liar"}, rpc.Endpoint{URL: honest.URL, Name: "honest"})
						cfg.RPC.Silence, cfg.RPC.Alone = time.Second, time.Second // some never say anything true
						in = run(t, cfg)
						for range 3 {
							w.step(t, 2) // more than one: they are asked for as a range, or each by its hash
							checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
						}
						if err := in.stop(); err != nil {
							t.Error(err)
						}
					}
					for _, lie := range []string{"missing_logs", "block_hash", "order", "malformed", "header_hash", "receipts_root", "stale_head", "inflated_head"} {
						if n := count(t, in.reg, "honest", lie); n > 0 {
							t.Errorf("the honest node was counted %v times for %s", n, lie)
						}
					}
				})
			}
		})
	}
}

// TestChangedBesideHonest: the fastest endpoint changes the data of the first log of each range of history. With
// default settings, the two others prevail.
func TestChangedBesideHonest(t *testing.T) {
	t.Parallel()
	w := lyingWorld(t)
	liar := rpctest.NewLiar(t, w.chain.HTTP(), 0)
	liar.Tells(ofLogs(func(logs []map[string]any, byNumber bool) any {
		if first := logs[0]; byNumber && first["blockNumber"] != logs[len(logs)-1]["blockNumber"] {
			if data := first["data"].(string); len(data) > 2 {
				first["data"] = data[:len(data)-1] + map[bool]string{true: "8", false: "7"}[data[len(data)-1] == '7']
			}
		}
		return logs
	}))
	endpoints := []rpc.Endpoint{{URL: liar.URL, Name: "liar"}}
	for i := range 2 {
		endpoints = append(endpoints, rpc.Endpoint{URL: rpctest.NewLiar(t, w.chain.HTTP(), 20*time.Millisecond).URL, Name: fmt.Sprint("honest", i)})
	}
	for again := 0; ; again++ {
		cfg, topic := w.lyingConfig(t, fmt.Sprint("changed", again), endpoints...)
		in := run(t, cfg)
		checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
		if err := in.stop(); err != nil {
			t.Error(err)
		}
		if counted(t, in.reg, "liar", "disagreement") > 0 {
			return
		}
		if again > 20 {
			t.Fatal("the liar was never counted")
		}
	}
}

// TestOnlyALiar: the liar is all there is, and lies at times. With every block proved nothing that it says
// comes in, and it is named.
func TestOnlyALiar(t *testing.T) {
	t.Parallel()
	w := lyingWorld(t)
	for i, lie := range lies {
		if lie.ranges || !slices.Contains([]string{"receipts_root", "position", "header_hash", "gone", "transaction_hash", "transactions_root"}, lie.want) {
			continue // nobody is asked for a range where everything is proved; and some answers are none at all
		}
		t.Run(lie.name, func(t *testing.T) {
			liar := rpctest.NewLiar(t, w.chain.HTTP(), 0)
			liar.Tells(rpctest.Sometimes(lie.tell))
			cfg, topic := w.lyingConfig(t, fmt.Sprint("alone", i), rpc.Endpoint{URL: liar.URL, Name: "liar"})
			cfg.RPC.Proof = rpc.ProofAll
			in := run(t, cfg)
			for rounds := 1; rounds <= 2 || counted(t, in.reg, "liar", lie.want) == 0; rounds++ {
				if rounds > 100 {
					t.Fatalf("the liar was never counted for %s", lie.want)
				}
				w.step(t, 2)
				checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			}
		})
	}
}

// TestOnlyALiarOfRanges: the liar is all there is, and leaves out logs of ranges that are final. Whole blocks left out
// are suspects, and the end of what was cut is a sample: from then on every block of the range is proved.
func TestOnlyALiarOfRanges(t *testing.T) {
	t.Parallel()
	w := lyingWorld(t)
	for i, lie := range lies {
		if !lie.ranges || strings.Contains(lie.want, "disagreement") || lie.want == "range" {
			continue
		}
		t.Run(lie.name, func(t *testing.T) {
			liar := rpctest.NewLiar(t, w.chain.HTTP(), 0)
			tell := lie.tell
			if lie.want != "missing_logs" {
				tell = rpctest.Sometimes(tell) // there is no way around an answer that is none
			}
			liar.Tells(tell)
			for again := 0; ; again++ { // ranges are only asked for when a topic is filled
				cfg, topic := w.lyingConfig(t, fmt.Sprint("ranges", i, "x", again), rpc.Endpoint{URL: liar.URL, Name: "liar"})
				in := run(t, cfg)
				checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
				if counted(t, in.reg, "liar", lie.want) > 0 {
					break
				}
				if err := in.stop(); err != nil || again > 20 {
					t.Fatalf("the liar was never counted for %s: %v", lie.want, err)
				}
			}
		})
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
