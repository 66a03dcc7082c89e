package rpc

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/trie"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// TestSilenceIsNoInability: a node that does not answer, or asks for fewer requests, however often, is not one that cannot prove a
// transaction. One that answers with errors of its own is.
func TestSilenceIsNoInability(t *testing.T) {
	raw := []byte{2, 0xc0}
	h := follow.Header{Transactions: types.DeriveSha(rawTransactions{raw}, trie.NewStackTrie(nil))}
	h.Number = 5
	for _, test := range []struct {
		name  string
		fault func(http.ResponseWriter, *http.Request)
		want  common.Hash
	}{
		{"is silent", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // or its end would not be noticed
			<-r.Context().Done()
		}, crypto.Keccak256Hash(raw)},
		{"asks for fewer requests", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }, crypto.Keccak256Hash(raw)},
		{"fails", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, common.Hash{}},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			var asked atomic.Int64
			c := piped(t, func(*Config) {}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if asked.Add(1) <= 3*unableTries {
					test.fault(w, r)
					return
				}
				rpctest.Serve(w, r, func(m rpctest.Message) string {
					switch m.Method {
					case "eth_getBlockTransactionCountByHash":
						return `"0x1"`
					case "eth_getRawTransactionByBlockHashAndIndex":
						return `"0x02c0"`
					}
					return `"0x7"` // the chain's ID
				})
			}))
			if hash, err := c.signed(t.Context(), &h, 0); err != nil || hash != test.want {
				t.Errorf("transaction %s, %v, want %s", hash, err, test.want)
			}
		})
	}
}
