package deals

import (
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/rules"
	"github.com/lienstream/lienstream/topics"
)

// Histogram identifies a set of numbers, one per deal.
type Histogram byte

// The histograms, each of all deals ever funded.
const (
	HistogramCost7      Histogram = iota // (cap-price)*10000/price rounded down, of deals of 7 days
	HistogramCost21                      // the same, of deals of 21 days
	HistogramTimeToFund                  // seconds from listing to funding

	Histograms // number of histograms
)

// Numbers calls fn for each number of a funded deal.
func Numbers(d *topics.Deal, fn func(Histogram, uint256.Int)) {
	switch d.Term {
	case contracts.ShortTerm:
		fn(HistogramCost7, rules.CostBps(&d.Cap, &d.Funding.Price))
	case contracts.LongTerm:
		fn(HistogramCost21, rules.CostBps(&d.Cap, &d.Funding.Price))
	}
	fn(HistogramTimeToFund, *uint256.NewInt(d.Funding.FundedAt - min(d.Funding.FundedAt, d.ListedAt)))
}

// To find a number by its rank, a reader reads the counts of the buckets, which are few, and then the numbers
// of one bucket.
const (
	bucketBytes  = 2
	mantissaBits = 4 // bits after the highest one that select the bucket
)

// Bucket is the bucket of a number: its bit length and the bits after the highest one. Buckets ascend with the
// numbers.
func Bucket(v *uint256.Int) [bucketBytes]byte {
	bits := v.BitLen()
	if bits <= mantissaBits+1 {
		return [bucketBytes]byte{0, byte(v.Uint64())} // one number per bucket
	}
	top := new(uint256.Int).Rsh(v, uint(bits-1-mantissaBits))
	return [bucketBytes]byte{byte(bits - 1), byte(top.Uint64()) & (1<<mantissaBits - 1)}
}

// BucketPrefix is the prefix of a bucket's numbers in IndexNumber.
func BucketPrefix(h Histogram, bucket [2]byte) []byte { return []byte{byte(h), bucket[0], bucket[1]} }

// NumberOf decodes the number in an entry of IndexNumber.
func NumberOf(entry []byte) *uint256.Int {
	return new(uint256.Int).SetBytes(entry[1+bucketBytes:][:32])
}
