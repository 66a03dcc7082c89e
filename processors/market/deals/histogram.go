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
