package stats

import (
	"encoding/binary"
	"iter"
	"math"
)

// A node's row is how many digits its entries have and the entries, ascending: what the digits make as one number, less
// the entry's before, and its count, as varints. With one digit an entry is a branch, otherwise a number.

const (
	maxLeafBytes = 512            // of a row that counts numbers
	maxDigits    = 64 / digitBits // of its entries
)

// newCounts is the row of a node with so many digits above it and below, without an entry.
func newCounts(above, below int) []byte {
	if above > 1 && below <= maxDigits {
		return []byte{byte(below)}
	}
	return []byte{1}
}

func digitsOf(row []byte) (digits int, ok bool) {
	if len(row) == 0 || row[0] == 0 || row[0] > maxDigits {
		return 0, false
	}
	return int(row[0]), true
}

// join makes one number of digits.
func join(digits []byte) (v uint64) {
	for _, d := range digits {
		v = v<<digitBits | uint64(d)
	}
	return v
}

// entry decodes the entry at the beginning of b. A length of 0: it is malformed.
func entry(b []byte) (less, n uint64, lessBytes, bytes int) {
	less, lessBytes = binary.Uvarint(b)
	if lessBytes <= 0 {
		return 0, 0, 0, 0
	}
	n, nBytes := binary.Uvarint(b[lessBytes:])
	if nBytes <= 0 {
		return 0, 0, 0, 0
	}
	return less, n, lessBytes, lessBytes + nBytes
}

// raise adds one to an entry's count, and reports whether it is the first.
func raise(row []byte, v uint64) (raised []byte, first, ok bool) {
	var before uint64
	for at := 1; at < len(row); {
		less, n, lessBytes, bytes := entry(row[at:])
		next := before + less
		switch {
		case bytes == 0 || next < before:
			return nil, false, false
		case next == v:
			return replace(row, at, at+bytes, less, n+1), false, true
		case next > v: // the next entry's count follows
			return replace(row, at, at+lessBytes, v-before, 1, next-v), true, true
		}
		before, at = next, at+bytes
	}
	return replace(row, len(row), len(row), v-before, 1), true, true
}

// replace makes a row with numbers in place of some bytes.
func replace(row []byte, from, to int, numbers ...uint64) []byte {
	var buf [3 * binary.MaxVarintLen64]byte
	b := buf[:0]
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	out := make([]byte, 0, len(row)-(to-from)+len(b))
	return append(append(append(out, row[:from]...), b...), row[to:]...)
}

// each calls fn for each entry, ascending. False: the row is malformed.
func each(row []byte, fn func(v, n uint64)) bool {
	if _, ok := digitsOf(row); !ok {
		return false
	}
	var v uint64
	for at := 1; at < len(row); {
		less, n, _, bytes := entry(row[at:])
		if bytes == 0 || v+less < v || at > 1 && less == 0 {
			return false
		}
		v, at = v+less, at+bytes
		fn(v, n)
	}
	return true
}

// A countsWriter makes a row of entries that ascend.
type countsWriter struct {
	row    []byte
	before uint64
}

func (w *countsWriter) add(v, n uint64) {
	w.row = binary.AppendUvarint(binary.AppendUvarint(w.row, v-w.before), n)
	w.before = v
}

// branches sums up what a row counts of numbers that go on with some digits, by the digit after these. Nil: nothing.
func branches(row, above []byte) (counts []byte, ok bool) {
	digits, ok := digitsOf(row)
	if !ok || digits <= len(above) {
		return nil, false
	}
	left := (digits - len(above)) * digitBits
	begin := join(above)
	out := countsWriter{row: []byte{1}}
	var branch, sum uint64
	ok = each(row, func(v, n uint64) {
		if v>>left != begin && len(above) > 0 {
			return
		}
		next := v>>(left-digitBits) - begin<<digitBits
		if next != branch && sum > 0 {
			out.add(branch, sum)
			sum = 0
		}
		branch, sum = next, sum+n
	})
	if sum > 0 {
		out.add(branch, sum)
	}
	if len(out.row) == 1 {
		return nil, ok
	}
	return out.row, ok
}

// parts are the branches of a row that counts numbers, each with a row for the node there.
func parts(row []byte) iter.Seq2[byte, []byte] {
	return func(yield func(branch byte, below []byte) bool) {
		shift := (int(row[0]) - 1) * digitBits
		var branch uint64
		var part countsWriter
		goes := true
		each(row, func(v, n uint64) {
			if next := v >> shift; part.row == nil || next != branch {
				goes = goes && (part.row == nil || yield(byte(branch), part.row))
				branch, part = next, countsWriter{row: []byte{row[0] - 1}}
			}
			part.add(v-branch<<shift, n)
		})
		if goes && part.row != nil {
			yield(byte(branch), part.row)
		}
	}
}

// Counts calls fn for each branch in what a CountsReader has read. False: it is malformed.
func Counts(counts []byte, fn func(branch byte, n uint64)) bool {
	digits, ok := digitsOf(counts)
	return ok && digits == 1 && each(counts, func(v, n uint64) {
		if ok = ok && v <= math.MaxUint8; ok {
			fn(byte(v), n)
		}
	}) && ok
}
