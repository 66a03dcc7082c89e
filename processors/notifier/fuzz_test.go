package notifier

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzParseRow: a key of the outbox names one alert.
func FuzzParseRow(f *testing.F) {
	f.Add(Address{Channel: Email}.Row())
	f.Fuzz(func(t *testing.T, key []byte) {
		if a, ok := ParseRow(key); ok && !bytes.Equal(a.Row(), key) {
			t.Errorf("%x is read as %x", key, a.Row())
		}
	})
}

// FuzzParseKeys: keys are read, at least one, or none are.
func FuzzParseKeys(f *testing.F) {
	f.Add("1:0000000000000000000000000000000000000000000000000000000000000001")
	f.Add("2:00,1:")
	f.Fuzz(func(t *testing.T, text string) {
		if k, err := ParseKeys(text); (err == nil) != (k != nil && len(k.all) > 0) {
			t.Errorf("%d bytes: %v", len(text), err)
		}
	})
}

// FuzzDecodeDeal: what is parsed is what encoding/json reads.
func FuzzDecodeDeal(f *testing.F) {
	d := openDeal{Deal: Deal{ID: "7", Amount: "5", Cap: "6", Price: "5", FundedAt: 1, Expiry: 2, GraceEnd: 3, Open: true}, After: 1, Armed: 2, Published: 4}
	d.json = d.Deal.encode()
	f.Add(d.appendRow(nil))
	f.Add([]byte(`{"deal":{"id":"\u0037","position":true},"after":01}`))
	f.Fuzz(func(t *testing.T, row []byte) {
		var got, want openDeal
		if !got.parse(row) {
			return
		}
		if err := json.Unmarshal(row, &want); err != nil {
			t.Fatalf("%q is parsed, but is %v", row, err)
		}
		if got.json = nil; got.Deal != want.Deal || got.After != want.After || got.Ended != want.Ended || got.Armed != want.Armed || got.Published != want.Published {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}
