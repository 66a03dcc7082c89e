package chain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/topics/polltest"
)

// Contracts of the test's genesis block.
var (
	numbering = common.HexToAddress("0x1000") // answers block.number
	reverting = common.HexToAddress("0x2000") // reverts with the four bytes 0xdeadbeef
	paying    = common.HexToAddress("0x3000") // sends what it gets on to rich
	rich      = common.HexToAddress("0x4000")
)

const genesisTime = 2_000_000_000

func newNode(t *testing.T) *devchain.Chain {
	t.Helper()
	node, err := devchain.New(devchain.Config{GenesisTime: genesisTime, SafeBlocks: 10, FinalizedBlocks: 10, Alloc: types.GenesisAlloc{
		numbering: {Balance: new(big.Int), Code: common.FromHex("0x4360005260206000f3")},
		reverting: {Balance: new(big.Int), Code: common.FromHex("0x63deadbeef60e01b60005260046000fd")},
		paying:    {Balance: new(big.Int), Code: common.FromHex("0x600080808034614000" + "5af100")},
		rich:      {Balance: big.NewInt(1e18)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	return node
}

func mine(t *testing.T, node *devchain.Chain, blocks int) *devchain.Block {
	t.Helper()
	var last *devchain.Block
	for range blocks {
		head, err := node.Client().HeaderByNumber(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if last, err = node.Mine(t.Context(), head.Time+1, nil); err != nil {
			t.Fatal(err)
		}
	}
	return last
}

func newClient(t *testing.T, log *zap.Logger, reg prometheus.Registerer, change func(*chain.Config), urls ...string) *chain.Client {
	t.Helper()
	cfg := chain.DefaultConfig()
	cfg.ChainID, cfg.Endpoints, cfg.Timeout, cfg.PollTimeout = devchain.DefaultChainID, urls, 300*time.Millisecond, 300*time.Millisecond
	if change != nil {
		change(&cfg)
	}
	c, err := chain.New(cfg, nil, log, reg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Run(ended) // closes the connections
	})
	return c
}

func quiet() (prometheus.Registerer, *zap.Logger) { return prometheus.NewRegistry(), zap.NewNop() }

func refresh(t *testing.T, c *chain.Client) chain.Block {
	t.Helper()
	head, err := c.Refresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return head
}

func TestCallsArePinnedToABlock(t *testing.T) {
	node := newNode(t)
	_, log := quiet()
	for name, url := range map[string]string{"http": node.HTTP(), "ws": node.WS()} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, log, prometheus.NewRegistry(), nil, url)
			var blocks []chain.Block
			for range 3 {
				mine(t, node, 1)
				blocks = append(blocks, refresh(t, c))
			}
			for _, b := range blocks {
				results, err := c.Calls(t.Context(), b.Hash, []chain.Call{{To: numbering}, {To: reverting}, {To: rich}})
				if err != nil {
					t.Fatal(err)
				}
				if got := new(big.Int).SetBytes(results[0].Data); !got.IsUint64() || got.Uint64() != b.Number {
					t.Errorf("at block %d the contract says %s", b.Number, got)
				}
				revert, ok := errors.AsType[*chain.RevertError](results[1].Err)
				if !ok || revert.Selector() != [4]byte{0xde, 0xad, 0xbe, 0xef} {
					t.Errorf("the second call came to %v", results[1].Err)
				}
				if results[2].Err != nil || len(results[2].Data) != 0 {
					t.Errorf("a call to no contract came to %x, %v", results[2].Data, results[2].Err)
				}
			}
			for account, has := range map[common.Address]bool{numbering: true, rich: false} {
				var code hexutil.Bytes
				r := chain.CodeAt(blocks[0].Hash, account, &code)
				if err := errors.Join(c.Batch(t.Context(), r), r.Err); err != nil || (len(code) > 0) != has {
					t.Errorf("code of %s: %s, %v", account, code, err)
				}
			}
			if err := node.Rewind(t.Context(), 2); err != nil {
				t.Fatal(err)
			}
			mine(t, node, 2)
			if _, err := c.Call(t.Context(), blocks[2].Hash, chain.Call{To: numbering}); !errors.Is(err, chain.ErrBlockGone) {
				t.Errorf("a call at a block that was reorganised away: %v", err)
			}
			if _, err := c.Call(t.Context(), common.Hash{1}, chain.Call{To: numbering}); !errors.Is(err, chain.ErrBlockGone) {
				t.Errorf("a call at a block that never was: %v", err)
			}
			if b, err := c.BlockByNumber(t.Context(), rpc.SafeBlockNumber); err != nil || b.Number+10 > refresh(t, c).Number+10 {
				t.Errorf("safe block: %+v, %v", b, err)
			}
			if _, err := c.BlockByNumber(t.Context(), chain.NumberOf(1<<40)); !errors.Is(err, chain.ErrBlockGone) {
				t.Errorf("a block of the future: %v", err)
			}
		})
	}
}

