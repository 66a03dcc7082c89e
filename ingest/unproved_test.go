package ingest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// TestNoReceipts: a node that does not know eth_getBlockReceipts can prove no log. That is said in the log, in a metric,
// in the ingester's status and in the topic, which `lienstream status` reads; and nothing comes in from it, until it can.
func TestNoReceipts(t *testing.T) {
	t.Parallel()
	w := lyingWorld(t)
	node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
	cfg, topic := w.lyingConfig(t, "receipts", rpc.Endpoint{URL: node.URL, Name: "node"})
	in := run(t, cfg)
	checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
	was := in.Status().Published

	node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_getBlockReceipts" {
			resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32601,"message":"the method eth_getBlockReceipts does not exist/is not available"}`)
		}
		return false
	})
	w.step(t, 5)
	core, logged := observer.New(zapcore.WarnLevel)
	in = runLogging(t, cfg, zap.New(core))
	told := w.unproved(t, cfg.Kafka, topic)
	for where, lacks := range map[string]string{"topic": told, "status": strings.Join(in.Status().Unproved, "\n")} {
		if !strings.Contains(lacks, "node: prove the logs of a block: ") || !strings.Contains(lacks, "eth_getBlockReceipts") {
			t.Errorf("the %s says that what is not proved is %q", where, lacks)
		}
	}
	if logged.FilterMessage("endpoint cannot prove headers, logs or transactions").Len() == 0 {
		t.Error("the log does not say it")
	}
	if n, known := gauge(t, in.reg, "lienstream_ingest_rpc_endpoint_proves"); !known || n != 0 {
		t.Errorf("the metric is %v, known: %t", n, known)
	}
	if now := in.Status().Published; now != was {
		t.Errorf("block %d came in unproved after %d", now.Number, was.Number)
	}

	node.Tells(nil)
	checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
	polltest.Until(t, "nothing is unproved any more", func() bool { return len(in.Status().Unproved) == 0 })
}

// TestStrangersTransaction: the only node is honest, and describes a transaction in each block so that it does not have its hash. It comes in with
// proof where the node has it as it was signed, and without where it has not: that is counted, and said in the status and in the topic.
func TestStrangersTransaction(t *testing.T) {
	t.Parallel()
	const unproved = "lienstream_ingest_rpc_unproved_blocks_total"
	w := lyingWorld(t)
	for _, with := range []string{"eth_getRawTransactionByHash", "eth_getRawTransactionByBlockHashAndIndex", "debug_getRawTransaction", "nothing"} {
		t.Run(with, func(t *testing.T) {
			node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
			oddly := ofTransaction(func(tx map[string]any) { tx["type"] = "0x55" })
			node.Tells(func(rw http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
				if strings.Contains(req.Method, "_getRawTransaction") && req.Method != with {
					resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32601,"message":"the method does not exist/is not available"}`)
				}
				return oddly(rw, r, req, resp)
			})
			cfg, topic := w.lyingConfig(t, with, rpc.Endpoint{URL: node.URL, Name: "node"})
			cfg.RPC.Proof, cfg.RPC.Timeout = rpc.ProofAll, w.config().RPC.Timeout // a busy machine is no reason to go without proof
			in := run(t, cfg)
			for range 3 {
				w.step(t, 2)
				if with != "nothing" { // where the ledger of a token says whose its first transfer was
					checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
				}
				head, err := w.chain.Client().BlockNumber(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				polltest.Within(t, slowness*time.Minute, func() error {
					if n := in.Status().Published.Number; n != head {
						return fmt.Errorf("at block %d of %d", n, head)
					}
					return nil
				})
			}
			if n := total(t, in.reg, unproved); (n > 0) != (with == "nothing") {
				t.Errorf("%v blocks are not proved", n)
			}
			if n := counted(t, in.reg, "node", "transactions_root transaction_hash malformed gone"); n > 0 {
				t.Errorf("the honest node was counted %v times", n)
			}
			if said := in.Status().Unsigned; (said != "") != (with == "nothing") {
				t.Errorf("the status says %q", said)
			}
			if with == "nothing" {
				polltest.Until(t, "the topic says it", func() bool {
					told := w.unproved(t, cfg.Kafka, topic)
					return strings.Contains(told, "hashes of transactions") && strings.Contains(told, "prove transactions that nodes describe in different ways")
				})
			}
		})
	}
}

// TestOddBesideOneDown: of two endpoints one dies, and the other one cannot prove a stranger's transaction: blocks go on coming in.
func TestOddBesideOneDown(t *testing.T) {
	t.Parallel()
	w := lyingWorld(t)
	odd, other := rpctest.NewLiar(t, w.chain.HTTP(), 0), rpctest.NewLiar(t, w.chain.HTTP(), 0)
	oddly := ofTransaction(func(tx map[string]any) { tx["type"] = "0x55" })
	odd.Tells(func(rw http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if strings.Contains(req.Method, "_getRawTransaction") {
			resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32601,"message":"the method does not exist/is not available"}`)
		}
		return oddly(rw, r, req, resp)
	})
	cfg, _ := w.lyingConfig(t, "down", rpc.Endpoint{URL: odd.URL, Name: "odd"}, rpc.Endpoint{URL: other.URL, Name: "other"})
	in := run(t, cfg)
	came := func() {
		t.Helper()
		head, err := w.chain.Client().BlockNumber(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		polltest.Until(t, "all blocks came in", func() bool { return in.Status().Published.Number >= head })
	}
	came()
	other.Tells(func(rw http.ResponseWriter, _ *http.Request, _ rpctest.Message, _ *rpctest.Message) bool {
		http.Error(rw, "down", http.StatusBadGateway)
		return true
	})
	w.step(t, 4)
	came()
	if in.Status().Unsigned == "" {
		t.Error("nothing is said of the hashes")
	}
}

// total is the sum of a counter.
func total(t *testing.T, reg *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// gauge reads the only series of a gauge.
func gauge(t *testing.T, reg *prometheus.Registry, name string) (value float64, known bool) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name && len(f.GetMetric()) == 1 {
			return f.GetMetric()[0].GetGauge().GetValue(), true
		}
	}
	return 0, false
}
