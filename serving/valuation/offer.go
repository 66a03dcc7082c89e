package valuation

import (
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
)

// offer is what the pools offer between two sets of tokens.
type offer struct {
	st   *state
	now  []route // through pools with reliable prices
	fair []route // through pools at their reference prices, without those that have none or are shallow there
}

// offer finds the routes between two sets of tokens. Its error says why there are none.
func (s *state) offer(from, to []common.Address, except *pool) (*offer, error) {
	now, err := s.routes(from, to, except)
	if err != nil {
		return nil, err
	}
	o := &offer{st: s, now: now}
	if o.fair, err = s.routesBy(from, to, except, s.settles); err != nil {
		return nil, err // only thin pools: little money moves their prices
	}
	for _, way := range o.fair {
		for i := range way {
			way[i].pool = way[i].pool.settled.cheap(!way[i].zeroForOne) // where more comes out
		}
	}
	return o, nil
}

// settles returns the reason why a pool's offer at its reference price is unknown, or nil.
func (s *state) settles(p *pool) error {
	if err := s.known(p); err != nil {
		return err
	}
	if p.shallow {
		return refuse(reasonDepth, "pool %s is too shallow at its reference price", p.ID)
	}
	return nil
}

// settle computes which pools are too shallow at their references, once for all requests.
func (s *state) settle() {
	prices := map[common.Address]*quoted{} // nil: it has none
	for _, p := range s.pools {
		for _, token := range []common.Address{p.Currency0, p.Currency1} {
			if _, known := prices[token]; known {
				continue
			}
			if q, err := s.priced(token); err == nil {
				prices[token] = q
			} else {
				prices[token] = nil
			}
		}
		p.shallow = slices.ContainsFunc(p.settled.both(), func(settled *pool) bool { return settled == nil || s.shallow(settled, prices) })
	}
}

// shallow reports whether a pool's depth in either of its tokens that have a price is below the floor. Such a pool must
// not refuse quotes, or one with a few cents at an old price could refuse all.
func (s *state) shallow(p *pool, prices map[common.Address]*quoted) bool {
	floor := new(big.Int).SetUint64(s.cfg.Reference.MinDepth)
	for _, token := range []common.Address{p.Currency0, p.Currency1} {
		if q := prices[token]; q != nil && worth(p.depthIn(token), q.price).Cmp(floor) < 0 {
			return true
		}
	}
	return false
}

// quote is the best swap at the pools' prices. It is refused if a swap at the reference prices would be better by more
// than MaxDeviation for each of its pools, also through pools whose price is unreliable now. So moving a pool, to where
// it has no liquidity or away from the best route, does not worsen the quote unnoticed.
func (o *offer) quote(exactIn bool, amount *uint256.Int) (*swapped, error) {
	now, scarce := best(o.now, exactIn, amount)
	bound := route.bound // an upper bound also where liquidity is unknown, so no better swap is missed
	if scarce != nil {
		bound = route.swap
	}
	for _, way := range o.fair {
		fair, err := bound(way, exactIn, amount)
		if err != nil {
			continue // there is less liquidity than now
		}
		if scarce != nil {
			return nil, refuse(reasonDeviation, "at the reference prices of the pools it would be %s for %s, for which there is no liquidity now",
				fair.out.Dec(), fair.in.Dec())
		}
		better, other := &now.out, &fair.out
		if !exactIn {
			better, other = &fair.in, &now.in
		}
		if o.st.worse(better.ToBig(), len(way)).Cmp(other.ToBig()) < 0 {
			return nil, refuse(reasonDeviation, "at the reference prices of the pools it could be %s for %s, and not %s for %s",
				fair.out.Dec(), fair.in.Dec(), now.out.Dec(), now.in.Dec())
		}
	}
	return now, scarce
}

// worse is an amount increased by the tolerated deviation: MaxDeviation for each of a number of pools.
func (s *state) worse(amount *big.Int, pools int) *big.Int {
	ticks := int64(s.cfg.Reference.MaxDeviation) * int64(pools)
	root, err := ammv4.SqrtPriceAtTick(int32(min(ticks, ammv4.MaxTick)))
	if err != nil {
		panic("valuation: a tick within the bounds has no price: " + err.Error())
	}
	return worthUp(amount, priceAt(root))
}
