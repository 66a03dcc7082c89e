package query

import (
	"bytes"
	"slices"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/stats"
)

// histogramSet is the histograms of all partitions, merged: a count for each bucket, and the numbers of the
// requested buckets.
type histogramSet [deals.Histograms]histogram

type histogram struct {
	total   uint64
	buckets []bucketCount // ascending
}

type bucketCount struct {
	bucket  [2]byte
	n       uint64
	numbers []uint256.Int // ascending
}

// decodeHistograms adds up the partitions' counts; items are sorted, so those of a bucket are adjacent.
func decodeHistograms(split *[sections][]read.Item) (*histogramSet, error) {
	var set histogramSet
	for _, it := range split[sectionCoarse] {
		if len(it.Key) != 1 || it.Key[0] >= byte(deals.Histograms) {
			return nil, read.ErrMalformed
		}
		h := &set[it.Key[0]]
		if !stats.Buckets(it.Row, func(b [2]byte, n uint64) { h.buckets = append(h.buckets, bucketCount{bucket: b, n: n}) }) {
			return nil, read.ErrMalformed
		}
	}
	for h := range set {
		set[h].sum()
	}
	for _, it := range split[sectionFine] {
		if len(it.Key) != 1+2 || it.Key[0] >= byte(deals.Histograms) {
			return nil, read.ErrMalformed
		}
		into := set[it.Key[0]].find([2]byte(it.Key[1:]))
		if into == nil || len(it.Row)%32 != 0 {
			return nil, read.ErrMalformed
		}
		for row := it.Row; len(row) > 0; row = row[32:] {
			into.numbers = append(into.numbers, *new(uint256.Int).SetBytes32(row))
		}
	}
	for h := range set {
		for i := range set[h].buckets {
			slices.SortFunc(set[h].buckets[i].numbers, func(a, b uint256.Int) int { return a.Cmp(&b) })
		}
	}
	return &set, nil
}

// sum merges the partitions' counts of each bucket.
func (h *histogram) sum() {
	slices.SortFunc(h.buckets, func(a, b bucketCount) int { return bytes.Compare(a.bucket[:], b.bucket[:]) })
	merged := h.buckets[:0]
	for _, b := range h.buckets {
		h.total += b.n
		if last := len(merged) - 1; last >= 0 && merged[last].bucket == b.bucket {
			merged[last].n += b.n
			continue
		}
		merged = append(merged, b)
	}
	h.buckets = merged
}

func (h *histogram) find(b [2]byte) *bucketCount {
	i := slices.IndexFunc(h.buckets, func(c bucketCount) bool { return c.bucket == b })
	if i < 0 {
		return nil
	}
	return &h.buckets[i]
}

// middles are the ranks of the median: one or two, from 0.
func (h *histogram) middles() []uint64 {
	switch {
	case h.total == 0:
		return nil
	case h.total%2 == 1:
		return []uint64{h.total / 2}
	}
	return []uint64{h.total/2 - 1, h.total / 2}
}

// holds finds the bucket of a rank, and the rank within the bucket.
func (h *histogram) holds(rank uint64) (*bucketCount, uint64) {
	for i := range h.buckets {
		b := &h.buckets[i]
		if rank < b.n {
			return b, rank
		}
		rank -= b.n
	}
	return nil, 0
}

// needed returns the buckets of the medians.
func (set *histogramSet) needed() (all []bucket) {
	for h := range set {
		for _, rank := range set[h].middles() {
			if b, _ := set[h].holds(rank); b != nil {
				if need := (bucket{deals.Histogram(h), b.bucket}); !slices.Contains(all, need) {
					all = append(all, need)
				}
			}
		}
	}
	return all
}

func (set *histogramSet) medians() Medians {
	return Medians{
		CostBps7d:         set[deals.HistogramCost7].median(),
		CostBps21d:        set[deals.HistogramCost21].median(),
		TimeToFundSeconds: set[deals.HistogramTimeToFund].median(),
	}
}

// median is the number in the middle, or the mean of the two, rounded down. Nil: there is none.
func (h *histogram) median() *uint256.Int {
	ranks := h.middles()
	if len(ranks) == 0 {
		return nil
	}
	low, high := h.number(ranks[0]), h.number(ranks[len(ranks)-1])
	// (low+high)/2 without overflow.
	half := new(uint256.Int).Sub(high, low)
	return half.Add(half.Rsh(half, 1), low)
}

// number is the number with a rank.
func (h *histogram) number(rank uint64) *uint256.Int {
	b, rank := h.holds(rank)
	if b == nil {
		return new(uint256.Int)
	}
	if rank >= uint64(len(b.numbers)) {
		return new(uint256.Int)
	}
	return &b.numbers[rank]
}
