package query_test

import (
	"context"
	"math/big"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/liquidity"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// fundedAt is a deal of 7 days with a cap and a price.
func fundedAt(id uint64, limit, price *uint256.Int, seconds uint64) []contracts.Event {
	e := listing(id)
	e.Cap, e.MinPrice, e.Term, e.ListedAt = *limit, *price, contracts.ShortTerm, 1
	return []contracts.Event{e, &contracts.DealFunded{DealID: word(id), Lender: address(7), Price: *price, Fee: word(0), FundedAt: 1 + seconds}}
}

// Medians are exact whatever the numbers are: of any length, all alike but for their last bits, or the same.
func TestMediansOfAnyNumbersAreExact(t *testing.T) {
	for name, limit := range map[string]func(r *rand.Rand) *uint256.Int{
		"of any length": func(r *rand.Rand) *uint256.Int { return new(uint256.Int).Rsh(amount(r), uint(r.IntN(120))) },
		"that differ in their last bits": func(r *rand.Rand) *uint256.Int {
			return new(uint256.Int).Add(new(uint256.Int).Lsh(uint256.NewInt(1), 126), uint256.NewInt(r.Uint64N(50)))
		},
		"all the same": func(*rand.Rand) *uint256.Int { return uint256.NewInt(777) },
	} {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 1))
			m := newMarketNode(t, deployment)
			var costs, waits []*big.Int
			for id := uint64(1); id <= 60; id++ {
				price, seconds := uint256.NewInt(1+r.Uint64N(1000)), r.Uint64N(200)
				limit := new(uint256.Int).Add(limit(r), price)
				m.mine(t, 1, fundedAt(id, limit, price, seconds)...)
				cost := new(big.Int).Mul(new(big.Int).Sub(limit.ToBig(), price.ToBig()), big.NewInt(10_000))
				costs, waits = append(costs, cost.Quo(cost, price.ToBig())), append(waits, new(big.Int).SetUint64(seconds))
				routers := map[string]*query.Client{"one node": m.router}
				if id%20 == 0 {
					routers["two nodes"] = inTwoHalves(t, m.node)
				}
				for reader, router := range routers {
					a, err := router.Stats(t.Context())
					got := must(t, a, err).Medians
					if want := mean(costs); got.CostBps7d == nil || got.CostBps7d.ToBig().Cmp(want) != 0 {
						t.Fatalf("%s: median of %d costs is %v, want %s", reader, id, got.CostBps7d, want)
					}
					if want := mean(waits); got.TimeToFundSeconds.ToBig().Cmp(want) != 0 || got.CostBps21d != nil {
						t.Fatalf("%s: median of %d times is %v, want %s; of longer deals %v", reader, id, got.TimeToFundSeconds, want, got.CostBps21d)
					}
				}
			}
		})
	}
}

func amount(r *rand.Rand) *uint256.Int {
	return &uint256.Int{r.Uint64(), r.Uint64() >> 1}
}

// mean is the median of numbers, by their order.
func mean(all []*big.Int) *big.Int {
	sorted := slices.SortedFunc(slices.Values(all), (*big.Int).Cmp)
	sum := new(big.Int).Add(sorted[(len(all)-1)/2], sorted[len(all)/2])
	return sum.Rsh(sum, 1)
}

// A median is found without a look at every number beside it: the same number of reads for ten times as many deals
// whose numbers begin alike.
func TestMediansReadNoMoreForMoreDeals(t *testing.T) {
	m := newMarketNode(t, deployment)
	counted := &counting{node: m.node}
	routing := query.DefaultConfig()
	routing.Partitions, routing.Local = marketPartitions, counted
	router, err := query.NewClient(routing, deployment)
	if err != nil {
		t.Fatal(err)
	}
	next := uint64(1)
	read := func(deals uint64) int {
		var events []contracts.Event
		for ; next <= deals; next++ {
			limit := uint256.NewInt(1_000_000 + next%16)
			events = append(events, fundedAt(next, limit, uint256.NewInt(900_000), 65_536+next%4096)...)
		}
		m.mine(t, 100*86_400, events...) // long ago, soon
		m.mine(t, 100*86_400)
		counted.rows = 0
		a, err := router.Stats(t.Context())
		if must(t, a, err).Deals.Total != deals {
			t.Fatalf("%d deals, want %d", a.Value.Deals.Total, deals)
		}
		return counted.rows
	}
	few, many := read(400), read(4_000)
	t.Logf("%d and %d rows", few, many)
	if many > 2*few {
		t.Errorf("%d rows are read of 4,000 deals, %d of 400", many, few)
	}
}

// counting counts the rows that are read of a node, and how often it seeks one.
type counting struct {
	*node
	mu    sync.Mutex
	rows  int // but of those of positions' contents that a scan goes over
	over  int // of those, how many these are
	seeks int
	each  func(rows int) // nil: nothing
}

func (c *counting) seek() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seeks++
}

func (c *counting) pass() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over++
}

func (c *counting) visit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rows++; c.each != nil {
		c.each(c.rows)
	}
}

func (c *counting) View(ctx context.Context, p int32, at *topics.BlockRef) (state.View, error) {
	v, err := c.node.View(ctx, p, at)
	if err != nil {
		return nil, err
	}
	return &countingView{v, c}, nil
}

type countingView struct {
	state.View
	of *counting
}

func (v *countingView) Get(t *state.Table, key []byte) ([]byte, error) {
	v.of.seek()
	v.of.visit()
	return v.View.Get(t, key)
}

func (v *countingView) count(fn func(a, b []byte) bool) func(a, b []byte) bool {
	return func(a, b []byte) bool {
		v.of.visit()
		return fn(a, b)
	}
}

func (v *countingView) Scan(t *state.Table, prefix, after []byte, fn func(key, row []byte) bool) error {
	v.of.seek()
	if t == liquidity.PositionLiquidities {
		return v.View.Scan(t, prefix, after, func(key, row []byte) bool {
			v.of.pass()
			return fn(key, row)
		})
	}
	return v.View.Scan(t, prefix, after, v.count(fn))
}

func (v *countingView) ScanIndex(index byte, prefix, after []byte, fn func(entry, value []byte) bool) error {
	v.of.seek()
	return v.View.ScanIndex(index, prefix, after, v.count(fn))
}
