// Package wire is the compact binary of what nodes say to each other: varints, bytes behind their length,
// fixed bytes. A Coder walks over the fields of a value once, for both directions. It must not know what it
// codes.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed means that bytes are not what they should decode to.
var ErrMalformed = errors.New("malformed message")

// Coder writes fields or reads them back, in the order in which it is called. The first fault ends it: what
// follows is left as it is, and Err tells.
type Coder struct {
	b        []byte
	decoding bool
	err      error
}

// Value is what codes itself: each field in its order, the same for both directions.
type Value interface{ Code(c *Coder) }

// Append appends the encoding of a value. ErrMalformed: a field is beyond its bound.
func Append(b []byte, v Value) ([]byte, error) {
	c := Coder{b: b}
	v.Code(&c)
	return c.b, c.err
}

// Decode reads a value that is the whole of b. Byte fields of the value alias b, and what it takes in memory
// is in proportion to the length of b.
func Decode(b []byte, v Value) error {
	c := Coder{b: b, decoding: true}
	v.Code(&c)
	if c.err == nil && len(c.b) > 0 {
		c.Fail("trailing bytes")
	}
	return c.err
}

// Decoding says in which direction the coder goes.
func (c *Coder) Decoding() bool { return c.decoding }

// Fail ends the coding with a fault, unless it has one.
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

// Int64 codes a varint of either sign.
func (c *Coder) Int64(v *int64) {
	u := uint64(*v<<1) ^ uint64(*v>>63)
	c.Uint64(&u)
	if c.decoding && c.err == nil {
		*v = int64(u>>1) ^ -int64(u&1)
	}
}

// Uint32 codes a varint of 32 bits.
func (c *Coder) Uint32(v *uint32) {
	u := uint64(*v)
	c.Uint64(&u)
	if c.decoding && c.err == nil {
		if *v = uint32(u); uint64(*v) != u {
			c.Fail("number %d exceeds 32 bits", u)
		}
	}
}

// Int32 codes a varint of 32 bits of either sign.
func (c *Coder) Int32(v *int32) {
	i := int64(*v)
	c.Int64(&i)
	if c.decoding && c.err == nil {
		if *v = int32(i); int64(*v) != i {
			c.Fail("number %d exceeds 32 bits", i)
		}
	}
}

// Int codes a number that is not negative.
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

// Bytes codes bytes behind their length. None and nil are the same: both decode to nil.
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

// Text codes a string behind its length.
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

// count codes how many things of at least `size` bytes follow: what is left must have room for them.
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

// Slice codes at most `limit` things, each of which takes at least `size` bytes. None decode to nil.
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
