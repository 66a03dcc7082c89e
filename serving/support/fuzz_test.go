package support

import (
	"errors"
	"testing"
)

// FuzzAnswered: what a node of the payment chain says is an answer, or a reason to ask another one.
func FuzzAnswered(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":null}`))
	f.Add([]byte(`{"id":1,"error":{"code":-32005,"message":"rate limit"}}`))
	f.Add([]byte(`{"id":1,"error":{"code":3,"message":"execution reverted: rate limit"}}`))
	f.Add([]byte(`<html>`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := answered(text); err != nil && !errors.Is(err, errPaymentNodes) && !errors.Is(err, errLimited) {
			t.Errorf("%q: %v", text, err)
		}
	})
}

// FuzzParseTokenKeys: a key is never empty, nor in an error.
func FuzzParseTokenKeys(f *testing.F) {
	f.Add("one\ntwo 2027-01-31T00:00:00Z\n")
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := ParseTokenKeys(text)
		for _, key := range keys {
			if key.Secret == "" || err != nil {
				t.Errorf("%q: %q, %v", text, key.Secret, err)
			}
		}
	})
}
