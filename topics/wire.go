package topics

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

// The primitives of Avro and of the compact binary, appended to and taken from byte slices: the hot path
// encodes without reflection and without allocation.

var (
	// ErrUnknownSchema means that the value was written with a schema that this program lacks.
	ErrUnknownSchema = errors.New("unknown schema")
	// ErrLaterSchema means that it was written with a schema of ours that this program lacks: by a newer build.
	ErrLaterSchema = errors.New("schema of a newer build")
	// ErrUnknownVersion means that a row was written by a version that this program lacks.
	ErrUnknownVersion = errors.New("unknown version")
	// ErrMalformed means that the bytes are not what their schema says.
	ErrMalformed = errors.New("malformed value")
)

// WireHeaderBytes is the length of the Confluent wire format's head: a zero byte and the schema's ID.
const WireHeaderBytes = 5

// AppendHeader appends the head of a value of that schema.
func AppendHeader(b []byte, s *Schema) []byte {
	return binary.BigEndian.AppendUint32(append(b, 0), s.ID)
}

// SplitHeader takes the head off a value.
func SplitHeader(value []byte) (*Schema, []byte, error) {
	if len(value) < WireHeaderBytes || value[0] != 0 {
		return nil, nil, fmt.Errorf("%w: not in the Confluent wire format", ErrMalformed)
	}
	id := binary.BigEndian.Uint32(value[1:])
	s, ok := SchemaByID(id)
	if !ok {
		return nil, nil, fmt.Errorf("%w: ID %d", ErrUnknownSchema, id)
	}
	return s, value[WireHeaderBytes:], nil
}

func appendLong(b []byte, n int64) []byte { return binary.AppendVarint(b, n) } // zigzag, as Avro's

func appendUint(b []byte, n uint64) []byte { return binary.AppendVarint(b, int64(n)) }

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendBytes(b, v []byte) []byte { return append(appendLong(b, int64(len(v))), v...) }

func appendString(b []byte, s string) []byte { return append(appendLong(b, int64(len(s))), s...) }

// maxDecimal is the length of 2^256 in decimal digits, rounded up to whole limbs of 19.
const maxDecimal = 5 * 19

var limb = uint256.NewInt(1e19)

// appendDecimal appends a number as an Avro string of decimal digits.
func appendDecimal(b []byte, v *uint256.Int) []byte {
	var buf [maxDecimal]byte
	if v.IsUint64() {
		return appendBytes(b, strconv.AppendUint(buf[:0], v.Uint64(), 10))
	}
	// Limbs of 19 digits from the lowest; all but the highest are padded.
	var quotient, rest uint256.Int
	quotient.Set(v)
	at := len(buf)
	for !quotient.IsZero() {
		quotient.DivMod(&quotient, limb, &rest)
		n := rest.Uint64()
		for i := 0; i < 19 && (n > 0 || !quotient.IsZero()); i++ {
			at--
			buf[at] = byte('0' + n%10)
			n /= 10
		}
	}
	return appendBytes(b, buf[at:])
}

// appendSigned appends a two's complement as an Avro string of decimal digits.
func appendSigned(b []byte, v *uint256.Int) []byte {
	if v.Sign() >= 0 {
		return appendDecimal(b, v)
	}
	digits := new(uint256.Int).Neg(v).Dec()
	return append(append(appendLong(b, int64(len(digits)+1)), '-'), digits...)
}

func appendRef(b []byte, r *BlockRef) []byte {
	b = appendUint(b, r.Number)
	b = append(b, r.Hash[:]...)
	return appendUint(b, r.Timestamp)
}

// Avro's union ["null", T].
const (
	unionNull = 0
	unionSome = 2
)

func appendOptDecimal(b []byte, v *uint256.Int) []byte {
	if v == nil {
		return append(b, unionNull)
	}
	return appendDecimal(append(b, unionSome), v)
}

func appendOptUint(b []byte, v *uint64) []byte {
	if v == nil {
		return append(b, unionNull)
	}
	return appendUint(append(b, unionSome), *v)
}

// nonZero is nil for zero: what an event says by 0 a message says by null.
func nonZero(v *uint256.Int) *uint256.Int {
	if v.IsZero() {
		return nil
	}
	return v
}

func appendNonZero(b []byte, v uint64) []byte {
	if v == 0 {
		return append(b, unionNull)
	}
	return appendUint(append(b, unionSome), v)
}

func appendOptBool(b []byte, v *bool) []byte {
	if v == nil {
		return append(b, unionNull)
	}
	return appendBool(append(b, unionSome), *v)
}

func appendOptHash(b []byte, v common.Hash) []byte {
	if v == (common.Hash{}) {
		return append(b, unionNull)
	}
	return append(append(b, unionSome), v[:]...)
}

// input takes values off a slice. The first fault sticks, and everything after it is zero, so that a
// decoder reads its fields in a row and asks once.
type input struct {
	b   []byte
	bad bool
}

func (in *input) take(n int) []byte {
	if in.bad || n < 0 || n > len(in.b) {
		in.bad = true
		return nil
	}
	v := in.b[:n:n]
	in.b = in.b[n:]
	return v
}

func (in *input) long() int64 {
	v, n := binary.Varint(in.b)
	if n <= 0 || in.bad {
		in.bad = true
		return 0
	}
	in.b = in.b[n:]
	return v
}

func (in *input) uint() uint64 { return uint64(in.long()) }

func (in *input) uint32() uint32 {
	v := in.long()
	if v < 0 || v > 1<<32-1 {
		in.bad = true
		return 0
	}
	return uint32(v)
}

func (in *input) byte() byte {
	if v := in.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (in *input) bool() bool {
	v := in.byte()
	in.bad = in.bad || v > 1
	return v == 1
}

func (in *input) hash() (h common.Hash) {
	copy(h[:], in.take(len(h)))
	return h
}

func (in *input) address() (a common.Address) {
	copy(a[:], in.take(len(a)))
	return a
}

// bytes aliases the input.
func (in *input) bytes() []byte {
	n := in.long()
	if n < 0 || n > int64(len(in.b)) {
		in.bad = true
		return nil
	}
	return in.take(int(n))
}

func (in *input) ref() BlockRef {
	return BlockRef{Number: in.uint(), Hash: in.hash(), Timestamp: in.uint()}
}

// some reads the branch of a union ["null", T].
func (in *input) some() bool {
	v := in.byte()
	in.bad = in.bad || v != unionNull && v != unionSome
	return v == unionSome
}

func (in *input) decimal() *uint256.Int {
	s := in.bytes()
	v := new(uint256.Int)
	if in.bad || len(s) == 0 || len(s) > 78 || s[0] == '0' && len(s) > 1 || v.SetFromDecimal(string(s)) != nil || s[0] == '+' {
		in.bad = true
	}
	return v
}

func (in *input) optDecimal() *uint256.Int {
	if !in.some() {
		return nil
	}
	return in.decimal()
}

func (in *input) optUint() *uint64 {
	if !in.some() {
		return nil
	}
	v := in.uint()
	return &v
}

func (in *input) optBool() *bool {
	if !in.some() {
		return nil
	}
	v := in.bool()
	return &v
}

// end is an error unless the input was good to its last byte.
func (in *input) end() error {
	if in.bad || len(in.b) > 0 {
		return ErrMalformed
	}
	return nil
}
