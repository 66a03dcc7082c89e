package ingest_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// late answers what it is asked for in that way, and takes nearly as long as a request may.
func late(method string, tags ...string) rpctest.Lie {
	return func(_ http.ResponseWriter, r *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
		if req.Method != method {
			return false
		}
		var tag string
		_ = json.Unmarshal(req.Params[0], &tag)
		if len(tags) > 0 && !slices.Contains(tags, tag) {
			return false
		}
		select {
		case <-time.After(lateAnswer):
		case <-r.Context().Done():
		}
		return false
	}
}

const lateAnswer, lateTimeout = 1900 * time.Millisecond, 2 * time.Second

// ahead tells of heads that are so many blocks too high, and hash right.
func ahead(blocks int64) rpctest.Lie {
	return func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		m, tag := rpctest.Header(req, resp)
		var h types.Header
		if m == nil || tag != "latest" || json.Unmarshal(resp.Result, &h) != nil {
			return false
		}
		h.Number = new(big.Int).Add(h.Number, big.NewInt(blocks))
		resp.Say(&h)
		return false
	}
}

// TestNoLagBeside: an honest node is beside one that is faster, and late or wrong in one way. Blocks come in as if the
// other did not exist. They used to take half a minute beside a head that is three blocks too high.
func TestNoLagBeside(t *testing.T) {
	w := lyingWorld(t)
	others := []struct {
		name string
		tell rpctest.Lie
	}{
		{"honest", nil},
		{"head too high by 3", ahead(3)},
		{"head too high by 40", ahead(40)},
		{"heads late", late("eth_getBlockByNumber", "latest")},
		{"finalized late", late("eth_getBlockByNumber", "finalized", "safe")},
		{"headers late", late("eth_getBlockByNumber")},
		{"receipts late", late("eth_getBlockReceipts")},
		{"null receipts", func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if req.Method == "eth_getBlockReceipts" {
				resp.Result = json.RawMessage("null")
			}
			return false
		}},
		{"head too low by 10", func(_ http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if m, tag := rpctest.Header(req, resp); m != nil && tag == "latest" {
				n, _ := hexutil.DecodeUint64(m["number"].(string))
				if h, err := w.chain.Client().HeaderByNumber(r.Context(), new(big.Int).SetUint64(n-10)); err == nil {
					resp.Say(h)
				}
			}
			return false
		}},
	}
	all, lags := make([]*running, len(others)), make([][]time.Duration, len(others))
	for i, other := range others {
		liar, honest := rpctest.NewLiar(t, w.chain.HTTP(), 0), rpctest.NewLiar(t, w.chain.HTTP(), 5*time.Millisecond)
		cfg, topic := w.lyingConfig(t, fmt.Sprint("lag", i), rpc.Endpoint{URL: liar.URL, Name: "liar"}, rpc.Endpoint{URL: honest.URL, Name: "honest"})
		cfg.RPC.Timeout = lateTimeout
		all[i] = run(t, cfg)
		checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
		liar.Tells(other.tell)
	}
	for range 12 {
		w.step(t, 1)
		head, err := w.chain.Client().BlockNumber(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for i, in := range all {
			polltest.Within(t, time.Minute, func() error {
				if n := in.Status().Published.Number; n < head {
					return fmt.Errorf("%s: block %d of %d is published", others[i].name, n, head)
				}
				return nil
			})
			lags[i] = append(lags[i], time.Since(began))
		}
		<-time.After(150 * time.Millisecond) // the time between blocks
	}
	for i, other := range others {
		slices.Sort(lags[i])
		half, longest := lags[i][len(lags[i])/2], lags[i][len(lags[i])-1]
		t.Logf("%s: half within %s, the longest %s", other.name, half, longest)
		// As much as beside an honest one, however busy the machine is, and less than the other one delays.
		if half > 2*lags[0][len(lags[0])/2]+lateAnswer/2 || longest > 2*lags[0][len(lags[0])-1]+lateAnswer {
			t.Errorf("%s: half of the blocks took up to %s, the longest %s", other.name, half, longest)
		}
	}
}

