package valuation

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/holiman/uint256"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/serving/chain"
)

// TestAnAnswerAgesWithItsBlock: while the chain or the index stands still, an answer that was right is refused as every
// other one is, cached or not.
func TestAnAnswerAgesWithItsBlock(t *testing.T) {
	w := newWorld(t)
	path := "/assets/" + w.dep.TKN.Hex() + "/value"
	w.service.cfg.MaxAge = time.Minute
	clock := time.Unix(int64(w.state().at.Timestamp), 0)
	w.service.now = func() time.Time { return clock }
	for _, after := range []struct {
		passed time.Duration
		status int
	}{{0, 200}, {time.Minute, 200}, {time.Second, 503}} {
		clock = clock.Add(after.passed)
		for _, target := range []string{path, "/quote/entry?eth=1000000000"} {
			if status, body := w.ask(target); status != after.status {
				t.Errorf("%s at %s: %d %s, want %d", target, clock, status, body, after.status)
			}
		}
	}
}

// TestANodeThatDoesNotSayWhetherTheDollarIsPaused: then there is no number, for it may be.
func TestANodeThatDoesNotSayWhetherTheDollarIsPaused(t *testing.T) {
	w := newWorld(t)
	moody := rpctest.NewLiar(t, w.node.HTTP(), 0)
	moody.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_call" && bytes.Contains(bytes.ToLower(req.Params[0]), []byte(lower(w.dep.USDG))) {
			resp.Result, resp.Error = nil, []byte(`{"code":-32000,"message":"the backend is not ready"}`)
		}
		return false
	})
	on := chain.DefaultConfig()
	on.ChainID, on.Endpoints = w.dep.ChainID, []string{moody.URL}
	client, err := chain.New(on, nil, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	w.service.chain.client = client
	if status, body := w.ask("/assets/" + w.dep.TKN.Hex() + "/value"); status != 503 || !bytes.Contains(body, []byte("UPSTREAM_UNAVAILABLE")) {
		t.Errorf("%d %s", status, body)
	}
}

// TestAStockOfWhichTheIndexDoesNotKnow: this pipeline probes no token. So the chain is asked whether stocks are paused, and one that is
// has no price, nor has one of which the node does not say.
func TestAStockOfWhichTheIndexDoesNotKnow(t *testing.T) {
	w := newWorld(t)
	by := w.deployer()
	var stock common.Address
	for token, a := range w.state().assets {
		if _, body := w.ask("/assets/" + token.Hex() + "/value"); a.Lane == contracts.LaneStock && a.Paused == nil && bytes.Contains(body, []byte("priceRaw")) {
			stock = token
		}
	}
	if stock == (common.Address{}) {
		t.Fatal("no stock has a price")
	}
	target := "/assets/" + stock.Hex() + "/value"
	priced := func(want bool, when string) {
		t.Helper()
		if status, body := w.ask(target); (status == http.StatusOK) != want || !want && !bytes.Contains(body, []byte("PRICE_UNRELIABLE")) {
			t.Errorf("%s: %d %s", when, status, body)
		}
	}
	w.mine(1, by.call(stock, own(t, "StockToken"), "pause"))
	priced(false, "paused")
	w.mine(1, by.call(stock, own(t, "StockToken"), "unpause"))
	priced(true, "no more")
	for name, say := range map[string]func(*rpctest.Message){
		"its oracle is paused": func(resp *rpctest.Message) { resp.Error = nil; resp.Say(hexutil.Bytes(word(1))) },
		"the node does not say": func(resp *rpctest.Message) {
			resp.Result, resp.Error = nil, []byte(`{"code":-32000,"message":"the backend is not ready"}`)
		},
	} {
		node := rpctest.NewLiar(t, w.node.HTTP(), 0)
		node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if req.Method == "eth_call" && bytes.Contains(req.Params[0], []byte(hexutil.Encode(selectorOracle))) {
				say(resp)
			}
			return false
		})
		w.answersFrom([]string{node.URL})
		priced(false, name)
	}
}

// TestANodeThatRefuses: whatever a node says in place of an answer, the service is unavailable and not at fault.
func TestANodeThatRefuses(t *testing.T) {
	w := newWorld(t)
	node := rpctest.NewLiar(t, w.node.HTTP(), 0)
	w.asks(node.URL)
	position, token := "", "/assets/"+w.dep.TKN.Hex()
	for id := range uint64(200) {
		if answer, err := w.service.reader.DealWithReward(t.Context(), uint256.NewInt(id)); err == nil && answer.Value.Deal.Kind == contracts.KindPosition {
			position = "/deals/" + strconv.FormatUint(id, 10) + "/valuation"
		}
	}
	targets := []string{position, token + "/value", token + "/facts", "/range/suggest?term=604800&pool=" + w.dep.PoolID.Hex(), "/quote/entry?eth=1000000000"}
	for name, say := range map[string]func(resp *rpctest.Message){
		"a refusal": func(resp *rpctest.Message) {
			resp.Result, resp.Error = nil, []byte(`{"code":-32000,"message":"the backend is not ready"}`)
		},
		"a fault": func(resp *rpctest.Message) {
			resp.Result, resp.Error = nil, []byte(`{"code":-32603,"message":"internal error"}`)
		},
		"no method": func(resp *rpctest.Message) {
			resp.Result, resp.Error = nil, []byte(`{"code":-32601,"message":"no such method"}`)
		},
		"a revert": func(resp *rpctest.Message) {
			resp.Result, resp.Error = nil, []byte(`{"code":3,"message":"execution reverted","data":"0x"}`)
		},
		"nothing":       func(resp *rpctest.Message) { resp.Say("0x") },
		"null":          func(resp *rpctest.Message) { resp.Say(nil) },
		"another thing": func(resp *rpctest.Message) { resp.Say([]int{1}) },
	} {
		for _, known := range []bool{false, true} { // whether the block's pools are, already
			node.Tells(nil)
			w.mine(1)
			if known {
				w.state()
			}
			node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
				if req.Method != "eth_chainId" {
					say(resp)
				}
				return false
			})
			for _, target := range targets {
				status, body := w.ask(target)
				if status == http.StatusOK && known || status == http.StatusServiceUnavailable && bytes.Contains(body, []byte("UPSTREAM_UNAVAILABLE")) {
					continue
				}
				t.Errorf("%s, the pools known: %t: %s: %d %s", name, known, target, status, body)
			}
		}
	}
}

// TestReadyAlthoughTheChainIsAway: a service that has begun stays there to say what is wrong.
func TestReadyAlthoughTheChainIsAway(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.service.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	if w.service.server.Addr() == "" {
		t.Fatal("it does not listen")
	}
	if err := w.service.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.play(1)
	if err := w.node.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.service.Ready(t.Context()); err != nil {
		t.Errorf("not there to answer: %v", err)
	}
}
