package wire_test

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lienstream/lienstream/processors/engine/wire"
)

// all has a field of each kind.
type all struct {
	U64   uint64
	I64   int64
	U32   uint32
	I32   int32
	Int   int
	U8    uint8
	Bool  bool
	Fixed [3]byte
	Bytes []byte
	Text  string
	Opt   *uint32
	List  []int64
}

func (a *all) Code(c *wire.Coder) {
	c.Uint64(&a.U64)
	c.Int64(&a.I64)
	c.Uint32(&a.U32)
	c.Int32(&a.I32)
	c.Int(&a.Int)
	c.Uint8(&a.U8)
	c.Bool(&a.Bool)
	c.Fixed(a.Fixed[:])
	c.Bytes(&a.Bytes, 8)
	c.Text(&a.Text, 8)
	wire.Optional(c, &a.Opt, c.Uint32)
	wire.Slice(c, &a.List, 4, 1, c.Int64)
}

func values() []all {
	zero := uint32(0)
	return []all{
		{},
		{
			U64: math.MaxUint64, I64: math.MinInt64, U32: math.MaxUint32, I32: math.MinInt32, Int: 1 << 31, U8: 255, Bool: true,
			Fixed: [3]byte{1, 2, 3}, Bytes: []byte("bytes"), Text: "text", Opt: &zero, List: []int64{-1, 0, math.MaxInt64},
		},
	}
}

func TestValuesComeBack(t *testing.T) {
	for _, want := range values() {
		raw, err := wire.Append([]byte("before"), &want)
		if err != nil {
			t.Fatal(err)
		}
		var got all
		if err := wire.Decode(raw[len("before"):], &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		for cut := range raw[len("before"):] {
			if err := wire.Decode(raw[len("before"):len("before")+cut], new(all)); !errors.Is(err, wire.ErrMalformed) {
				t.Errorf("cut to %d bytes: %v", cut, err)
			}
		}
		if err := wire.Decode(append(raw[len("before"):], 0), new(all)); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("a byte too many: %v", err)
		}
	}
}

func TestBoundsHoldInBothDirections(t *testing.T) {
	for name, v := range map[string]all{
		"bytes": {Bytes: make([]byte, 9)}, "text": {Text: "nine char"}, "list": {List: make([]int64, 5)}, "negative": {Int: -1},
	} {
		if _, err := wire.Append(nil, &v); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, v := range values() {
		raw, err := wire.Append(nil, &v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var v all
		if err := wire.Decode(b, &v); err != nil {
			if !errors.Is(err, wire.ErrMalformed) {
				t.Error(err)
			}
			return
		}
		raw, err := wire.Append(nil, &v)
		if err != nil {
			t.Fatal(err)
		}
		var again all
		if err := wire.Decode(raw, &again); err != nil || !cmp.Equal(v, again) {
			t.Errorf("%+v comes back as %+v, %v", v, again, err)
		}
	})
}