// TestQuietChain: while no block comes, each poll asks one endpoint, and each endpoint is asked.
func TestQuietChain(t *testing.T) {
	w := lyingWorld(t)
	var heads [3]atomic.Int64
	var endpoints []rpc.Endpoint
	for i := range heads {
		node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
		node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if _, tag := rpctest.Header(req, resp); tag == "latest" {
				heads[i].Add(1)
			}
			return false
		})
		endpoints = append(endpoints, rpc.Endpoint{URL: node.URL, Name: fmt.Sprint(i)})
	}
	cfg, topic := w.lyingConfig(t, "quiet", endpoints...)
	cfg.PollInterval = 20 * time.Millisecond
	run(t, cfg)
	checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
	for i := range heads {
		heads[i].Store(0)
	}
	began := time.Now()
	<-time.After(2 * time.Second)
	most, sum := int64(time.Since(began)/cfg.PollInterval)+2, int64(0)
	for i := range heads {
		n := heads[i].Load()
		sum += n
		if n == 0 {
			t.Errorf("endpoint %d was not asked", i)
		}
	}
	if sum > most {
		t.Errorf("%d heads were asked for in %d polls", sum, most)
	}
}

// TestUnequalSpans: two endpoints that must agree return ranges of different lengths. They are compared over the same
// blocks, and an endpoint that omits a log is found out.
func TestUnequalSpans(t *testing.T) {
	t.Parallel()
	w := lyingWorld(t)
	span := func(blocks uint64, then rpctest.Lie) rpctest.Lie {
		return func(rw http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			var q struct{ FromBlock, ToBlock hexutil.Uint64 }
			if req.Method == "eth_getLogs" && json.Unmarshal(req.Params[0], &q) == nil && uint64(q.ToBlock-q.FromBlock) >= blocks {
				resp.Result, resp.Error = nil, json.RawMessage(fmt.Sprintf(`{"code":-32614,"message":"eth_getLogs is limited to a %d block range"}`, blocks))
				return false
			}
			return then != nil && then(rw, r, req, resp)
		}
	}
	dropsLast := ofLogs(func(logs []map[string]any, _ bool) any { return logs[:len(logs)-1] })
	for i, second := range []struct {
		name string
		tell rpctest.Lie
	}{{"honest", nil}, {"drops the last log", dropsLast}} {
		for k, spans := range [][2]uint64{{3, 20}, {20, 3}} {
			t.Run(fmt.Sprint(second.name, spans), func(t *testing.T) {
				t.Parallel()
				first, other := rpctest.NewLiar(t, w.chain.HTTP(), 0), rpctest.NewLiar(t, w.chain.HTTP(), time.Millisecond)
				first.Tells(span(spans[0], nil))
				other.Tells(span(spans[1], second.tell))
				cfg, topic := w.lyingConfig(t, fmt.Sprint("spans", i, k), rpc.Endpoint{URL: first.URL, Name: "first"}, rpc.Endpoint{URL: other.URL, Name: "other"})
				cfg.RPC.Proof, cfg.RPC.Confirm = rpc.ProofOff, 2
				in := run(t, cfg)
				checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
				if n := counted(t, in.reg, "first", "disagreement missing_logs"); n > 0 {
					t.Errorf("the honest endpoint was counted %v times", n)
				}
				if n := counted(t, in.reg, "other", "disagreement missing_logs"); (n > 0) != (second.tell != nil) {
					t.Errorf("the other endpoint was counted %v times", n)
				}
			})
		}
	}
}

// TestBusyBesideStuck: of two endpoints one is stuck, and the honest one throttles once. It used to be taken for a
// liar about heads, and nothing came in for a minute.
func TestBusyBesideStuck(t *testing.T) {
	w := lyingWorld(t)
	stuck, honest := rpctest.NewLiar(t, w.chain.HTTP(), 5*time.Millisecond), rpctest.NewLiar(t, w.chain.HTTP(), 0)
	cfg, topic := w.lyingConfig(t, "busy", rpc.Endpoint{URL: stuck.URL, Name: "stuck"}, rpc.Endpoint{URL: honest.URL, WS: w.chain.WS(), Name: "honest0"})
	in := run(t, cfg)
	checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
	at, err := w.chain.Client().HeaderByNumber(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	stuck.Tells(standing(at))
	// follows has blocks come until so many of them came in.
	blocks := time.NewTicker(250 * time.Millisecond)
	defer blocks.Stop()
	follows := func(more uint64) {
		for came := at.Number.Uint64() + more; in.Status().Verified < came; <-blocks.C {
			w.step(t, 1)
		}
	}
	follows(10)
	var asked atomic.Int64
	honest.Tells(func(rw http.ResponseWriter, _ *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
		if req.Method != "eth_getBlockReceipts" || asked.Add(1) > 1 {
			return false
		}
		rw.Header().Set("Retry-After", "1")
		rw.WriteHeader(http.StatusTooManyRequests)
		return true
	})
	began := time.Now()
	follows(30)
	if took := time.Since(began); took > 25*time.Second || asked.Load() == 0 {
		t.Errorf("20 blocks came in within %s, of %d requests", took, asked.Load())
	}
	if err := in.stop(); err != nil {
		t.Error(err)
	}
}
