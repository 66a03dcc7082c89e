package leaktest

import (
	"encoding/base64"
	"encoding/hex"
	"testing"
)

func TestSpellings(t *testing.T) {
	secret := []byte("Canary-\xff\x00Secret")
	for name, text := range map[string]string{
		"raw": "x" + string(secret) + "y", "hex": "0x" + hex.EncodeToString(secret), "odd hex": "abc" + hex.EncodeToString(secret),
		"base64": base64.StdEncoding.EncodeToString(secret), "url": "id." + base64.RawURLEncoding.EncodeToString(secret),
		"within base64": base64.StdEncoding.EncodeToString(append([]byte("12345"), secret...)),
		"behind base64": "QQ" + base64.RawURLEncoding.EncodeToString(secret), "case": "CANARY-\xff\x00sECRET",
	} {
		if !Spell([]byte(text)).Has(secret) {
			t.Errorf("%s: not found in %q", name, text)
		}
	}
	if Spell([]byte("Canary-\xff\x01Secret")).Has(secret) {
		t.Error("found what is not there")
	}
}
