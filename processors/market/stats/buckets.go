package stats

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sort"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/deals"
)

// A histogram is one row: for each bucket, ascending, its two bytes and the number of its deals in eight. It
// has at most some hundreds of buckets.
const countBytes = 2 + 8

// count adds a deal to a bucket.
func count(w state.Writer, h deals.Histogram, bucket [2]byte) error {
	key := []byte{byte(h)}
	row, err := w.Get(histograms, key)
	if err != nil {
		return err
	}
	if len(row)%countBytes != 0 {
		return errLength
	}
	n := len(row) / countBytes
	at := sort.Search(n, func(i int) bool { return bytes.Compare(row[i*countBytes:][:2], bucket[:]) >= 0 }) * countBytes
	if at < len(row) && [2]byte(row[at:]) == bucket {
		row = bytes.Clone(row)
	} else {
		entry := make([]byte, countBytes)
		copy(entry, bucket[:])
		row = slices.Concat(row[:at], entry, row[at:])
	}
	binary.BigEndian.PutUint64(row[at+2:], binary.BigEndian.Uint64(row[at+2:])+1)
	w.Put(histograms, key, row)
	return nil
}

// ReadBuckets reads a histogram's buckets.
func ReadBuckets(v state.Reader, h deals.Histogram) ([]byte, error) {
	return v.Get(histograms, []byte{byte(h)})
}

// Buckets calls fn for each bucket of a histogram read by ReadBuckets. False: the row is malformed.
func Buckets(row []byte, fn func(bucket [2]byte, n uint64)) bool {
	if len(row)%countBytes != 0 {
		return false
	}
	for ; len(row) > 0; row = row[countBytes:] {
		fn([2]byte(row), binary.BigEndian.Uint64(row[2:]))
	}
	return true
}
