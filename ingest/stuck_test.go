package ingest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// neverProved are lies of the only node that leave a block without a proof for ever.
func neverProved() map[string]rpctest.Lie {
	oddly := ofTransaction(func(tx map[string]any) { tx["type"] = "0x55" })
	return map[string]rpctest.Lie{
		"what was signed is another's": func(rw http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if strings.Contains(req.Method, "_getRawTransaction") {
				resp.Say("0x02c0")
			}
			return oddly(rw, r, req, resp)
		},
		"describes a transaction less": func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if block, all := transactionsIn(req, resp); len(all) > 0 {
				block["transactions"] = all[1:]
				resp.Say(block)
			}
			return false
		},
		"too big, and no receipt of it": func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			switch req.Method {
			case "eth_getBlockReceipts", "debug_getRawReceipts":
				resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32008,"message":"Response is too big"}`)
			case "eth_getTransactionReceipt":
				resp.Result = json.RawMessage("null")
			}
			return false
		},
		"no receipts": func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if strings.Contains(req.Method, "Receipt") {
				resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32601,"message":"the method does not exist/is not available"}`)
			}
			return false
		},
	}
}

// TestNeverProved: the only node never proves a block, at the tip or of history. Nothing of it or after it is published, and the status, readiness, a metric,
// the log and the topic say which block it is and why. It is asked with pauses, as at the tip: 60 calls in 12 s beside the head. Once it is honest all goes on.
func TestNeverProved(t *testing.T) {
	t.Parallel()
	const stuckBlock = "lienstream_ingest_stuck_block"
	const most, window = 30, 6 * time.Second
	for name, lie := range neverProved() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lyingWorld(t)
			polled := map[string]bool{`"latest"`: true, `"finalized"`: true, `"safe"`: true}
			var calls atomic.Int64
			node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
			tells := func(rw http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
				if req.Method != "eth_getBlockByNumber" || !polled[string(req.Params[0])] {
					calls.Add(1)
				}
				return lie(rw, r, req, resp)
			}
			for _, history := range []bool{false, true} {
				cfg, topic := w.lyingConfig(t, fmt.Sprint("proved", history), rpc.Endpoint{URL: node.URL, Name: "node"})
				cfg.RPC.Proof, cfg.ReadyAge = rpc.ProofAll, 3*time.Second
				if history {
					node.Tells(tells)
				}
				in := run(t, cfg)
				if !history {
					checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
					node.Tells(tells)
					w.step(t, 4)
				}
				var s ingest.Status
				polltest.Until(t, "the status says which block does not come in", func() bool {
					s = in.Status()
					return strings.HasPrefix(s.Stuck, fmt.Sprintf("block %d does not come in", s.Published.Number+1)) || s.StuckBlock > 0 && history
				})
				polltest.Until(t, "it is one block", func() bool {
					s = in.Status()
					return strings.HasPrefix(s.Stuck, fmt.Sprintf("block %d does", s.StuckBlock)) && strings.Contains(s.Stuck, "node: ")
				})
				if s.Published.Number >= s.StuckBlock {
					t.Errorf("block %d is published, and %d does not come in", s.Published.Number, s.StuckBlock)
				}
				polltest.Until(t, "it is not ready", func() bool {
					err := in.Ready()
					return err != nil && strings.Contains(err.Error(), fmt.Sprintf("block %d does not come in", s.StuckBlock))
				})
				if n, known := gauge(t, in.reg, stuckBlock); !known || n != float64(s.StuckBlock) {
					t.Errorf("the metric is %v, known: %t", n, known)
				}
				if s.Published.Number > 0 { // else there is nothing to write it beside
					polltest.Until(t, "the topic says it", func() bool {
						return strings.Contains(w.unproved(t, cfg.Kafka, topic), fmt.Sprintf("block %d does not come in", s.StuckBlock))
					})
				}
				before := calls.Load()
				<-time.After(window) // what must not come has no moment to wait for
				if n := calls.Load() - before; n > most {
					t.Errorf("history %t: %d calls in %s", history, n, window)
				} else {
					t.Logf("history %t: %d calls in %s", history, n, window)
				}
				if now := in.Status().Published; now != s.Published {
					t.Errorf("block %d came in unproved after %d", now.Number, s.Published.Number)
				}
				node.Tells(nil)
				checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
				polltest.Until(t, "nothing is said of it any more", func() bool { return in.Status().Stuck == "" && in.Ready() == nil })
				if err := in.stop(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestNeverAnswered: the only node tells of heads, and answers a request for what is in their blocks with errors alone, or not at all. No
// fetch of them ever fails; that no block comes in, and why, is said nonetheless, and once it answers all goes on.
func TestNeverAnswered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		why  string
		lies rpctest.Lie
	}{
		"receipts alone fail": {"internal error", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if strings.Contains(req.Method, "Receipt") {
				resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32603,"message":"internal error"}`)
			}
			return false
		}},
		"receipts alone are not answered": {"node: ", func(_ http.ResponseWriter, r *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
			if strings.Contains(req.Method, "Receipt") {
				<-r.Context().Done()
			}
			return false
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lyingWorld(t)
			node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
			cfg, topic := w.lyingConfig(t, "answered", rpc.Endpoint{URL: node.URL, Name: "node"})
			cfg.ReadyAge = 3 * time.Second
			in := run(t, cfg)
			checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			polltest.Until(t, "it is ready", func() bool { return in.Ready() == nil })
			last, err := w.chain.Client().BlockNumber(t.Context()) // the status may not have it yet
			if err != nil {
				t.Fatal(err)
			}
			node.Tells(c.lies)
			w.step(t, 3)
			polltest.Until(t, "the status says which block does not come in, and why", func() bool {
				s := in.Status()
				return s.StuckBlock == last+1 && strings.Contains(s.Stuck, "not come in") && strings.Contains(s.Stuck, c.why)
			})
			if err := in.Ready(); err == nil || !strings.Contains(err.Error(), "not come in") {
				t.Errorf("it is ready, or does not say why not: %v", err)
			}
			node.Tells(nil)
			checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			polltest.Until(t, "nothing is said of it any more", func() bool { return in.Status().Stuck == "" && in.Ready() == nil })
			if err := in.stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
