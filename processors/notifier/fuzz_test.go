package notifier

import (
	"bytes"
	"encoding/json"
	"reflect"
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

// FuzzDecodeRows: what is parsed is what encoding/json reads.
func FuzzDecodeRows(f *testing.F) {
	d := openDeal{Deal: Deal{ID: "7", Amount: "5", Cap: "6", Price: "5", FundedAt: 1, Expiry: 2, GraceEnd: 3, Open: true}, After: 1, Armed: 2, Published: 4}
	d.json = d.Deal.encode()
	f.Add(d.appendRow(nil))
	f.Add([]byte(`{"deal":{"id":"\u0037","position":true},"after":01}`))
	f.Add((&Alert{Terms: d.Deal.terms(), Stage: Before6, Due: 5, FiredAt: 6, Next: 7}).appendFired(nil))
	for _, row := range []string{`{"deal":{}`, `{"deal":{,"expiry":1},"stage":1}`, `,"sealed":"","mask":""}`} {
		f.Add([]byte(row))
	}
	for _, row := range []any{
		&Alert{Terms: d.Deal.terms(), Due: 5, FiredAt: 6, Attempt: 7, Next: 8, Reason: "r", By: "b", Held: true},
		&Alert{Terms: d.Deal.terms(), Due: 5, FiredAt: 6, Attempt: 7, Next: 8, Held: true, Waits: true},
		&Subscription{Channel: Email, Sealed: []byte{1}, Mask: "a•••@example.com", Prefs: 3, CreatedAt: 4, Unix: 5, Disabled: "d"},
		&Subscription{Channel: Email, Sealed: []byte{1}, Mask: "a•••@example.com", Prefs: 3, CreatedAt: 4, Unix: 5},
	} {
		text, err := json.Marshal(row)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, row []byte) {
		var deal, isDeal openDeal
		var due, isDue dueRow
		var asks, isAsked subscribeRow
		for _, one := range []struct{ got, want any }{{&deal, &isDeal}, {&due, &isDue}, {&asks, &isAsked}} {
			if !one.got.(interface{ parse(row []byte) bool }).parse(row) {
				continue
			}
			deal.json = nil
			if err := json.Unmarshal(row, one.want); err != nil || !reflect.DeepEqual(one.got, one.want) {
				t.Errorf("%q is parsed as %+v, but is %+v: %v", row, one.got, one.want, err)
			}
		}
	})
}
