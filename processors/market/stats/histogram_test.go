package stats

import (
	"bytes"
	"testing"

	"github.com/holiman/uint256"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/processors/market/deals"
)

// A whole path is one number's, and the order of paths is the order of numbers.
func TestPathsAscendWithNumbers(t *testing.T) {
	number := rapid.Custom(func(t *rapid.T) *uint256.Int {
		var raw [32]byte
		copy(raw[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "bytes"))
		v := new(uint256.Int).SetBytes32(raw[:])
		return v.Rsh(v, uint(rapid.IntRange(0, 255).Draw(t, "shift")))
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		p, q := pathOf(deals.HistogramCost7, a), pathOf(deals.HistogramCost7, b)
		if got := NumberAt(p); !Whole(p) || !got.Eq(a) {
			t.Fatalf("%s has the path %x of %s, whole %t", a.Dec(), p, got.Dec(), Whole(p))
		}
		if bytes.Compare(p, q) != a.Cmp(b) {
			t.Fatalf("%s and %s: %x and %x", a.Dec(), b.Dec(), p, q)
		}
		for node := range nodes(p) {
			if !IsNode(node) || Whole(node) {
				t.Fatalf("%x of %x is no node", node, p)
			}
		}
		if len(p) > MaxPathBytes || IsNode(p) {
			t.Fatalf("%x has %d bytes, a node %t", p, len(p), IsNode(p))
		}
	})
}
