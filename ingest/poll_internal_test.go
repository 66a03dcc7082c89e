package ingest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics"
)

// TestPolledBeforeItWasGone: a head above the other endpoint's was polled, and then blocks below it turned out to be
// missing. It is not followed again, and the other endpoint's head is.
func TestPolledBeforeItWasGone(t *testing.T) {
	chain := rpctest.NewSparse(7, 300, 10, types.Log{Address: common.Address{1}, Data: make([]byte, 32)})
	t.Cleanup(chain.Close)
	tells := func(head uint64) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rpctest.Serve(w, r, func(m rpctest.Message) string {
				if m.Method == "eth_getBlockByNumber" && string(m.Params[0]) == `"latest"` {
					m.Params[0] = json.RawMessage(fmt.Sprintf(`"0x%x"`, head))
				}
				return chain.Answer(m)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.RPC.ChainID, cfg.RPC.Addresses = 7, []common.Address{{1}}
		cfg.RPC.Endpoints = []rpc.Endpoint{{URL: "http://claims"}, {URL: "http://honest"}}
		cfg.RPC.Dial = rpctest.Pipes(t, map[string]http.Handler{"claims": tells(202), "honest": tells(200)})
		client, err := rpc.New(cfg.RPC, zap.NewNop(), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		m, err := follow.New(cfg.follow(), []topics.BlockRef{{Number: 199, Hash: chain.Hash(199)}}, 100)
		if err != nil {
			t.Fatal(err)
		}
		in := &Ingester{cfg: cfg, log: zap.NewNop(), client: client, metrics: newMetrics(prometheus.NewRegistry(), new(board))}
		s := &session{in: in, m: m, known: true, finalized: 100, votes: newVotes(2)}
		polls := map[uint64]poll{}
		for range 4 {
			head, err := client.Head(t.Context(), 199)
			if err != nil {
				t.Fatal(err)
			}
			polls[head.Number] = poll{head: head}
			<-time.After(time.Second)
		}
		client.Forget(polls[202].head.By, false)
		for _, test := range []struct{ polled, follows uint64 }{{202, 0}, {200, 200}} {
			if err := s.polled(polls[test.polled]); err != nil || s.m.Head() != test.follows {
				t.Errorf("after head %d was polled, head %d is followed: %v", test.polled, s.m.Head(), err)
			}
		}
	})
}
