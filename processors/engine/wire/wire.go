// Package wire is the compact binary encoding of the messages between nodes: varints, length-prefixed bytes and
// fixed bytes. A Coder walks over the fields of a value once, for both directions. It must not know what it
// encodes.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed: the bytes do not decode.
var ErrMalformed = errors.New("malformed message")

// Coder encodes or decodes fields, in the order in which it is called. After the first error it does nothing;
// Err returns that error.
type Coder struct {
	b        []byte
	decoding bool
	err      error
}

// Value encodes itself: each field in its order, the same for both directions.
type Value interface{ Code(c *Coder) }

// Append appends the encoding of a value. ErrMalformed: a field exceeds its bound.
func Append(b []byte, v Value) ([]byte, error) {
	c := Coder{b: b}
	v.Code(&c)
	return c.b, c.err
}

// Decode decodes a value from all of b. Byte fields alias b, and the memory of the value is proportional to the
// length of b.
func Decode(b []byte, v Value) error {
	c := Coder{b: b, decoding: true}
	v.Code(&c)
	if c.err == nil && len(c.b) > 0 {
		c.Fail("trailing bytes")
	}
	return c.err
}

// Decoding reports whether the coder decodes.
func (c *Coder) Decoding() bool { return c.decoding }

// Fail stops the coder with an error, unless it has one already.
func (c *Coder) Fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	}
}

// Uint64 codes a varint.
func (c *Coder) Uint64(v *uint64) {
	if c.err != nil {
		return
	}
	if !c.decoding {
		c.b = binary.AppendUvarint(c.b, *v)
		return
	}
	n, used := binary.Uvarint(c.b)
	if used <= 0 {
		c.Fail("truncated number")
		return
	}
	*v, c.b = n, c.b[used:]
}

// Int64 codes a signed varint.
func (c *Coder) Int64(v *int64) {
	u := uint64(*v<<1) ^ uint64(*v>>63)
	c.Uint64(&u)
	if c.decoding && c.err == nil {
		*v = int64(u>>1) ^ -int64(u&1)
	}
}

// Uint32 codes a varint of at most 32 bits.
func (c *Coder) Uint32(v *uint32) {
	u := uint64(*v)
	c.Uint64(&u)
	if c.decoding && c.err == nil {
		if *v = uint32(u); uint64(*v) != u {
			c.Fail("number %d exceeds 32 bits", u)
		}
	}
}

// Int32 codes a signed varint of at most 32 bits.
func (c *Coder) Int32(v *int32) {
	i := int64(*v)
	c.Int64(&i)
	if c.decoding && c.err == nil {
		if *v = int32(i); int64(*v) != i {
			c.Fail("number %d exceeds 32 bits", i)
		}
	}
}

// Int codes a non-negative number.
func (c *Coder) Int(v *int) {
	if !c.decoding && *v < 0 {
		c.Fail("number %d is negative", *v)
		return
	}
	u := uint64(*v)
	c.Uint64(&u)
	if c.decoding && c.err == nil {
		if u > 1<<31 {
			c.Fail("number %d is too large", u)
			return
		}
		*v = int(u)
	}
}

// Uint8 codes a byte.
func (c *Coder) Uint8(v *uint8) {
	b := [1]byte{*v}
	c.Fixed(b[:])
	if c.decoding && c.err == nil {
		*v = b[0]
	}
}

// Bool codes a byte that is 0 or 1.
func (c *Coder) Bool(v *bool) {
	var b uint8
	if *v {
		b = 1
	}
	if c.Uint8(&b); c.decoding && c.err == nil {
		if b > 1 {
			c.Fail("flag is %d, not 0 or 1", b)
		}
		*v = b == 1
	}
}

// Fixed codes bytes of a length that both ends know.
func (c *Coder) Fixed(v []byte) {
	if c.err != nil {
		return
	}
	if !c.decoding {
		c.b = append(c.b, v...)
		return
	}
	if len(c.b) < len(v) {
		c.Fail("%d bytes left, %d needed", len(c.b), len(v))
		return
	}
	c.b = c.b[copy(v, c.b):]
}

// Bytes codes length-prefixed bytes. Empty and nil are the same: both decode to nil.
func (c *Coder) Bytes(v *[]byte, limit int) {
	n := len(*v)
	if c.count(&n, limit, 1); c.err != nil {
		return
	}
	if !c.decoding {
		c.b = append(c.b, *v...)
		return
	}
	*v = nil
	if n > 0 {
		*v, c.b = c.b[:n:n], c.b[n:]
	}
}

// Text codes a length-prefixed string.
func (c *Coder) Text(v *string, limit int) {
	n := len(*v)
	if c.count(&n, limit, 1); c.err != nil {
		return
	}
	if !c.decoding {
		c.b = append(c.b, *v...)
		return
	}
	*v, c.b = string(c.b[:n]), c.b[n:]
}

// count codes the number of elements that follow, each of at least `size` bytes; the remaining input must have
// room for them.
func (c *Coder) count(n *int, limit, size int) {
	c.Int(n)
	if c.err != nil {
		return
	}
	if *n > limit || c.decoding && *n > len(c.b)/size {
		c.Fail("%d elements, at most %d", *n, limit)
	}
}

// Optional codes a value that may be absent.
func Optional[T any](c *Coder, v **T, code func(*T)) {
	present := *v != nil
	if c.Bool(&present); c.err != nil || !present {
		return
	}
	if c.decoding {
		*v = new(T)
	}
	code(*v)
}

// Slice codes at most `limit` elements, each of at least `size` bytes. Zero elements decode to nil.
func Slice[T any](c *Coder, v *[]T, limit, size int, code func(*T)) {
	n := len(*v)
	if c.count(&n, limit, size); c.err != nil {
		return
	}
	if c.decoding {
		*v = nil
		if n > 0 {
			*v = make([]T, n)
		}
	}
	for i := range *v {
		if code(&(*v)[i]); c.err != nil {
			return
		}
	}
}
