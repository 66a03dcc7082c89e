package ingest_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// TestStandbyBesideASlowStart: the only node does not answer eth_call, so that a session takes much longer to start than
// a standby waits. The standby does not take over, and blocks come in once it has started.
func TestStandbyBesideASlowStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
	w.step(t, 5)
	node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
	cfg := w.config()
	cfg.RPC.Endpoints = []rpc.Endpoint{{URL: node.URL, Name: "node"}}
	cfg.Standby, cfg.Heartbeat, cfg.TakeoverAfter = true, 500*time.Millisecond, slowness*2*time.Second
	first := run(t, cfg)
	first.comesTo(t, w)
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}

	answers := make(chan struct{})
	node.Tells(func(_ http.ResponseWriter, r *http.Request, req rpctest.Message, _ *rpctest.Message) bool {
		if req.Method == "eth_call" {
			select {
			case <-answers:
			case <-r.Context().Done():
			}
		}
		return false
	})
	w.step(t, 1)
	atOnce := cfg
	atOnce.Standby = false
	active := run(t, atOnce)
	began := time.Now()
	standby := run(t, cfg)
	polltest.Within(t, time.Minute, func() error {
		if a, s := active.Status(), standby.Status(); a.Err != nil || s.Phase != ingest.PhaseStandby && s.Phase != ingest.PhaseStarting || s.Err != nil {
			t.Fatalf("the first one: %s, %v; the standby: %s, %v", a.Phase, a.Err, s.Phase, s.Err)
		}
		if waits := time.Since(began); waits < 3*cfg.TakeoverAfter {
			return fmt.Errorf("started %s ago", waits)
		}
		return nil
	})
	if p := standby.Status().Phase; p != ingest.PhaseStandby {
		t.Errorf("the standby is in phase %s", p)
	}
	close(answers)
	active.comesTo(t, w)
}
