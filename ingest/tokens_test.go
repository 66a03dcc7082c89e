package ingest_test

import (
	"encoding/binary"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// TestEndlessList: the only node says that the registry has ever more tokens, or the same ones again. Blocks come in all the same.
func TestEndlessList(t *testing.T) {
	t.Parallel()
	list := hexutil.Encode(contracts.Selector("tokens(uint256,uint256)"))
	for _, again := range []bool{false, true} {
		t.Run(map[bool]string{false: "ever more", true: "the same"}[again], func(t *testing.T) {
			t.Parallel()
			w := lyingWorld(t)
			var pages atomic.Uint64
			node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
			cfg, topic := w.lyingConfig(t, "endless", rpc.Endpoint{URL: node.URL, Name: "node"})
			in := run(t, cfg)
			checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			if err := in.stop(); err != nil {
				t.Fatal(err)
			}
			node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
				if req.Method != "eth_call" || !strings.Contains(string(req.Params[0]), list) {
					return false
				}
				page := make([]byte, (256+2)*32)
				page[31], page[32+30] = 32, 1
				n := pages.Add(1)
				for i := range 256 {
					word := page[(2+i)*32:][:32]
					if word[31] = byte(i); !again {
						binary.BigEndian.PutUint64(word[20:], n)
					}
				}
				resp.Error = nil
				resp.Say(hexutil.Bytes(page))
				return false
			})
			in = run(t, cfg)
			w.step(t, 3)
			checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
			if pages.Load() == 0 {
				t.Error("it was not asked for the list")
			}
			if err := in.stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
