package rpc

import (
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
)

// FuzzNotification: a message of a subscription is a head, a hint without one, or a response.
func FuzzNotification(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":"0x1","result":{"number":"0x1","hash":"0x` + common.Hash{1}.Hex()[2:] + `"}}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":"0x1"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, proved := range []bool{true, false} {
			if h, ok := notification(b, proved); !ok && h.Hash != (common.Hash{}) {
				t.Errorf("%q is no head, and block %d", b, h.Number)
			}
		}
		idAt(scanner{b: b})
	})
}

// FuzzTransaction: what a node says a transaction's hash is.
func FuzzTransaction(f *testing.F) {
	f.Add([]byte(`{"hash":"` + common.Hash{1}.Hex() + `","from":"0x00"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := decodeTransaction(&scanner{b: b}); err != nil && h != (common.Hash{}) {
			t.Errorf("%q is malformed, and transaction %s", b, h)
		}
	})
}

// FuzzRetryAfter: a node cannot have itself asked before now.
func FuzzRetryAfter(f *testing.F) {
	f.Add("120")
	f.Add("Wed, 21 Oct 2026 07:28:00 GMT")
	f.Fuzz(func(t *testing.T, header string) {
		if d := retryAfter(header, time.Unix(1_790_000_000, 0)); d < 0 {
			t.Errorf("%q is %s", header, d)
		}
	})
}
