package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is committed is what the structs of events and entities say now.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	files, err := generate("..")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		have, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(have), string(want)); diff != "" {
			t.Errorf("%s differs from what go generate writes (-have +want):\n%s", name, diff)
		}
	}
}

// A field that no column fits stops the generator, and is named.
func TestFaultsNameTheField(t *testing.T) {
	for text, want := range map[string]string{
		"//entity:topic 99 key\ntype A struct {\n\tSeen map[string]bool\n}":                  "A.Seen: no column for map[string]bool",
		"//entity:topic 99 key\ntype A struct {\n\tB *B\n}\ntype B struct {\n\tC float64\n}": "A.B.C: no column for float64",
		"//entity:topic 99 key\ntype A struct {\n\tS string `zero:\"null\"`\n}":              "A.S: a string cannot be null for zero",
		"//entity:topic x key\ntype A struct {\n}":                                           "want a schema ID",
		"//entity:topic 9 key\ntype A struct {\n}\n//entity:topic 9 key\ntype B struct {\n}": "have the same schema ID 9",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("package topics\n\n"+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := generate(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestSnake(t *testing.T) {
	for in, want := range map[string]string{
		"DealID": "deal_id", "At": "at", "AmountOrTokenID": "amount_or_token_id", "UIMultiplier": "ui_multiplier",
		"FeeBps": "fee_bps", "MaxOpenRaw": "max_open_raw", "N": "n", "BidID": "bid_id",
	} {
		if have := snake(in); have != want {
			t.Errorf("snake(%s) = %s, want %s", in, have, want)
		}
	}
}
