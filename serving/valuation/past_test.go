package valuation

import (
	"encoding/json"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// oldWorld is a world of 30 hours, asked through a node that may lie.
func oldWorld(t *testing.T) (*world, *rpctest.Liar) {
	t.Helper()
	w := newWorld(t)
	for range 15 {
		w.mine(2 * 3600)
	}
	node := rpctest.NewLiar(t, w.node.HTTP(), 0)
	w.asks(node.URL)
	return w, node
}

// TestFeesAreEstimatedFromOneBlock: the block of a day ago is looked for once an hour, for all pools and all concurrent
// requests; what a node refuses is asked again a minute later.
func TestFeesAreEstimatedFromOneBlock(t *testing.T) {
	w, node := oldWorld(t)
	var blocks atomic.Int64
	var refuses atomic.Bool
	node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		var data string
		switch {
		case req.Method == "eth_getBlockByNumber":
			blocks.Add(1)
		case refuses.Load() && req.Method == "eth_call" && json.Unmarshal(resp.Result, &data) == nil && len(data) == 2+2*(64+32*2):
			resp.Result, resp.Error = nil, []byte(`{"code":-32000,"message":"the backend is not ready"}`)
		}
		return false
	})
	var pools []string
	estimate := func(pool string) (*int64, bool) {
		status, raw := w.ask("/range/suggest?term=604800&pool=" + pool)
		var b rangeBody
		if status == http.StatusOK {
			if err := json.Unmarshal(raw, &b); err != nil {
				t.Fatal(err)
			}
		}
		return b.FeeEstimateBps, status == http.StatusOK
	}
	for _, p := range w.state().pools {
		looked := blocks.Load()
		if fees, ok := estimate(p.ID.Hex()); !ok {
			continue
		} else if fees == nil {
			t.Fatalf("the fees of pool %s are unknown", p.ID)
		}
		if pools = append(pools, p.ID.Hex()); len(pools) > 1 && blocks.Load() > looked {
			t.Errorf("%d blocks are read for pool %d", blocks.Load()-looked, len(pools))
		}
	}
	if len(pools) < 2 || blocks.Load() == 0 {
		t.Fatalf("%d pools, %d blocks", len(pools), blocks.Load())
	}

	w.mine(3600)
	w.state()
	waits := testutil.ToFloat64(w.service.metrics.fees)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if fees, ok := estimate(pools[0]); !ok || fees == nil {
				t.Error("no estimate where many ask at once")
			}
		})
	}
	all.Wait()
	if n := testutil.ToFloat64(w.service.metrics.fees) - waits; n != 1 {
		t.Errorf("16 who ask at once wait for %g reads", n)
	}

	w.mine(3600)
	w.state()
	clock := time.Now()
	w.service.now = func() time.Time { return clock }
	refuses.Store(true)
	if fees, ok := estimate(pools[0]); !ok || fees != nil {
		t.Errorf("a node refuses: %v, %t", fees, ok)
	}
	refuses.Store(false)
	waits = testutil.ToFloat64(w.service.metrics.fees)
	if fees, ok := estimate(pools[0]); !ok || fees != nil || testutil.ToFloat64(w.service.metrics.fees) != waits {
		t.Errorf("it is asked again at once: %v, %t", fees, ok)
	}
	clock = clock.Add(retryAfter)
	w.mine(1)
	if fees, ok := estimate(pools[0]); !ok || fees == nil {
		t.Errorf("a minute later: %v, %t", fees, ok)
	}
}

// TestFeesWhileTheChainIsReorganised: a node that lacks the state's own block cannot say whether it has pruned what is before that. It
// is no reason to answer that the fees are unknown: the caller is to ask again.
func TestFeesWhileTheChainIsReorganised(t *testing.T) {
	w, node := oldWorld(t)
	pool := w.state().pools[0].ID.Hex()
	var most atomic.Uint64
	node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		var number hexutil.Uint64
		if req.Method == "eth_getBlockByNumber" && json.Unmarshal(req.Params[0], &number) == nil && uint64(number) <= most.Load() {
			resp.Result = json.RawMessage("null")
		}
		return false
	})
	for _, c := range []struct {
		lacks  uint64
		status int
	}{
		{math.MaxUint64, http.StatusServiceUnavailable},
		{w.state().at.Number - 1, http.StatusOK}, // it has pruned them
	} {
		most.Store(c.lacks)
		if status, body := w.ask("/range/suggest?term=604800&pool=" + pool); status != c.status {
			t.Errorf("a node without blocks up to %d: %d %s", c.lacks, status, body)
		}
	}
}
