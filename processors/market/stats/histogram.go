package stats

import (
	"bytes"
	"slices"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/deals"
)

// A histogram is a tree of counts, so that a number is found by its rank without reading the others, however many share
// its beginning. Paths of a length ascend with the numbers, and a whole path is a number: the histogram, how many bits
// follow the number's highest one, and these bits, four a digit. Numbers below 32 have no bits that follow, and are a
// digit each.
//
// A node is a row under its path. It counts its branches, or, while a row has room for them, the numbers that begin
// with its path: then there is none below. So which nodes there are depends on a partition's numbers, and what is read
// is how many begin with a path, whichever node says so.

// MaxPathBytes is the length of the longest path.
const MaxPathBytes = 1 + 1 + 255/digitBits + 1

const (
	digitBits   = 4
	smallBits   = digitBits + 1
	maxBranches = 1 << digitBits
)

// pathOf is the path of a number.
func pathOf(h deals.Histogram, v *uint256.Int) []byte {
	if v.BitLen() <= smallBits {
		return []byte{byte(h), 0, byte(v.Uint64())}
	}
	after := v.BitLen() - 1
	path := append(make([]byte, 0, MaxPathBytes), byte(h), byte(after))
	// The last digit of a number has the bits that are left, followed by zeros.
	for left := after; left > 0; left -= digitBits {
		var digit uint256.Int
		if left >= digitBits {
			digit.Rsh(v, uint(left-digitBits))
		} else {
			digit.Lsh(v, uint(digitBits-left))
		}
		path = append(path, byte(digit.Uint64())&(maxBranches-1))
	}
	return path
}

// Whole reports whether a path ends at a number.
func Whole(path []byte) bool { return len(path) > 1 && len(path) == wholeBytes(path[1]) }

func wholeBytes(after byte) int {
	return 2 + max((int(after)+digitBits-1)/digitBits, 1)
}

// IsNode reports whether a path may be that of a node.
func IsNode(path []byte) bool {
	if len(path) == 0 || path[0] >= byte(deals.Histograms) {
		return false
	}
	return len(path) == 1 || len(path) < wholeBytes(path[1]) &&
		!slices.ContainsFunc(path[2:], func(digit byte) bool { return digit >= maxBranches })
}

// NumberAt is the number at the end of a whole path.
func NumberAt(path []byte) *uint256.Int {
	if path[1] == 0 {
		return uint256.NewInt(uint64(path[2]))
	}
	digits := path[2:]
	v := uint256.NewInt(1)
	for i, digit := range digits {
		bits := min(digitBits, int(path[1])-i*digitBits)
		v.Lsh(v, uint(bits))
		v.Or(v, uint256.NewInt(uint64(digit)>>(digitBits-bits)))
	}
	return v
}

// count adds a number to a histogram.
func count(w state.Writer, h deals.Histogram, v *uint256.Int) error {
	path := pathOf(h, v)
	first := false // the branch taken is a new one: there is no node, and to find that out costs more than all else here
	for end := 1; end < len(path); end++ {
		node, rest := path[:end], path[end:]
		var row []byte
		if !first {
			var err error
			if row, err = w.Get(histograms, node); err != nil {
				return err
			}
		}
		if row == nil {
			row = newCounts(end, len(rest))
		}
		digits, ok := digitsOf(row)
		if !ok || digits != 1 && digits != len(rest) {
			return errLength
		}
		if row, first, ok = raise(row, join(rest[:digits])); !ok {
			return errLength
		}
		if digits > 1 && len(row) > maxLeafBytes {
			return split(w, node, row)
		}
		w.Put(histograms, node, row)
		if digits == len(rest) {
			return nil
		}
	}
	return nil
}

// split has a node count its branches, and nodes below it count its numbers.
func split(w state.Writer, node, row []byte) error {
	counts, ok := branches(row, nil)
	if !ok {
		return errLength
	}
	w.Put(histograms, node, counts)
	for branch, below := range parts(row) {
		child := append(bytes.Clone(node), branch)
		if below[0] == 1 || len(below) <= maxLeafBytes {
			w.Put(histograms, child, below)
		} else if err := split(w, child, below); err != nil {
			return err
		}
	}
	return nil
}

// A CountsReader reads counts from a view. It remembers below which path it has found the last numbers, or none: paths
// are best read in their order.
type CountsReader struct {
	of   state.Reader
	path []byte
	row  []byte // of a node that counts numbers; nil: there is none
}

// NewCountsReader makes a reader.
func NewCountsReader(v state.Reader) *CountsReader { return &CountsReader{of: v} }

// Read reads how many numbers begin with a path, by their next digit, for Counts. Nil: none.
func (r *CountsReader) Read(path []byte) ([]byte, error) {
	if r.path == nil || !bytes.HasPrefix(path, r.path) {
		node, row, err := r.deepest(path)
		if err != nil {
			return nil, err
		}
		digits, ok := digitsOf(row)
		switch {
		case row == nil:
			r.path, r.row = path, nil
		case !ok:
			return nil, errLength
		case digits > 1:
			r.path, r.row = node, row
		case len(node) == len(path):
			return row, nil
		default: // none of its branches
			r.path, r.row = path, nil
		}
	}
	if r.row == nil {
		return nil, nil
	}
	counts, ok := branches(r.row, path[len(r.path):])
	if !ok {
		return nil, errLength
	}
	return counts, nil
}

// deepest reads the last node on the way to what is at a path.
func (r *CountsReader) deepest(path []byte) (node, row []byte, err error) {
	for end := len(path); end > 0; end-- {
		if row, err = r.of.Get(histograms, path[:end]); err != nil || row != nil {
			return path[:end], row, err
		}
	}
	return nil, nil, nil
}
