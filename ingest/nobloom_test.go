package ingest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// TestNoBloomForged: the only node makes up one block, which it shows to the survey alone: a head without a bloom filter, with receipts that fit its
// root. So blooms are of no use, it says, and then it leaves out all logs of every other block of history: the topic has them all the same. Nor does
// what it said stand once final blocks with bloom filters came in.
func TestNoBloomForged(t *testing.T) {
	t.Parallel()
	w := lyingWorld(t)
	var (
		mu       sync.Mutex
		made     = map[common.Hash]common.Hash{} // which block each is made of
		surveyed = make(chan struct{})
	)
	node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
	shown := func() bool {
		select {
		case <-surveyed:
			return true
		default:
			return false
		}
	}
	node.Tells(func(_ http.ResponseWriter, r *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if h, tag := rpctest.Header(req, resp); h != nil && tag == "latest" && !shown() {
			var header types.Header
			if err := json.Unmarshal(resp.Result, &header); err != nil {
				t.Error(err)
				return false
			}
			was := header.Hash()
			header.Bloom = types.Bloom{}
			mu.Lock()
			made[header.Hash()] = was
			mu.Unlock()
			h["logsBloom"], h["hash"] = "0x"+strings.Repeat("0", 512), header.Hash()
			resp.Say(h)
			return false
		}
		if req.Method == "eth_getBlockReceipts" && len(req.Params) > 0 {
			var hash common.Hash
			_ = json.Unmarshal(req.Params[0], &hash)
			mu.Lock()
			was, is := made[hash]
			mu.Unlock()
			if !is {
				return false
			}
			var all []map[string]any
			if err := w.chain.Client().Client().CallContext(r.Context(), &all, "eth_getBlockReceipts", was); err != nil {
				t.Error(err)
				return false
			}
			for _, receipt := range all {
				for _, l := range receipt["logs"].([]any) {
					l.(map[string]any)["blockHash"] = hash
				}
			}
			resp.Error = nil
			resp.Say(all)
			return false
		}
		if logs, byNumber := rpctest.Logs(req, resp); byNumber && len(logs) > 0 {
			select {
			case <-surveyed:
			case <-r.Context().Done():
			}
			kept := logs[:0]
			for _, l := range logs {
				if n := l["blockNumber"].(string); strings.ContainsRune("02468ace", rune(n[len(n)-1])) {
					kept = append(kept, l)
				}
			}
			resp.Say(kept)
		}
		return false
	})
	cfg, topic := w.lyingConfig(t, "bloomless", rpc.Endpoint{URL: node.URL, Name: "liar"})
	in := run(t, cfg)
	polltest.Until(t, "it is believed that the chain has no bloom filters", func() bool {
		on, _ := gauge(t, in.reg, "lienstream_ingest_rpc_no_bloom")
		return on == 1
	})
	close(surveyed)
	checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
	w.step(t, 20)
	checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
	polltest.Until(t, "it is believed no longer that the chain has no bloom filters", func() bool {
		on, _ := gauge(t, in.reg, "lienstream_ingest_rpc_no_bloom")
		return on == 0 && in.Status().Bloomless == ""
	})
}
