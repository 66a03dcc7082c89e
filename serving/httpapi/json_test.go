package httpapi

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holiman/uint256"
)

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "NVDA", `a"b\c`, "<script>", "\x00\x1f", "é🙂", "\xff\xfe", "\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var back string
		if err := json.Unmarshal(AppendString(nil, s), &back); err != nil {
			t.Fatal(err)
		}
		if want := strings.ToValidUTF8(s, "\uFFFD"); utf8.ValidString(s) && back != want {
			t.Fatalf("%q came back as %q", s, back)
		}
	})
}

func FuzzAppendDecimal(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte(strings.Repeat("\xff", 32)))
	f.Add(new(uint256.Int).Exp(uint256.NewInt(10), uint256.NewInt(19)).Bytes())
	f.Add(new(uint256.Int).Exp(uint256.NewInt(10), uint256.NewInt(57)).Bytes())
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 32 {
			return
		}
		n := new(uint256.Int).SetBytes(raw)
		if got := string(AppendDecimal(nil, n)); got != n.Dec() {
			t.Fatalf("%s, want %s", got, n.Dec())
		}
	})
}
