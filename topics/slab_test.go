package topics

import (
	"bytes"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"pgregory.net/rapid"
)

// Whatever sizes pieces have, and whether they are kept or not, none is written over by a later one, and
// none can be appended to at the cost of another.
func TestSlabPiecesStayAsTheyAre(t *testing.T) {
	var used Scratch // the same in all draws
	rapid.Check(t, func(t *rapid.T) {
		var (
			s interface {
				Next() []byte
				Keep(b []byte) []byte
			} = new(Slab)
			kept [][]byte
		)
		if rapid.Bool().Draw(t, "again") {
			used.Reset()
			s = &used
		}
		for i := range rapid.IntRange(1, 200).Draw(t, "pieces") {
			n := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, 2*slabBytes)).Draw(t, "bytes")
			piece := append(s.Next(), bytes.Repeat([]byte{byte(i)}, n)...)
			if rapid.IntRange(0, 9).Draw(t, "drop") == 0 {
				kept = append(kept, nil)
				continue
			}
			piece = s.Keep(piece)
			kept = append(kept, piece)
			if len(piece) != n {
				t.Fatalf("piece of %d bytes has %d", n, len(piece))
			}
		}
		for _, piece := range kept {
			_ = append(piece, 0xff)
		}
		for i, piece := range kept {
			if !bytes.Equal(piece, bytes.Repeat([]byte{byte(i)}, len(piece))) {
				t.Fatalf("piece %d was written over", i)
			}
		}
	})
}

func TestScratchAllocatesOnce(t *testing.T) {
	var s Scratch
	piece := make([]byte, 1000)
	if n := testing.AllocsPerRun(10, func() {
		s.Reset()
		for range scratchBytes / len(piece) / 2 {
			s.Copy(piece)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestRawDecoderReadsOneAfterTheOther(t *testing.T) {
	logs := []*Log{
		{LogIndex: 1, Topics: []common.Hash{{1}, {2}, {3}, {4}}, Data: []byte("data")},
		{LogIndex: 2},
		{LogIndex: 3, Topics: []common.Hash{{5}}, Data: []byte("d")},
	}
	var d RawDecoder
	for _, want := range logs {
		value := AppendRaw(nil, want)
		got, err := d.Decode(value)
		if err != nil {
			t.Fatal(err)
		}
		if again := AppendRaw(nil, got); !bytes.Equal(again, value) {
			t.Errorf("log %d comes back as %+v", want.LogIndex, got)
		}
	}
}
