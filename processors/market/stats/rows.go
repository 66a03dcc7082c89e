package stats

import (
	"encoding/binary"
	"errors"

	"github.com/holiman/uint256"
)

var errLength = errors.New("row has the wrong length")

const wordBytes = 32

// maxRowBytes is the length of the longest row, Totals.
const maxRowBytes = 5*8 + 2*wordBytes

// Flow is sums over all deals ever funded, in raw USDG.
type Flow struct {
	Volume uint256.Int // prices
	Fees   uint256.Int
}

// Totals is the one row of a partition.
type Totals struct {
	ByState [5]uint64 // deals, by contracts.DealState
	Flow
}

// Amount is an amount of collateral, in raw units of its token.
type Amount struct{ Raw uint256.Int }

func appendWords(b []byte, words ...*uint256.Int) []byte {
	for _, w := range words {
		raw := w.Bytes32()
		b = append(b, raw[:]...)
	}
	return b
}

func decodeWords(data []byte, words ...*uint256.Int) bool {
	if len(data) != len(words)*wordBytes {
		return false
	}
	for i, w := range words {
		w.SetBytes32(data[i*wordBytes:])
	}
	return true
}

func (f *Flow) append(b []byte) []byte { return appendWords(b, &f.Volume, &f.Fees) }

// AppendBinary appends the row. The error is always nil.
func (f *Flow) AppendBinary(b []byte) ([]byte, error) { return f.append(b), nil }

func (f *Flow) decode(data []byte) bool { return decodeWords(data, &f.Volume, &f.Fees) }

func (t *Totals) append(b []byte) []byte {
	for _, n := range t.ByState {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return t.Flow.append(b)
}

func (t *Totals) decode(data []byte) bool {
	const counts = 5 * 8
	if len(data) < counts {
		return false
	}
	for i := range t.ByState {
		t.ByState[i] = binary.BigEndian.Uint64(data[i*8:])
	}
	return t.Flow.decode(data[counts:])
}

func (a *Amount) append(b []byte) []byte  { return appendWords(b, &a.Raw) }
func (a *Amount) decode(data []byte) bool { return decodeWords(data, &a.Raw) }

// AppendBinary appends the row. The error is always nil.
func (a *Amount) AppendBinary(b []byte) ([]byte, error) { return a.append(b), nil }

// UnmarshalBinary reads a row.
func (a *Amount) UnmarshalBinary(data []byte) error {
	if !a.decode(data) {
		return errLength
	}
	return nil
}

// open reports whether a position is collateral.
type open bool

// AppendBinary appends the row. The error is always nil.
func (o *open) AppendBinary(b []byte) ([]byte, error) {
	if *o {
		return append(b, 1), nil
	}
	return append(b, 0), nil
}

// UnmarshalBinary reads a row.
func (o *open) UnmarshalBinary(data []byte) error {
	if len(data) != 1 {
		return errLength
	}
	*o = data[0] == 1
	return nil
}

// Decode decodes a row of the family. A missing row is a zero value.
func Decode[T any, P interface {
	*T
	row
}](data []byte) (v T, err error) {
	if data != nil && !P(&v).decode(data) {
		err = errLength
	}
	return v, err
}