func TestALargeBatchIsSeveralRequests(t *testing.T) {
	node := newNode(t)
	mine(t, node, 1)
	reg := prometheus.NewRegistry()
	c := newClient(t, zap.NewNop(), reg, func(cfg *chain.Config) { cfg.MaxBatch = 3 }, node.HTTP())
	head := refresh(t, c)
	results, err := c.Calls(t.Context(), head.Hash, make([]chain.Call, 10))
	if err != nil || len(results) != 10 {
		t.Fatal(len(results), err)
	}
	want := `
# HELP lienstream_chain_calls_total Calls in requests, by method and result: ok, reverted, refused, gone, unsupported, failed.
# TYPE lienstream_chain_calls_total counter
lienstream_chain_calls_total{method="eth_call",outcome="ok"} 10
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "lienstream_chain_calls_total"); err != nil {
		t.Error(err)
	}
}

func TestTheHeadIsWhatAllAgreeOn(t *testing.T) {
	node := newNode(t)
	mine(t, node, 5)
	reg, log := quiet()
	one, two := rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0)
	behind := func(cfg *chain.Config) { cfg.MaxBehind, cfg.MaxStill = 3, time.Second }
	c := newClient(t, log, reg, behind, one.URL, two.URL)
	if _, err := c.Head(); !errors.Is(err, chain.ErrUnavailable) {
		t.Errorf("before the first look: %v", err)
	}
	if head := refresh(t, c); head.Number != 5 {
		t.Fatalf("head is %d", head.Number)
	}

	two.Tells(stuckAt(t, node, 1))
	if head := refresh(t, c); head.Number != 5 {
		t.Errorf("with an endpoint that fell back to 1, and another still at 5, the head is %d", head.Number)
	}
	two.Tells(stuckAt(t, node, 3))
	c = newClient(t, log, prometheus.NewRegistry(), behind, one.URL, two.URL)
	if head := refresh(t, c); head.Number != 3 {
		t.Errorf("with an endpoint at 3 the head is %d", head.Number)
	}
	two.Tells(stuckAt(t, node, 1))
	c = newClient(t, log, prometheus.NewRegistry(), behind, one.URL, two.URL)
	if head := refresh(t, c); head.Number != 1 {
		t.Errorf("with an endpoint far behind, which may have just begun, the head is %d", head.Number)
	}
	for deadline := time.Now().Add(10 * time.Second); refresh(t, c).Number != 5; {
		if time.Now().After(deadline) {
			t.Fatal("an endpoint that stands still has its say for ever")
		}
	}

	two.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		var block map[string]any
		if req.Method == "eth_getBlockByNumber" && json.Unmarshal(resp.Result, &block) == nil {
			block["hash"] = common.Hash{9}
			resp.Say(block)
		}
		return false
	})
	_, err := c.Refresh(t.Context())
	disagreement, ok := errors.AsType[*chain.DisagreementError](err)
	if !ok || disagreement.Number != 5 || len(disagreement.Hashes) != 2 {
		t.Fatalf("two hashes of one block: %v", err)
	}
	if _, err := c.Head(); err == nil {
		t.Error("there is a head while endpoints disagree")
	}
	two.Tells(nil)
	if head := refresh(t, c); head.Number != 5 {
		t.Errorf("head is %d after they agree again", head.Number)
	}
}

// TestNobodyIsSilencedByOneClaim: a height is only a claim, and a head far above those of most others does not make an
// endpoint credible.
func TestNobodyIsSilencedByOneClaim(t *testing.T) {
	node := newNode(t)
	mine(t, node, 5)
	inflated := func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if header, tag := rpctest.Header(req, resp); tag == "latest" {
			header["number"], header["hash"] = "0xfffffff", common.Hash{9}
			resp.Say(header)
		}
		return false
	}
	for _, honest := range []int{1, 2} {
		liar := rpctest.NewLiar(t, node.HTTP(), 0)
		liar.Tells(inflated)
		urls := []string{liar.URL}
		for range honest {
			urls = append(urls, rpctest.NewLiar(t, node.HTTP(), 0).URL)
		}
		c := newClient(t, zap.NewNop(), prometheus.NewRegistry(), func(cfg *chain.Config) { cfg.MaxStill = time.Hour }, urls...)
		if head := refresh(t, c); head.Number != 5 || head.Hash == (common.Hash{9}) {
			t.Errorf("with %d honest beside it the liar's head is believed: %d", honest, head.Number)
		}
	}
	// What no block can be is no block.
	for name, value := range map[string]string{"number": "0xffffffffffffffff", "timestamp": "0xffffffffffffffff"} {
		liar := rpctest.NewLiar(t, node.HTTP(), 0)
		liar.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if header, _ := rpctest.Header(req, resp); header != nil {
				header[name] = value
				resp.Say(header)
			}
			return false
		})
		c := newClient(t, zap.NewNop(), prometheus.NewRegistry(), nil, liar.URL)
		if head, err := c.Refresh(t.Context()); err == nil {
			t.Errorf("a block whose %s is %s is believed: %+v", name, value, head)
		}
	}
}

// TestFailureOfACall: what a contract does is an answer however the node words it; what a node will not do is not.
func TestFailureOfACall(t *testing.T) {
	node := newNode(t)
	mine(t, node, 1)
	liar := rpctest.NewLiar(t, node.HTTP(), 0)
	c := newClient(t, zap.NewNop(), prometheus.NewRegistry(), nil, liar.URL)
	head := refresh(t, c)
	for said, answer := range map[string]bool{
		`{"code":-32000,"message":"out of gas"}`:                  true,
		`{"code":-32000,"message":"invalid opcode: INVALID"}`:     true,
		`{"code":-32603,"message":"EVM error InvalidFEOpcode"}`:   true,
		`{"code":-32000,"message":"stack underflow (0 <=> 1)"}`:   true,
		`{"code":-32603,"message":"internal error"}`:              false,
		`{"code":-32000,"message":"the backend is not ready"}`:    false,
		`{"code":-32000,"message":"execution aborted (timeout)"}`: false,
	} {
		liar.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if req.Method == "eth_call" {
				resp.Result, resp.Error = nil, json.RawMessage(said)
			}
			return false
		})
		_, err := c.Call(t.Context(), head.Hash, chain.Call{To: numbering})
		if _, reverted := errors.AsType[*chain.RevertError](err); err == nil || reverted != answer {
			t.Errorf("%s: %v", said, err)
		}
	}
}

// TestARefusalThatDoesNotFit: a method that runs no code cannot revert, and a call without a sender cannot lack funds.
// The next node is asked.
func TestARefusalThatDoesNotFit(t *testing.T) {
	node := newNode(t)
	mine(t, node, 1)
	const reverted, poor = `{"code":3,"message":"execution reverted","data":"0x"}`, `{"code":-38014,"message":"insufficient funds for gas"}`
	var (
		coin      hexutil.Big
		data      hexutil.Bytes
		gas       hexutil.Uint64
		runs      chain.Simulations
		unsent    = chain.Call{To: numbering}
		sent      = chain.Call{From: rich, To: numbering}
		reverts   = func(err error) bool { _, ok := errors.AsType[*chain.RevertError](err); return ok }
		isRefusal = func(err error) bool { _, ok := errors.AsType[*chain.NodeError](err); return ok }
	)
	for name, tc := range map[string]struct {
		ask  func(at common.Hash) *chain.Request
		said string
		fits func(error) bool // nil: it does not, and another node answers
	}{
		"a balance reverts":   {func(at common.Hash) *chain.Request { return chain.BalanceAt(at, rich, &coin) }, reverted, nil},
		"code reverts":        {func(at common.Hash) *chain.Request { return chain.CodeAt(at, rich, &data) }, reverted, nil},
		"a view lacks funds":  {func(at common.Hash) *chain.Request { return chain.CallAt(at, unsent, &data) }, poor, nil},
		"a view reverts":      {func(at common.Hash) *chain.Request { return chain.CallAt(at, unsent, &data) }, reverted, reverts},
		"a call lacks funds":  {func(at common.Hash) *chain.Request { return chain.CallAt(at, sent, &data) }, poor, isRefusal},
		"an estimate reverts": {func(at common.Hash) *chain.Request { return chain.EstimateAt(at, sent, &gas) }, reverted, reverts},
		"an estimate lacks":   {func(at common.Hash) *chain.Request { return chain.EstimateAt(at, sent, &gas) }, poor, isRefusal},
		"a simulation has none": {func(at common.Hash) *chain.Request {
			return chain.SimulateAt(at, &runs, chain.SimulatedBlock{Timestamp: 1 << 33, Calls: []chain.Call{sent}})
		}, poor, isRefusal},
		"a simulation is revert": {func(at common.Hash) *chain.Request {
			return chain.SimulateAt(at, &runs, chain.SimulatedBlock{Timestamp: 1 << 33, Calls: []chain.Call{sent}})
		}, reverted, reverts},
	} {
		liar, honest := rpctest.NewLiar(t, node.HTTP(), 0), rpctest.NewLiar(t, node.HTTP(), 0)
		liar.Tells(refuses(tc.said, func(req rpctest.Message) bool {
			return req.Method != "eth_getBlockByNumber" && req.Method != "eth_chainId"
		}))
		c := newClient(t, zap.NewNop(), prometheus.NewRegistry(), nil, liar.URL, honest.URL)
		r := tc.ask(refresh(t, c).Hash)
		if err := c.Batch(t.Context(), r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if tc.fits == nil && r.Err != nil || tc.fits != nil && !tc.fits(r.Err) {
			t.Errorf("%s: %v", name, r.Err)
		}
	}
}

// stuckAt makes a node whose latest block is of that height.
func stuckAt(t *testing.T, node *devchain.Chain, number uint64) rpctest.Lie {
	return func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_getBlockByNumber" && string(req.Params[0]) == `"latest"` {
			var block json.RawMessage
			if err := node.Client().Client().CallContext(t.Context(), &block, req.Method, chain.NumberOf(number), false); err == nil {
				resp.Result = block
			}
		}
		return false
	}
}

func TestAnEndpointThatFailsIsPassedOver(t *testing.T) {
	node := newNode(t)
	mine(t, node, 1)
	for name, lie := range map[string]rpctest.Lie{
		"stalls": func(_ http.ResponseWriter, r *http.Request, _ rpctest.Message, _ *rpctest.Message) bool {
			<-r.Context().Done()
			return true
		},
		"another chain": func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if req.Method == "eth_chainId" {
				resp.Say("0x1")
			}
			return false
		},
		"too many requests": func(w http.ResponseWriter, _ *http.Request, _ rpctest.Message, _ *rpctest.Message) bool {
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		},
		"no JSON": func(w http.ResponseWriter, _ *http.Request, _ rpctest.Message, _ *rpctest.Message) bool {
			_, _ = w.Write([]byte("<html>"))
			return true
		},
		"too large": func(w http.ResponseWriter, _ *http.Request, _ rpctest.Message, _ *rpctest.Message) bool {
			_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":1,"result":"`))
			_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
			return true
		},
		"redirects": func(w http.ResponseWriter, r *http.Request, _ rpctest.Message, _ *rpctest.Message) bool {
			http.Redirect(w, r, node.HTTP(), http.StatusTemporaryRedirect)
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			liar := rpctest.NewLiar(t, node.HTTP(), 0)
			core, logs := observer.New(zap.InfoLevel)
			reg := prometheus.NewRegistry()
			small := func(cfg *chain.Config) { cfg.MaxBody, cfg.MaxSilent = 64<<10, 0 }
			c := newClient(t, zap.New(core), reg, small, liar.URL+"/secret-key", node.HTTP())
			head := refresh(t, c)
			liar.Tells(lie)
			if name == "another chain" { // it is proved already: a failure makes it prove itself again
				c = newClient(t, zap.New(core), prometheus.NewRegistry(), small, liar.URL+"/secret-key", node.HTTP())
			}
			if _, err := c.Call(t.Context(), head.Hash, chain.Call{To: numbering}); err != nil {
				t.Errorf("with an honest endpoint beside it: %v", err)
			}
			if head := refresh(t, c); head.Number == 0 {
				t.Error("no head")
			}

			alone := newClient(t, zap.New(core), prometheus.NewRegistry(), small, liar.URL+"/secret-key")
			_, err := alone.Call(t.Context(), head.Hash, chain.Call{To: numbering})
			_, wrong := errors.AsType[*chain.ChainError](err)
			if wrong != (name == "another chain") || !wrong && !errors.Is(err, chain.ErrUnavailable) {
				t.Errorf("alone: %v", err)
			}
			text := err.Error()
			if logs.Len() == 0 {
				t.Error("the failure is not in the log")
			}
			for _, entry := range logs.All() {
				text += entry.Message
				for _, v := range entry.ContextMap() {
					if s, ok := v.(string); ok {
						text += s
					}
				}
			}
			if strings.Contains(text, "secret-key") {
				t.Errorf("the endpoint's key shows: %s", text)
			}
		})
	}
}

