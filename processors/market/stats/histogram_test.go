package stats

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/holiman/uint256"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/topics"
)

var number = rapid.Custom(func(t *rapid.T) *uint256.Int {
	var raw [32]byte
	copy(raw[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "bytes"))
	v := new(uint256.Int).SetBytes32(raw[:])
	return v.Rsh(v, uint(rapid.IntRange(0, 255).Draw(t, "shift")))
})

// A whole path is one number's, and the order of paths is the order of numbers.
func TestPathsAscendWithNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		p, q := pathOf(deals.HistogramCost7, a), pathOf(deals.HistogramCost7, b)
		if got := NumberAt(p); !Whole(p) || !got.Eq(a) {
			t.Fatalf("%s has the path %x of %s, whole %t", a.Dec(), p, got.Dec(), Whole(p))
		}
		if bytes.Compare(p, q) != a.Cmp(b) {
			t.Fatalf("%s and %s: %x and %x", a.Dec(), b.Dec(), p, q)
		}
		for end := 1; end < len(p); end++ {
			if node := p[:end]; !IsNode(node) || Whole(node) {
				t.Fatalf("%x of %x is no node", node, p)
			}
		}
		if len(p) > MaxPathBytes || IsNode(p) {
			t.Fatalf("%x has %d bytes, a node %t", p, len(p), IsNode(p))
		}
	})
}

// Whatever was counted, in whichever order, below each path are the numbers that begin with it, and no row is long.
func TestCountsAreThoseOfAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store, err := state.Open(state.Options{Dir: "state", Tables: Family.Tables, FS: vfs.NewMem()})
		check(t, err)
		defer func() { check(t, store.Close()) }()
		// Numbers around a few, so that many share their beginning.
		around := rapid.SliceOfN(number, 1, 3).Draw(t, "around")
		near := rapid.SampledFrom([]int{0, 4, 12, 40}).Draw(t, "bits apart")
		counted := map[string]uint64{}
		o := store.NewOverlay()
		o.Begin(topics.BlockRef{Number: 1}, false)
		for range rapid.IntRange(1, 1200).Draw(t, "numbers") {
			v := new(uint256.Int).Set(rapid.SampledFrom(around).Draw(t, "number"))
			v.Xor(v, uint256.NewInt(rapid.Uint64Range(0, 1<<near-1).Draw(t, "other")))
			check(t, count(o, deals.HistogramCost21, v))
			counted[string(pathOf(deals.HistogramCost21, v))]++
		}
		check(t, o.Err())
		check(t, store.Commit(o, []byte("meta")))
		snapshot := store.Snapshot()
		defer snapshot.Release()
		view := snapshot.View(topics.BlockRef{Number: 1})
		defer view.Close()

		want := map[string]map[byte]uint64{} // of each node, by branch
		for path, n := range counted {
			for end := 1; end < len(path); end++ {
				if want[path[:end]] == nil {
					want[path[:end]] = map[byte]uint64{}
				}
				want[path[:end]][path[end]] += n
			}
		}
		reader := NewCountsReader(view)
		for _, path := range slices.Sorted(maps.Keys(want)) {
			for _, r := range []*CountsReader{reader, NewCountsReader(view)} { // one remembers
				row, err := r.Read([]byte(path))
				check(t, err)
				got := map[byte]uint64{}
				if !Counts(row, func(branch byte, n uint64) { got[branch] += n }) || !maps.Equal(got, want[path]) {
					t.Fatalf("%x: counts are %x, want %v", path, row, want[path])
				}
			}
			beside := append([]byte(path[:len(path)-1]), path[len(path)-1]^1)
			if _, some := want[string(beside)]; some || !IsNode(beside) {
				continue
			}
			if row, err := NewCountsReader(view).Read(beside); err != nil || row != nil {
				t.Fatalf("%x, with which no number begins, counts %x, %v", beside, row, err)
			}
		}
		check(t, view.Scan(histograms, nil, nil, func(path, row []byte) bool {
			if row[0] > 1 && len(row) > maxLeafBytes {
				t.Fatalf("the row of %x has %d bytes", path, len(row))
			}
			return true
		}))
	})
}

func check(t interface {
	Helper()
	Fatal(args ...any)
}, err error,
) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// FuzzCounts: whatever a row is, it is read without end or refused, and an entry that is raised is one more.
func FuzzCounts(f *testing.F) {
	f.Add([]byte{1, 3, 1, 4, 200, 1}, uint64(7), uint8(0))
	f.Add([]byte{3, 0, 1, 0xff, 0x0f, 2}, uint64(0), uint8(2))
	f.Add([]byte{16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1, 1, 1}, uint64(1), uint8(16))
	f.Fuzz(func(t *testing.T, row []byte, v uint64, above uint8) {
		sum := func(row []byte) (n uint64, ok bool) {
			ok = each(row, func(_, of uint64) { n += of })
			return n, ok
		}
		n, ok := sum(row)
		Counts(row, func(byte, uint64) {})
		branches(row, make([]byte, above))
		if !ok {
			return
		}
		if counts, fine := branches(row, nil); !fine || counts != nil && !equal(counts, sum, n) {
			t.Errorf("the branches of %x are %x", row, counts)
		}
		raised, _, fine := raise(row, v)
		if !fine || !equal(raised, sum, n+1) {
			t.Errorf("%x with one %d more is %x", row, v, raised)
		}
	})
}

func equal(row []byte, sum func([]byte) (uint64, bool), want uint64) bool {
	n, ok := sum(row)
	return ok && n == want
}
