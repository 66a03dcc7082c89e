package ingest_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"testing"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// TestHighestHead: beside an honest node another one reports heads, or a finalized block, at the maximum number, with
// a valid hash. Blocks keep coming in, and no such height is published.
func TestHighestHead(t *testing.T) {
	t.Parallel()
	w := lyingWorld(t)
	for i, number := range []uint64{1 << 63, 1<<64 - 1} {
		for _, lied := range []string{"latest", "finalized"} {
			t.Run(fmt.Sprint(number, " ", lied), func(t *testing.T) {
				liar, honest := rpctest.NewLiar(t, w.chain.HTTP(), 0), rpctest.NewLiar(t, w.chain.HTTP(), 0)
				liar.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
					var h types.Header
					if _, tag := rpctest.Header(req, resp); tag == lied && json.Unmarshal(resp.Result, &h) == nil {
						h.Number = new(big.Int).SetUint64(number)
						resp.Say(&h) // with the hash of its fields
					}
					return false
				})
				cfg, topic := w.lyingConfig(t, fmt.Sprint("highest", i, lied), rpc.Endpoint{URL: liar.URL, Name: "liar"}, rpc.Endpoint{URL: honest.URL, Name: "honest"})
				in := run(t, cfg)
				for range 3 {
					w.step(t, 2)
					checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
					if s := in.Status(); s.Head > 1<<32 || s.Finalized > 1<<32 {
						t.Errorf("head %d, final %d", s.Head, s.Finalized)
					}
				}
				if err := in.stop(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
