package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is committed is what the structs of the events say now.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	files, err := generate()
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
