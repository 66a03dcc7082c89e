package valuation

import (
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
)

// hop is a swap in one pool.
type hop struct {
	pool       *pool
	zeroForOne bool
}

// route is a path from one token to another through one or two pools.
type route []hop

// errNoRoute: no allowed pools connect the tokens.
var errNoRoute = errors.New("no route")

// swapped is the result of a swap along a route.
type swapped struct {
	route   route
	in, out uint256.Int
}

// routes are all routes between two sets of tokens: through one pool, or two pools that share a third token.
// Pools with unreliable prices are left out; if there are no others, the error says why.
func (s *state) routes(from, to []common.Address, except *pool) (ways []route, err error) {
	return s.routesBy(from, to, except, s.steady)
}

// routesBy are all routes through pools about which usable has no objection, and whose tokens are not paused.
func (s *state) routesBy(from, to []common.Address, except *pool, usable func(*pool) error) (ways []route, err error) {
	var wrong error
	use := func(p *pool) bool {
		if except != nil && p.ID == except.ID {
			return false
		}
		err := usable(p)
		if err == nil {
			err = s.paused(p.Currency0)
		}
		if err == nil {
			err = s.paused(p.Currency1)
		}
		if err != nil {
			wrong = err
		}
		return err == nil
	}
	for _, first := range s.pools {
		for _, in := range from {
			middle, ok := first.other(in)
			if !ok || slices.Contains(from, middle) {
				continue
			}
			start := hop{first, in == first.Currency0}
			if slices.Contains(to, middle) {
				if use(first) {
					ways = append(ways, route{start})
				}
				continue
			}
			for _, out := range to {
				for _, second := range s.pairs.of(middle, out) {
					if second != first && use(first) && use(second) {
						ways = append(ways, route{start, {second, middle == second.Currency0}})
					}
				}
			}
		}
	}
	switch {
	case len(ways) > 0:
		return ways, nil
	case wrong != nil:
		return nil, wrong
	}
	return nil, errNoRoute
}

// quote swaps the whole amount in a pool, or fails.
func (h hop) quote(r *ammv4.Result, exactIn bool, amount *uint256.Int) error {
	return h.pool.amm.Quote(r, h.zeroForOne, exactIn, amount)
}

// bound is at least as good as the real swap: what exceeds the known ticks, or the ticks that one transaction can
// cross, is swapped at the price reached there, and real prices only get worse from there on.
func (h hop) bound(r *ammv4.Result, exactIn bool, amount *uint256.Int) error {
	err := h.quote(r, exactIn, amount)
	if !errors.Is(err, ammv4.ErrTicks) {
		return err
	}
	at := priceAt(&r.SqrtPriceX96)
	if h.zeroForOne != exactIn {
		at = inverse(at) // price of the remaining input or output
	}
	had, other, round := &r.In, &r.Out, worthUp
	if !exactIn {
		had, other, round = other, had, worth
	}
	rest, over := uint256.FromBig(round(new(big.Int).Sub(amount.ToBig(), had.ToBig()), at))
	if over {
		return ammv4.ErrOverflow
	}
	*had = *amount
	if _, over = other.AddOverflow(other, rest); over {
		return ammv4.ErrOverflow
	}
	return nil
}

// swap swaps an exact input along a route, or for an exact output. ErrLiquidity: it exceeds the pools' liquidity.
func (r route) swap(exactIn bool, amount *uint256.Int) (*swapped, error) {
	return r.by(hop.quote, exactIn, amount)
}

// bound is an upper bound of swap (hop.bound).
func (r route) bound(exactIn bool, amount *uint256.Int) (*swapped, error) {
	return r.by(hop.bound, exactIn, amount)
}

func (r route) by(one func(h hop, r *ammv4.Result, exactIn bool, amount *uint256.Int) error, exactIn bool, amount *uint256.Int) (*swapped, error) {
	s := &swapped{route: r, in: *amount, out: *amount}
	for i := range r {
		var result ammv4.Result
		if exactIn {
			if err := one(r[i], &result, true, &s.out); err != nil {
				return nil, err
			}
			s.out = result.Out
			continue
		}
		if err := one(r[len(r)-1-i], &result, false, &s.in); err != nil {
			return nil, err
		}
		s.in = result.In
	}
	return s, nil
}

// best is the route with the highest output or the lowest input. ErrLiquidity: none has enough liquidity.
func best(ways []route, exactIn bool, amount *uint256.Int) (*swapped, error) {
	var found *swapped
	var wrong error
	for _, way := range ways {
		q, err := way.swap(exactIn, amount)
		switch {
		case err != nil:
			wrong = err
		case found == nil || exactIn && q.out.Gt(&found.out) || !exactIn && q.in.Lt(&found.in):
			found = q
		}
	}
	if found == nil {
		return nil, wrong
	}
	return found, nil
}

// poolPrice selects the pool state to sell one of its currencies into.
type poolPrice func(p *pool, currency0 bool) (*pool, error)