func TestSimulation(t *testing.T) {
	node := newNode(t)
	mine(t, node, 1)
	honest, liar := node.HTTP(), rpctest.NewLiar(t, node.HTTP(), 0)
	liar.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_simulateV1" {
			resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32601,"message":"the method eth_simulateV1 does not exist/is not available"}`)
		}
		return false
	})
	calls := []chain.Call{
		{From: rich, To: paying, Value: big.NewInt(7)},
		{From: rich, To: reverting},
	}
	reg, log := quiet()
	both := newClient(t, log, reg, nil, liar.URL, honest)
	head := refresh(t, both)
	for range 2 { // the second time the one that has the method is asked first
		done, err := both.Simulate(t.Context(), head.Hash, chain.SimulatedBlock{Timestamp: head.Timestamp + 1, Calls: calls})
		if err != nil {
			t.Fatal(err)
		}
		if done[0].Err != nil || len(done[0].Logs) != 2 || done[0].Logs[0].Address != chain.NativeToken {
			t.Errorf("two transfers of the coin: %+v", done[0])
		}
		if done[1].Err == nil || done[1].Err.Selector() != [4]byte{0xde, 0xad, 0xbe, 0xef} || len(done[1].Logs) != 0 {
			t.Errorf("a revert: %+v", done[1])
		}
	}
	alone := newClient(t, log, prometheus.NewRegistry(), nil, liar.URL)
	if _, err := alone.Simulate(t.Context(), head.Hash, chain.SimulatedBlock{Timestamp: head.Timestamp + 1, Calls: calls}); !errors.Is(err, chain.ErrUnsupported) {
		t.Errorf("where no endpoint has the method: %v", err)
	}
}

func TestRunFollowsTheHead(t *testing.T) {
	node := newNode(t)
	reg, log := quiet()
	c := newClient(t, log, reg, func(cfg *chain.Config) { cfg.Poll = 5 * time.Millisecond }, node.WS())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	block := mine(t, node, 3)
	polltest.Until(t, "the head is followed", func() bool {
		head, err := c.Head()
		return err == nil && head.Hash == block.Hash
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestConfigNamesEveryFault(t *testing.T) {
	cfg := chain.Config{Endpoints: []string{"ftp://host/secret", "nothing"}}
	err := cfg.Validate()
	for _, want := range []string{"chain-id", "endpoint 0", "endpoint 1", "timeout", "poll", "stand still", "attempts", "calls of a batch", "body bytes", "requests at once"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Error("the fault repeats the URL")
	}
}

func FuzzSimulations(f *testing.F) {
	f.Add([]byte(`[{"calls":[{"returnData":"0x","gasUsed":"0x5208","status":"0x1","logs":[]}]}]`))
	f.Add([]byte(`[{"calls":[{"returnData":"0x","gasUsed":"0x1","status":"0x0","error":{"code":3,"message":"x","data":"0xdeadbeef"}}]}]`))
	f.Add([]byte(`[{"calls":[{"status":"0x1"}]},{"calls":[{"status":"0x1"},{"status":"0x0"}]}]`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var req struct {
				ID     json.RawMessage `json:"id"`
				Method string          `json:"method"`
			}
			_ = json.NewDecoder(r.Body).Decode(&req)
			result := answer
			if req.Method == "eth_chainId" {
				result = []byte(`"0x1237"`)
			}
			_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":` + string(req.ID) + `,"result":` + string(result) + `}`))
		}))
		defer server.Close()
		c := newClient(t, zap.NewNop(), prometheus.NewRegistry(), func(cfg *chain.Config) { cfg.Attempts = 1 }, server.URL)
		calls := []chain.Call{{To: rich}}
		if done, err := c.Simulate(t.Context(), common.Hash{1}, chain.SimulatedBlock{Timestamp: 1, Calls: calls}); err == nil && len(done) != 1 {
			t.Errorf("%d results of one call", len(done))
		}
		blocks := []chain.SimulatedBlock{{Timestamp: 1, Calls: calls}, {Timestamp: 2, Calls: append(calls, calls...)}}
		if done, err := c.Simulate(t.Context(), common.Hash{1}, blocks...); err == nil && len(done) != 3 {
			t.Errorf("%d results of three calls", len(done))
		}
	})
}

