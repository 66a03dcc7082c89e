package ingest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// lacking is a lie by which a node does not know some methods, and how often it was asked each of the same.
type lacking struct {
	methods string

	mu    sync.Mutex
	asked map[string]int
}

func (l *lacking) tell(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
	if strings.Contains(l.methods, req.Method) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.asked == nil {
			l.asked = map[string]int{}
		}
		l.asked[req.Method+string(req.Params[0])]++
		resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32601,"message":"the method `+req.Method+` does not exist/is not available"}`)
	}
	return false
}

// most is how often one request came.
func (l *lacking) most() (most int, request string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r, n := range l.asked {
		if n > most {
			most, request = n, r
		}
	}
	return most, request
}

// TestNoGetLogs: blocks of a node without eth_getLogs come in by its receipts, and the status reports it. Without
// proofs, or without receipts, nothing comes in, and the reason is reported. No request is repeated without a pause.
func TestNoGetLogs(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		lacks string
		proof rpc.Proof
		says  string // empty: all comes in
	}{
		{"eth_getLogs", rpc.ProofTip, ""},
		{"eth_getLogs", rpc.ProofSparse, ""},
		{"eth_getLogs", rpc.ProofOff, "supports eth_getLogs"},
		{"eth_getLogs eth_getBlockReceipts", rpc.ProofTip, "can prove logs"},
	} {
		t.Run(fmt.Sprint(c.lacks, " ", c.proof), func(t *testing.T) {
			t.Parallel()
			w := lyingWorld(t)
			lacks := &lacking{methods: c.lacks}
			node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
			node.Tells(lacks.tell)
			cfg, topic := w.lyingConfig(t, fmt.Sprint("nologs", i), rpc.Endpoint{URL: node.URL, Name: "node"})
			cfg.RPC.Proof = c.proof
			in := run(t, cfg)
			if c.says == "" {
				checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
				polltest.Until(t, "the status says where logs come from", func() bool {
					return strings.Contains(strings.Join(in.Status().Unproved, ""), "come from the receipts")
				})
			} else {
				began := time.Now()
				polltest.Until(t, "the status says what is missing", func() bool {
					s := in.Status()
					return time.Since(began) > 5*time.Second && (strings.Contains(s.Stuck, c.says) || s.Err != nil && strings.Contains(s.Err.Error(), c.says))
				})
			}
			if n, request := lacks.most(); n == 0 || n > 60 {
				t.Errorf("asked %d times for %.120s", n, request)
			}
		})
	}
}

// TestNoGetLogsBeside: a node without eth_getLogs is not asked for logs again if another one supports it, and takes no
// part in agreeing on them.
func TestNoGetLogsBeside(t *testing.T) {
	t.Parallel()
	w := lyingWorld(t)
	lacks := &lacking{methods: "eth_getLogs"}
	node, other := rpctest.NewLiar(t, w.chain.HTTP(), 0), rpctest.NewLiar(t, w.chain.HTTP(), 5*time.Millisecond)
	node.Tells(lacks.tell)
	cfg, topic := w.lyingConfig(t, "nologsbeside", rpc.Endpoint{URL: node.URL, Name: "node"}, rpc.Endpoint{URL: other.URL, Name: "other"})
	cfg.RangeBlocks = 5
	in := run(t, cfg)
	checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
	lacks.mu.Lock()
	asked := len(lacks.asked)
	lacks.mu.Unlock()
	if asked == 0 || asked > 16 { // those that run at once, and the survey
		t.Errorf("it was asked for logs in %d requests", asked)
	}
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
}

// TestNoGetLogsAndNoList: if neither the registry's list nor eth_getLogs is available, a session finds the registered
// tokens in receipts.
func TestNoGetLogsAndNoList(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
	lacks := &lacking{methods: "eth_getLogs"}
	list := strings.TrimPrefix(hexutil.Encode(contracts.Selector("tokens(uint256,uint256)")), "0x")
	node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
	node.Tells(func(rw http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_call" && strings.Contains(string(req.Params[0]), list) {
			resp.Result, resp.Error = nil, json.RawMessage(`{"code":3,"message":"execution reverted"}`)
		}
		return lacks.tell(rw, r, req, resp)
	})
	cfg := w.config()
	cfg.RPC.Endpoints = []rpc.Endpoint{{URL: node.URL, Name: "node"}}
	w.step(t, 20)
	in := run(t, cfg)
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
	w.probedAgain(t, cfg)
}
