package ingest_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// TestCallsOfABlock: at the tip, the only node answers one kind of request wrongly until the next block. Apart from
// polls of its head, it gets at most 60 requests in the 12 s of a slow chain's block; the test waits for half of that.
// Afterwards ingestion goes on.
func TestCallsOfABlock(t *testing.T) {
	t.Parallel()
	const most, blockTime = 60, 6 * time.Second
	polled := map[string]bool{`"latest"`: true, `"finalized"`: true, `"safe"`: true}
	w := lyingWorld(t)
	type asked struct {
		liar  *rpctest.Liar
		calls atomic.Int64
		topic string
	}
	lies := slices.Clone(lies)
	lies = slices.DeleteFunc(lies, func(l lie) bool { return l.ranges }) // which nobody asks for at the tip
	all := make([]asked, len(lies))
	cfg, _ := w.lyingConfig(t, "tip")
	for i := range lies {
		a := &all[i]
		a.liar = rpctest.NewLiar(t, w.chain.HTTP(), 0)
		cfg, a.topic = w.lyingConfig(t, fmt.Sprint("tip", i), rpc.Endpoint{URL: a.liar.URL, Name: "liar"})
		_ = run(t, cfg)
	}
	for i := range all {
		checkTopic(t, cfg.Kafka, all[i].topic, w.market.Deployment, w.chain.Client())
	}
	for i, lie := range lies {
		all[i].liar.Tells(func(rw http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if req.Method != "eth_getBlockByNumber" || !polled[string(req.Params[0])] {
				all[i].calls.Add(1)
			}
			return lie.tell(rw, r, req, resp)
		})
	}
	w.step(t, 1)
	<-time.After(blockTime) // what must not come has no moment to wait for
	for i, lie := range lies {
		if n := all[i].calls.Load(); n > most/2 {
			t.Errorf("%s: %d calls in %s", lie.name, n, blockTime)
		} else {
			t.Logf("%s: %d calls", lie.name, n)
		}
		all[i].liar.Tells(nil)
	}
	for i := range all {
		checkTopic(t, cfg.Kafka, all[i].topic, w.market.Deployment, w.chain.Client())
	}
}
