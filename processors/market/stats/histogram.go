package stats

import (
	"bytes"
	"encoding/binary"
	"iter"
	"slices"
	"sort"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/deals"
)

// A histogram is a tree of counts, so that a number is found by its rank without reading the others, however many
// share its beginning. A node is a row under its path; it has a count for each of its branches, ascending. The root
// branches by the length of a number and the first four bits after its highest one, each other node by the next four
// bits. Paths of a length ascend with the numbers, and a whole path is a number.
//
// A path is the histogram, the bits after the highest one, and four of them a byte; numbers below 32 have a branch of
// the root each.

// MaxPathBytes is the length of the longest path.
const MaxPathBytes = 1 + 1 + 255/digitBits + 1

const (
	rootBytes   = 1 + 2 // of a path, down to a branch of the root
	digitBits   = 4
	smallBits   = digitBits + 1
	countBytes  = 8
	maxBranches = 1 << digitBits // of a node that is not the root
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
func Whole(path []byte) bool { return len(path) >= rootBytes && len(path) == wholeBytes(path[1]) }

func wholeBytes(after byte) int {
	if after == 0 {
		return rootBytes
	}
	return 2 + (int(after)+digitBits-1)/digitBits
}

// IsNode reports whether a path may be that of a node.
func IsNode(path []byte) bool {
	if len(path) == 0 || path[0] >= byte(deals.Histograms) {
		return false
	}
	if len(path) == 1 {
		return true
	}
	return len(path) >= rootBytes && len(path) < wholeBytes(path[1]) &&
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

// nodes are the paths of the nodes above a number, each with the branch to take, as the path of what is there.
func nodes(path []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(node, child []byte) bool) {
		node := path[:1]
		for end := rootBytes; end <= len(path); end++ {
			if !yield(node, path[:end]) {
				return
			}
			node = path[:end]
		}
	}
}

// count adds a number to a histogram.
func count(w state.Writer, h deals.Histogram, v *uint256.Int) error {
	first := false // the branch taken is a new one: there is no node, and to find that out costs more than all else here
	for node, child := range nodes(pathOf(h, v)) {
		var row []byte
		var err error
		if !first {
			if row, err = w.Get(histograms, node); err != nil {
				return err
			}
		}
		if row, first, err = raise(row, child[len(node):]); err != nil {
			return err
		}
		w.Put(histograms, node, row)
	}
	return nil
}

// raise adds one to a branch's count, and reports whether it is the first.
func raise(row, branch []byte) (raised []byte, first bool, err error) {
	size := len(branch) + countBytes
	if len(row)%size != 0 {
		return nil, false, errLength
	}
	n := len(row) / size
	at := sort.Search(n, func(i int) bool { return bytes.Compare(row[i*size:][:len(branch)], branch) >= 0 }) * size
	if at < len(row) && bytes.Equal(row[at:][:len(branch)], branch) {
		row = bytes.Clone(row)
	} else {
		first = true
		more := make([]byte, len(row)+size)
		copy(more, row[:at])
		copy(more[at:], branch)
		copy(more[at+size:], row[at:])
		row = more
	}
	of := row[at+len(branch):]
	binary.BigEndian.PutUint64(of, binary.BigEndian.Uint64(of)+1)
	return row, first, nil
}

// ReadCounts reads the node at a path.
func ReadCounts(v state.Reader, node []byte) ([]byte, error) { return v.Get(histograms, node) }

// Counts calls fn for each branch of a node that ReadCounts has read. False: the row is malformed.
func Counts(node, row []byte, fn func(branch []byte, n uint64)) bool {
	label := 1
	if len(node) == 1 {
		label = rootBytes - 1
	}
	if len(row)%(label+countBytes) != 0 {
		return false
	}
	for ; len(row) > 0; row = row[label+countBytes:] {
		fn(row[:label], binary.BigEndian.Uint64(row[label:]))
	}
	return true
}