// TestOneNodeByTwoNames: a default port, the case of a name, a final dot and a key make no other node of one.
func TestOneNodeByTwoNames(t *testing.T) {
	for want, all := range [][][]string{
		1: {
			{"http://node.example", "http://node.example:80"},
			{"https://node.example/key1", "https://node.example:443/key2"},
			{"https://node.example", "https://NODE.example"},
			{"https://node.example", "wss://node.example:443"},
			{"https://node.example", "https://node.example./"},
			{"http://node.example", "ws://node.example"},
			{"http://node.example:8545", "ws://node.example:8546"}, // geth's ports
			{"ws://node.example:8546", "http://node.example:8545"},
			{"https://[2001:DB8::1]", "https://[2001:db8::1]:443"},
		},
		2: {
			{"http://node.example:8545", "http://node.example:8547"},
			{"ws://node.example:8546", "ws://node.example:8548"},
			{"https://one.example", "https://two.example"},
			{"http://node.example", "https://node.example"},
			{"http://node.example:1", "http://node.example:2", "ws://node.example:2", "ws://node.example:3"},
		},
	} {
		for _, urls := range all {
			if n := chain.Nodes(urls); n != want {
				t.Errorf("%v are %d nodes, want %d", urls, n, want)
			}
		}
	}
}

// A node's HTTP and WebSocket count as one node: WithOtherNode asks another one.
func TestEndpointsOfANodeAreOne(t *testing.T) {
	node, other := newNode(t), newNode(t)
	_, log := quiet()
	if n := chain.Nodes([]string{node.WS(), node.HTTP()}); n != 1 {
		t.Errorf("%d nodes", n)
	}
	mine(t, other, 1) // so it tells another head
	c := newClient(t, log, prometheus.NewRegistry(), nil, node.WS(), node.HTTP(), other.HTTP())
	if n := chain.Nodes([]string{node.WS(), node.HTTP(), other.HTTP()}); n != 2 {
		t.Errorf("%d nodes", n)
	}
	ctx, heads := chain.WithOtherNode(t.Context()), []uint64{}
	for range 4 {
		b, err := c.BlockByNumber(ctx, rpc.LatestBlockNumber)
		if err != nil {
			t.Fatal(err)
		}
		heads = append(heads, b.Number)
	}
	if !slices.Equal(heads, []uint64{0, 1, 0, 1}) {
		t.Errorf("heads %v", heads)
	}
}
