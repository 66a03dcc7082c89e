package rpc

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics/pause"
)

// TestAfterAnOutage: the only node answers eth_getLogs by "internal error" for a minute. It is not taken for one that does not support
// eth_getLogs for longer than the outage took: then logs come again, and no receipts in their place.
func TestAfterAnOutage(t *testing.T) {
	const outage = time.Minute
	for _, proof := range []Proof{ProofOff, ProofTip} {
		inBubble(t, string(proof), func(t *testing.T) {
			chain := rpctest.NewSparse(7, 400, 1, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
			chain.Close() // it answers without a connection
			began := time.Now()
			var receipts atomic.Int64
			node := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body := new(bytes.Buffer)
				_, _ = body.ReadFrom(r.Body)
				if strings.Contains(body.String(), "eth_getLogs") && time.Since(began) < outage {
					_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"internal error"}}`))
					return
				}
				rpctest.Serve(w, httptest.NewRequest(http.MethodPost, "/", body), func(m rpctest.Message) string {
					if m.Method == "eth_getBlockReceipts" {
						receipts.Add(1)
					}
					return chain.Answer(m)
				})
			})
			c := piped(t, func(cfg *Config) { cfg.Proof = proof }, node)
			blocks := func() (last error) {
				for time.Since(began) < 20*time.Minute {
					if _, last = c.Blocks(t.Context(), 1, 300, 300); last == nil {
						break
					}
					if err := pause.For(t.Context(), time.Second); err != nil {
						t.Fatal(err)
					}
				}
				return last
			}
			if err := blocks(); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); proof == ProofOff && took > 2*outage+10*time.Second {
				t.Errorf("blocks came %s after the beginning of an outage of %s", took, outage)
			}
			if err := pause.For(t.Context(), 2*outage+10*time.Second-time.Since(began)); err != nil {
				t.Fatal(err)
			}
			receipts.Store(0)
			if err := blocks(); err != nil {
				t.Fatal(err)
			}
			if proof == ProofTip && receipts.Load() > 50 {
				t.Errorf("after the outage %d blocks were taken from their receipts", receipts.Load())
			}
		})
	}
}
