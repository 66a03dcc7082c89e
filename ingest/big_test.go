package ingest_test

import (
	"net/http"
	"testing"

	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// TestBigBlocks: the only endpoint never returns all receipts of a block at once, and at most those of three
// transactions: a stranger fills the blocks with logs. At the tip and in a backfill the receipts are fetched one by
// one, and prove the logs.
func TestBigBlocks(t *testing.T) {
	t.Parallel()
	w := lyingWorld(t)
	node := rpctest.NewProvider(t, w.chain.HTTP(), func(_ *http.Request, asked []rpctest.Message) rpctest.Refusal {
		receipts := 0
		for _, m := range asked {
			switch m.Method {
			case "eth_getBlockReceipts":
				receipts += 4
			case "eth_getTransactionReceipt":
				receipts++
			}
		}
		if receipts > 3 {
			return answered(-32008, "Response is too big")
		}
		return rpctest.Refusal{}
	})
	cfg, topic := w.lyingConfig(t, "big", rpc.Endpoint{URL: node.URL, Name: "node"})
	cfg.RPC.Timeout = rpc.DefaultConfig().Timeout // the machine may be busy
	in := run(t, cfg)
	for range 3 {
		checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
		w.step(t, 2)
	}
	checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
	if n := value(t, in.reg, "lienstream_ingest_rpc_proved_blocks_total"); n == 0 {
		t.Error("no block was proved")
	}
}
