package valuation

import (
	"bytes"
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

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
