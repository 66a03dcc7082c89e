package x402

import (
	"errors"
	"strings"
	"testing"
)

// FuzzSettled: a facilitator is believed only where it says success, and its words are shown only if they are the protocol's.
func FuzzSettled(f *testing.F) {
	f.Add(200, []byte(`{"success":true,"transaction":"0x01","network":"eip155:8453"}`))
	f.Add(402, []byte(`{"success":false,"errorReason":"insufficient_funds"}`))
	f.Add(500, []byte(`{"success":false,"errorReason":"no: \n 0xsecret"}`))
	f.Add(502, []byte(`<html>`))
	f.Add(200, []byte(`null`))
	f.Fuzz(func(t *testing.T, status int, text []byte) {
		err := settled(status, text)
		if err == nil {
			if !strings.Contains(string(text), "true") {
				t.Errorf("%q is taken for a success", text)
			}
			return
		}
		if !errors.Is(err, ErrFacilitator) {
			t.Errorf("%q: %v", text, err)
		}
		if said := err.Error(); len(said) > 200 || strings.ContainsAny(said, "\n\r\\") {
			t.Errorf("%q is shown as %q", text, said)
		}
	})
}
