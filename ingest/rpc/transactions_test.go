package rpc

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/trie"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// TestTransactionsOfOthers: transactions of types that are not known, or are not what we take them for, and of blocks that are too big for
// one answer, are fetched as they were signed; those of Ethereum that do not match are a lie.
func TestTransactionsOfOthers(t *testing.T) {
	all := transactionsOf(t, rand.New(rand.NewPCG(1, 2)), 4)
	raw := rawTransactions{}
	for _, tx := range all {
		b, err := tx.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, b)
	}
	unknown, internal := []byte{0x55, 0xc1, 7}, []byte{0x6a, 0xc2, 9, 8} // nobody encodes the second like this
	withOthers := append(append(rawTransactions{}, raw...), unknown, internal)
	says := func(more ...any) string {
		list := []any{}
		for _, tx := range all {
			list = append(list, tx)
		}
		return string(blockOf(t, append(list, more...)))
	}
	others := []any{map[string]any{"type": "0x55", "hash": common.Hash{}}, map[string]any{"type": "0x6a", "chainId": "0x9", "input": "0x0102"}}
	for name, test := range map[string]struct {
		raw   rawTransactions
		says  string // empty: it is too big
		calls int    // of single transactions
		lie   bool
	}{
		"Ethereum's":          {raw, says(), 0, false},
		"of unknown types":    {withOthers, says(others...), 2, false},
		"too big":             {withOthers, "", 6, false},
		"changed":             {raw, strings.Replace(says(), `"nonce":"0x`, `"nonce":"0x1`, 1), 0, true},
		"of a made up type":   {raw, strings.Replace(says(), `"type":"0x2"`, `"type":"0x55"`, 1), 1, false},
		"one is made up":      {raw, says(others[0]), 0, true},
		"one is left out":     {withOthers, says(others[1]), 0, true},
		"too big, and no lie": {raw, "", 4, false},
	} {
		inBubble(t, name, func(t *testing.T) {
			var calls atomic.Int64
			c := piped(t, func(*Config) {}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				rpctest.Serve(w, r, func(m rpctest.Message) string {
					switch m.Method {
					case "eth_getBlockByHash":
						if test.says == "" {
							return "null" + strings.Repeat(" ", DefaultConfig().MaxBody)
						}
						return test.says
					case "eth_getRawTransactionByBlockHashAndIndex":
						calls.Add(1)
						var at hexutil.Uint64
						if at.UnmarshalJSON(m.Params[1]) != nil || int(at) >= len(test.raw) {
							return `"0x02c0"`
						}
						return fmt.Sprintf("%q", hexutil.Bytes(test.raw[at]))
					}
					return `"0x7"` // the chain's ID
				})
			}))
			h := follow.Header{Transactions: types.DeriveSha(test.raw, trie.NewStackTrie(nil))}
			e := c.endpoints[0]
			blocks, err := e.blocks(t.Context(), []follow.Header{h})
			var got []common.Hash
			if err == nil {
				got, err = e.hashes(t.Context(), &h, blocks[0], len(test.raw))
			}
			if (classify(err) == classLie) != test.lie || err != nil && !test.lie {
				t.Fatalf("%v", err)
			}
			if n := int(calls.Load()); n != test.calls {
				t.Errorf("%d transactions are asked for, want %d", n, test.calls)
			}
			for i := range test.raw {
				if err == nil && got[i] != crypto.Keccak256Hash(test.raw[i]) {
					t.Errorf("transaction %d is %s", i, got[i])
				}
			}
		})
	}
}
