package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// TestNobodyProvesCode: one of two endpoints reports that a contract has code, with a wrong proof; the other is honest
// and has no proof, in a wording of its own. The code is soon assumed, or a liar could stop the blocks. If no endpoint
// has the block, it is gone.
func TestNobodyProvesCode(t *testing.T) {
	chain := rpctest.NewSparse(7, 20, 2, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close)
	hashes := make([]common.Hash, 20)
	for n := range hashes {
		hashes[n] = chain.Hash(uint64(n))
	}
	node := func(block bool) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rpctest.Serve(w, r, func(m rpctest.Message) string {
				switch m.Method {
				case "eth_getProof":
					return `{"accountProof":["0x00"]}`
				case "eth_getBlockByHash":
					var hash common.Hash
					_ = json.Unmarshal(m.Params[0], &hash)
					number, _ := json.Marshal(slices.Index(hashes, hash))
					if !block {
						return "null"
					}
					return chain.Answer(rpctest.Message{Method: "eth_getBlockByNumber", Params: []json.RawMessage{append(append([]byte(`"0x`), number...), '"')}})
				}
				return chain.Answer(m)
			})
		})
	}
	for _, test := range []struct {
		name  string
		fault *vain // of the honest one
		gone  bool  // nobody has the block
		most  time.Duration
	}{
		{"it prunes", &vain{says: `"error":{"code":-32000,"message":"distance to target block exceeds maximum proof window"}`}, false, 20 * time.Second},
		{"it has none", &vain{says: `"result":` + noMethod}, false, 20 * time.Second},
		{"null", &vain{says: `"result":null`}, false, 20 * time.Second},
		{"an odd error", &vain{says: `"error":{"code":-32000,"message":"proof window"}`}, false, 40 * time.Second},
		{"it is down", &vain{status: http.StatusBadGateway}, false, time.Minute},
		{"it has not the block either", &vain{says: `"result":null`}, true, 5 * time.Second},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			honest := test.fault
			honest.Handler, honest.methods = node(!test.gone), "eth_getProof"
			c := piped(t, func(*Config) {}, node(!test.gone), honest)
			honest.began.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			began := time.Now()
			is, _, err := c.provedCode(ctx, hashes[4], common.Address{1})
			if took := time.Since(began); is == test.gone || errors.Is(err, ErrGone) != test.gone || !test.gone && err != nil || took > test.most {
				t.Errorf("it has code: %t, after %s: %v", is, took, err)
			}
			if n := honest.calls.Load(); n > 60 {
				t.Errorf("asked %d times", n)
			}
			<-time.After(time.Second)
		})
	}
}