// asTheyStand uses the pools at their current prices, with their standing liquidity.
func asTheyStand(p *pool, _ bool) (*pool, error) { return p.stood, nil }

// atReference uses the same pools at their reference prices, so that manipulation has no effect.
func atReference(p *pool, currency0 bool) (*pool, error) {
	fair := p.fair.cheap(currency0)
	if fair == nil {
		return nil, refuse(reasonDepth, "pool %s cannot be moved to its reference price", p.ID)
	}
	return fair, nil
}

// soldFor is the result of selling an amount for USDG by the best route, as far as the liquidity allows, and the pools
// after the sale.
func (s *state) soldFor(token common.Address, amount *uint256.Int, in poolPrice) (most *big.Int, left poolPrice, err error) {
	usdg := s.cfg.Deployment.USDG
	if token == usdg {
		return amount.ToBig(), in, nil
	}
	most, left = new(big.Int), in
	if amount.IsZero() {
		return most, left, nil
	}
	ways, err := s.routes([]common.Address{token}, []common.Address{usdg}, nil)
	if err != nil {
		if errors.Is(err, errNoRoute) {
			err = nil
		}
		return most, left, err
	}
	for _, way := range ways {
		out, moved := *amount, make(map[common.Hash]*pool, len(way))
		for _, h := range way {
			p, err := in(h.pool, h.zeroForOne)
			if err != nil {
				return nil, nil, err
			}
			var result ammv4.Result
			err = p.amm.Sell(&result, h.zeroForOne, &out)
			switch {
			case err == nil, errors.Is(err, ammv4.ErrTicks): // a part is sold
				moved[p.ID] = p.after(&result)
			case errors.Is(err, ammv4.ErrLiquidity), errors.Is(err, ammv4.ErrOverflow):
				result.Out.Clear()
			default:
				return nil, nil, fmt.Errorf("sell %s in pool %s: %w", token, p.ID, err)
			}
			out = result.Out
		}
		if got := out.ToBig(); got.Cmp(most) > 0 {
			most, left = got, func(p *pool, currency0 bool) (*pool, error) {
				if after := moved[p.ID]; after != nil {
					return after, nil
				}
				return in(p, currency0)
			}
		}
	}
	return most, left, nil
}

// spot is the product of the current prices of a route's pools, input per output, after fees.
func (r route) spot() price {
	p := par
	for _, h := range r {
		at := priceAt(&h.pool.SqrtPriceX96)
		if !h.zeroForOne {
			at = inverse(at)
		}
		fee := h.pool.amm.LPFee
		if protocol := ammv4.ProtocolFee(h.pool.amm.ProtocolFee, h.zeroForOne); protocol > 0 {
			fee = ammv4.SwapFee(protocol, fee)
		}
		p = times(p, part(at, int64(1_000_000-fee), 1_000_000))
	}
	return p
}

// impactBps is the price impact 10^4·(1 − out/(in·spot·(1−fee))), rounded up.
func (q *swapped) impactBps() int64 {
	fair := q.route.spot()
	full := new(big.Int).Mul(q.in.ToBig(), fair.Num) // to be divided by fair.Den
	got := new(big.Int).Mul(q.out.ToBig(), fair.Den)
	if full.Sign() == 0 || got.Cmp(full) >= 0 {
		return 0
	}
	lost := new(big.Int).Sub(full, got)
	lost.Mul(lost, big.NewInt(bpsOfAll)).Add(lost, full).Sub(lost, big.NewInt(1))
	return lost.Quo(lost, full).Int64()
}

const bpsOfAll = 10_000

// routeBody lists the pools of a quote.
type routeBody struct {
	Kind string    `json:"kind"`
	Hops []hopBody `json:"hops"`
}

type hopBody struct {
	PoolID   string `json:"poolId"`
	TokenIn  string `json:"tokenIn"`
	TokenOut string `json:"tokenOut"`
	Fee      uint32 `json:"fee"`
}

func (r route) body() routeBody {
	b := routeBody{Kind: kindPool, Hops: []hopBody{}}
	if len(r) > 1 {
		b.Kind = kindTwoHop
	}
	for _, h := range r {
		in, out := h.pool.Currency1, h.pool.Currency0
		if h.zeroForOne {
			in, out = out, in
		}
		b.Hops = append(b.Hops, hopBody{h.pool.ID.Hex(), lower(in), lower(out), h.pool.Fee})
	}
	return b
}

// least is an amount minus slippage, rounded down.
func least(amount *uint256.Int, slippageBps int64) string {
	return worth(amount.ToBig(), fraction(big.NewInt(bpsOfAll-slippageBps), big.NewInt(bpsOfAll))).String()
}

// most is an amount plus slippage, rounded up.
func most(amount *uint256.Int, slippageBps int64) *big.Int {
	return worthUp(amount.ToBig(), fraction(big.NewInt(bpsOfAll+slippageBps), big.NewInt(bpsOfAll)))
}
