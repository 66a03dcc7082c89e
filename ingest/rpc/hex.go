package rpc

import (
	"encoding/binary"
	"errors"
)

var errHex = errors.New("malformed hex")

// nibble maps a hex digit to its value, and other bytes to a value with high bits set.
var nibble = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for i := range 10 {
		t['0'+i] = byte(i)
	}
	for i := range 6 {
		t['a'+i], t['A'+i] = byte(10+i), byte(10+i)
	}
	return t
}()

// unhex decodes two digits of src for each byte of dst, eight digits at a time: this dominates the cost of a
// log.
func unhex(dst, src []byte) error {
	if len(src) != 2*len(dst) {
		return errHex
	}
	for len(src) >= 8 {
		n, ok := unhex8(binary.LittleEndian.Uint64(src))
		if !ok {
			return errHex
		}
		binary.LittleEndian.PutUint32(dst, n)
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		hi, lo := nibble[src[2*i]], nibble[src[2*i+1]]
		if hi|lo > 15 {
			return errHex
		}
		dst[i] = hi<<4 | lo
	}
	return nil
}

// unhex8 decodes eight digits, the first in the lowest byte, to four bytes. It compares bytes in parallel: the
// sum of a byte below 0x80 and a constant below 0x80 does not overflow, and its highest bit is the result.
func unhex8(x uint64) (uint32, bool) {
	const (
		ones = 0x0101010101010101
		high = 0x80 * ones
	)
	lower := x | 0x20*ones
	digit := (x + (0x80-'0')*ones) &^ (x + (0x7f-'9')*ones)
	letter := (lower + (0x80-'a')*ones) &^ (lower + (0x7f-'f')*ones)
	if x&high != 0 || (digit|letter)&high != high {
		return 0, false
	}
	v := x&(0x0f*ones) + 9*(x>>6&ones)
	v = (v<<4 | v>>8) & 0x00ff00ff00ff00ff
	v = (v | v>>8) & 0x0000ffff0000ffff
	return uint32(v | v>>16), true
}

// digits reads a string that starts with 0x, or 0X as go-ethereum takes it, and returns the rest.
func (s *scanner) digits() ([]byte, error) {
	v, err := s.str()
	if err != nil {
		return nil, err
	}
	if len(v) < 2 || v[0] != '0' || v[1] != 'x' && v[1] != 'X' {
		return nil, errHex
	}
	return v[2:], nil
}

// fixed reads exactly len(dst) bytes of hex.
func (s *scanner) fixed(dst []byte) error {
	v, err := s.digits()
	if err != nil {
		return err
	}
	return unhex(dst, v)
}

// quantity reads a number of at most `bits` bits.
func (s *scanner) quantity(bits int) (uint64, error) {
	v, err := s.digits()
	if err != nil {
		return 0, err
	}
	return parseQuantity(v, bits)
}

// parseQuantity parses a number of at most `bits` bits.
func parseQuantity(v []byte, bits int) (uint64, error) {
	if len(v) == 0 {
		return 0, errHex
	}
	var n uint64
	for _, c := range v {
		d := nibble[c]
		if d > 15 || n>>(bits-4) != 0 {
			return 0, errHex
		}
		n = n<<4 | uint64(d)
	}
	return n, nil
}

const hexDigits = "0123456789abcdef"

// appendHex appends "0x…" in quotes.
func appendHex(b, raw []byte) []byte {
	b = append(b, `"0x`...)
	for _, c := range raw {
		b = append(b, hexDigits[c>>4], hexDigits[c&15])
	}
	return append(b, '"')
}

// appendQuantity appends "0x1f" in quotes.
func appendQuantity(b []byte, n uint64) []byte {
	b = append(b, `"0x`...)
	shift := 60
	for shift > 0 && n>>shift == 0 {
		shift -= 4
	}
	for ; shift >= 0; shift -= 4 {
		b = append(b, hexDigits[n>>shift&15])
	}
	return append(b, '"')
}
