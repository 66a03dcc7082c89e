package valuation

import (
	"cmp"
	"iter"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts/ammv4"
)

// twoHopRoute is a route from a token to USDG through another token.
type twoHopRoute struct {
	quoted
	first  *big.Int // depth of its first pool
	most   *big.Int // the lower of both pools' candidate.depth
	least  *big.Int // the lower of both pools' candidate.least
	unsure error    // why it gives no price
}

// twoHop computes the price through the deepest pair of pools. Disturbing one pair must not make another one define the
// price: so it is refused if any pair that is less than muchDeeper times shallower is unreliable or disagrees.
func (s *state) twoHop(token common.Address) (*quoted, error) {
	var all []*twoHopRoute
	var wrong error
	for hop := range s.hops(token) {
		way, err := s.routeBy(token, hop)
		if err != nil {
			wrong = err
		}
		if way != nil {
			all = append(all, way)
		}
	}
	if len(all) == 0 {
		return nil, cmp.Or(wrong, error(refuse(reasonNoPool, "no allowed pool prices %s", lower(token))))
	}
	slices.SortStableFunc(all, func(a, b *twoHopRoute) int { return cmp.Or(b.most.Cmp(a.most), b.first.Cmp(a.first)) })
	best := all[0]
	if best.unsure != nil {
		return nil, best.unsure
	}
	for _, other := range all[1:] {
		objection := other.unsure
		if objection == nil {
			gap, err := ticksApart(best.price, other.price)
			if err != nil {
				return nil, err
			}
			if gap > s.cfg.Reference.MaxDeviation {
				objection = refuse(reasonDisagree, "pools %s and %s are %d ticks apart", best.pools()[0].ID, other.pools()[0].ID, gap)
			}
		}
		switch {
		case objection == nil:
			best.ways = append(best.ways, other.ways...)
		case contradicts(other.most, best.least):
			return nil, objection
		}
	}
	return &best.quoted, nil
}

// routeBy is the route through one other token. Nil: there is none, or it is thin or paused and does not count; the
// error says why.
func (s *state) routeBy(token, hop common.Address) (*twoHopRoute, error) {
	second, err := s.deepest(hop, s.cfg.Deployment.USDG, par)
	if second == nil {
		return nil, err
	}
	inUSDG, fault := second.pool.referenceOf(hop)
	if fault != nil {
		return nil, fault
	}
	first, unsteady := s.deepest(token, hop, inUSDG)
	if first == nil {
		return nil, unsteady
	}
	err = cmp.Or(err, unsteady)
	if off := s.paused(hop); off != nil || first.thin || second.thin {
		return nil, cmp.Or(off, err)
	}
	way := &twoHopRoute{first: first.depth, most: first.depth, least: first.least, unsure: err}
	if second.depth.Cmp(way.most) < 0 {
		way.most = second.depth
	}
	if second.least.Cmp(way.least) < 0 {
		way.least = second.least
	}
	if err != nil {
		return way, nil //nolint:nilerr // without a price of its own it still stops others
	}
	inHop, fault := first.pool.referenceOf(token)
	if fault != nil {
		return nil, fault
	}
	way.quoted = quoted{price: times(inHop, inUSDG), kind: kindTwoHop, ways: ways(first, second)}
	return way, nil
}

// hops are the tokens other than the dollar that a token has a pool with, each once.
func (s *state) hops(token common.Address) iter.Seq[common.Address] {
	return func(yield func(common.Address) bool) {
		for _, hop := range s.pairs.others[token] {
			if hop != s.cfg.Deployment.USDG && !yield(hop) {
				return
			}
		}
	}
}

// ways are all routes through one pool of each pair, that through the deepest pools first.
func ways(hops ...*candidate) [][]*pool {
	all := [][]*pool{nil}
	for _, hop := range hops {
		var longer [][]*pool
		for _, way := range all {
			for _, p := range append([]*pool{hop.pool}, hop.beside...) {
				longer = append(longer, append(slices.Clone(way), p))
			}
		}
		all = longer
	}
	return all
}

// ticksApart is how many ticks lie between two prices.
func ticksApart(a, b price) (int32, error) {
	one, err := ammv4.TickAtSqrtPrice(sqrtOf(a))
	if err != nil {
		return 0, err
	}
	other, err := ammv4.TickAtSqrtPrice(sqrtOf(b))
	return abs(one - other), err
}
