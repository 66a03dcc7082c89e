package notifier

import (
	"bytes"
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
