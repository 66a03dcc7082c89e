package topics

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/holiman/uint256"
)

// Rows are a version byte and the fields in the order of the structs: numbers as varints, 256-bit numbers as a
// length and their significant bytes, optional fields after a presence byte.
const rowVersion = 1

func appendWord(b []byte, v *uint256.Int) []byte {
	n := v.ByteLen()
	word := v.Bytes32()
	return append(append(b, byte(n)), word[32-n:]...)
}

func (in *input) word() (v uint256.Int) {
	n := in.byte()
	if n > 32 {
		in.bad = true
	}
	s := in.take(int(n))
	if len(s) > 0 && s[0] == 0 { // leading zeros are invalid, so that the encoding is unique
		in.bad = true
	}
	v.SetBytes(s)
	return v
}

func appendOptWord(b []byte, v *uint256.Int) []byte {
	if v == nil {
		return append(b, 0)
	}
	return appendWord(append(b, 1), v)
}

func (in *input) optWord() *uint256.Int {
	if !in.bool() {
		return nil
	}
	v := in.word()
	return &v
}

func appendVarint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

func (in *input) varint() uint64 {
	v, n := binary.Uvarint(in.b)
	if n <= 0 || in.bad {
		in.bad = true
		return 0
	}
	in.b = in.b[n:]
	return v
}

// bounded reads a varint that must not exceed limit.
func (in *input) bounded(limit uint64) uint64 {
	v := in.varint()
	if v > limit {
		in.bad = true
		return 0
	}
	return v
}

// int32 reads a signed number of 32 bits.
func (in *input) int32() int32 {
	v := in.long()
	if v < math.MinInt32 || v > math.MaxInt32 {
		in.bad = true
	}
	return int32(v)
}

func openRow(what string, data []byte) (input, error) {
	if len(data) == 0 {
		return input{}, fmt.Errorf("%s: %w: empty", what, ErrMalformed)
	}
	if data[0] != rowVersion {
		return input{}, fmt.Errorf("%s: %w: %d", what, ErrUnknownVersion, data[0])
	}
	return input{b: data[1:]}, nil
}

func (in *input) closeRow(what string) error {
	if err := in.end(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
