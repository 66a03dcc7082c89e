package valuation

import (
	"context"
	"fmt"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/topics"
)

// pledgedPosition is a position's liquidity in a range. Its base is the token that is not the dollar token, or
// is farther from it; the other token's price stays fixed in scenarios.
//
// Its contents are computed from the reference prices of its tokens, not from the pool's price, so that moving
// the pool does not change the value.
type pledgedPosition struct {
	st    *state
	in    *pool
	held  *topics.PositionLiquidity
	base0 bool // currency0 is the base
	quote *quoted
	leg   *quoted
	apart map[*pool]*pool // cache of without, for its pool as it stands and at its reference: each copies all ticks
}

func (s *state) pledgedPosition(held *topics.PositionLiquidity) (*pledgedPosition, error) {
	if held == nil {
		return nil, refuse(reasonNoPool, "the contents of the position are unknown")
	}
	in := s.byID(held.PoolID)
	if in == nil {
		return nil, refuse(reasonNoPool, "the position's pool %s is not allowed", held.PoolID)
	}
	p := &pledgedPosition{st: s, in: in, held: held}
	q0, err := s.reference(in.Currency0)
	if err != nil {
		return nil, err
	}
	q1, err := s.reference(in.Currency1)
	if err != nil {
		return nil, err
	}
	if p.base0 = len(q0.pools()) > len(q1.pools()); p.base0 {
		p.quote, p.leg = q0, q1
	} else {
		p.quote, p.leg = q1, q0
	}
	// A pool far from the reference prices is about to be arbitraged, which would change its contents.
	fair, err := ammv4.TickAtSqrtPrice(p.rootAt(p.quote.price))
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", in.ID, err)
	}
	if gap := abs(in.Tick - fair); gap > s.cfg.Reference.MaxDeviation {
		return nil, refuse(reasonDeviation, "pool %s is %d ticks away from its tokens' reference prices", in.ID, gap)
	}
	return p, p.deepWithout()
}

// deepWithout returns an error if the position's pool prices its tokens and is too shallow without the position: the
// owner of nearly all of a pool's liquidity can hold its price anywhere.
func (p *pledgedPosition) deepWithout() error {
	if !slices.Contains(p.quote.pools(), p.in) {
		return nil
	}
	for _, own := range append(p.in.fair.both(), p.in.stood) {
		if own == nil {
			return refuse(reasonDepth, "pool %s cannot be moved to its reference price", p.in.ID)
		}
		depth := depthOf(&p.leave(own).amm)
		leg := &depth[0]
		if p.base0 {
			leg = &depth[1]
		}
		if have := worth(leg.ToBig(), p.leg.price); have.Cmp(new(big.Int).SetUint64(p.st.cfg.Reference.MinDepth)) < 0 {
			return refuse(reasonDepth, "pool %s is too shallow without the position: %s raw USDG move its price by 2 %%", p.in.ID, have)
		}
	}
	return nil
}

// rootAt is the square root of the pool's price for a price of the base.
func (p *pledgedPosition) rootAt(at price) *uint256.Int {
	inLeg := over(at, p.leg.price)
	if !p.base0 {
		inLeg = inverse(inLeg)
	}
	return sqrtOf(inLeg)
}

// baseAt is the price of the base for a square root of the pool's price.
func (p *pledgedPosition) baseAt(root *uint256.Int) price {
	inLeg := priceAt(root)
	if !p.base0 {
		inLeg = inverse(inLeg)
	}
	return times(inLeg, p.leg.price)
}

// amounts are the position's contents for a square root of the pool's price.
func (p *pledgedPosition) amounts(root *uint256.Int) (of0, of1 *uint256.Int, err error) {
	tick, err := ammv4.TickAtSqrtPrice(root)
	if err != nil {
		return nil, nil, fmt.Errorf("pool %s: %w", p.in.ID, err)
	}
	return ammv4.Amounts(root, tick, p.held.TickLower, p.held.TickUpper, &p.held.Liquidity)
}

func (p *pledgedPosition) base() *quoted { return p.quote }

func (p *pledgedPosition) pools() []*pool {
	all := slices.Clone(p.quote.pools())
	for _, q := range p.leg.pools() {
		if !slices.Contains(all, q) {
			all = append(all, q)
		}
	}
	return all
}

func (p *pledgedPosition) baseToken() common.Address {
	if p.base0 {
		return p.in.Currency0
	}
	return p.in.Currency1
}

func (p *pledgedPosition) text(at price) string { return p.quote.text(at) }

func (p *pledgedPosition) value(at price) (*big.Int, error) {
	of0, of1, err := p.amounts(p.rootAt(at))
	if err != nil {
		return nil, err
	}
	return p.worth(of0, of1, at), nil
}

// worth is the value of amounts of both currencies, each rounded down.
func (p *pledgedPosition) worth(of0, of1 *uint256.Int, at price) *big.Int {
	base, leg := of1, of0
	if p.base0 {
		base, leg = of0, of1
	}
	z := worth(base.ToBig(), at)
	return z.Add(z, worth(leg.ToBig(), p.leg.price))
}

// valueAt is value(baseAt(root)), for many roots. The square root of that price is root itself, and the price is not
// reduced to lowest terms, which would take nearly all of the time.
type valueAt struct {
	*pledgedPosition

	value, other, square, den big.Int
}

// of returns the value, until the next call.
func (v *valueAt) of(root *uint256.Int) (*big.Int, error) {
	of0, of1, err := v.amounts(root)
	if err != nil {
		return nil, err
	}
	into := func(n *uint256.Int, b *big.Int) *big.Int { n.IntoBig(&b); return b }
	base, leg := of1, of0
	num, den := q192, into(root, &v.square)
	den.Mul(den, den)
	if v.base0 {
		base, leg = of0, of1
		num, den = den, num
	}
	in := &v.leg.price
	z := into(base, &v.value)
	z.Mul(z, num).Mul(z, in.Num)
	z.Quo(z, v.den.Mul(den, in.Den))
	rest := into(leg, &v.other)
	return z.Add(z, rest.Quo(rest.Mul(rest, in.Num), in.Den)), nil
}

// atValue bisects over square root prices: the value rises with the price of the base.
func (p *pledgedPosition) atValue(want *big.Int) (price, bool, error) {
	low, high := ammv4.MinSqrtPrice.Clone(), new(uint256.Int).SubUint64(ammv4.MaxSqrtPrice, 1)
	at := valueAt{pledgedPosition: p}
	enough := func(root *uint256.Int) (bool, error) {
		value, err := at.of(root)
		return err == nil && value.Cmp(want) >= 0, err
	}
	// If the base is currency1 its price rises as the root falls.
	dear, cheap := high, low
	if !p.base0 {
		dear, cheap = low, high
	}
	if ok, err := enough(dear); err != nil || !ok {
		return price{}, false, err
	}
	if ok, err := enough(cheap); err != nil || ok {
		return p.baseAt(cheap), ok, err
	}
	if err := p.narrow(low, high, enough); err != nil {
		return price{}, false, err
	}
	return p.baseAt(dear), true, nil
}

// narrow bisects between low and high, for one of which enough holds, until they are adjacent. It tries the ends of the
// position's range first, because most prices are within it.
func (p *pledgedPosition) narrow(low, high *uint256.Int, enough func(*uint256.Int) (bool, error)) error {
	at := func(root *uint256.Int) error {
		ok, err := enough(root)
		if err != nil {
			return err
		}
		if ok == p.base0 {
			high.Set(root)
		} else {
			low.Set(root)
		}
		return nil
	}
	for _, tick := range []int32{p.held.TickLower, p.held.TickUpper} {
		end, err := ammv4.SqrtPriceAtTick(tick)
		if err != nil {
			return err
		}
		if low.Lt(end) && end.Lt(high) {
			if err := at(end); err != nil {
				return err
			}
		}
	}
	one, middle := uint256.NewInt(1), new(uint256.Int)
	for middle.Sub(high, low).Gt(one) {
		if err := at(middle.Add(low, middle.Rsh(middle, 1))); err != nil {
			return err
		}
	}
	return nil
}

func (p *pledgedPosition) ends() (bottom, top price, ok bool, err error) {
	lower, err := ammv4.SqrtPriceAtTick(p.held.TickLower)
	if err != nil {
		return bottom, top, false, err
	}
	upper, err := ammv4.SqrtPriceAtTick(p.held.TickUpper)
	if err != nil {
		return bottom, top, false, err
	}
	if !p.base0 {
		lower, upper = upper, lower
	}
	return p.baseAt(lower), p.baseAt(upper), true, nil
}

func (p *pledgedPosition) haircut() (sigma float64, maxBps uint16) {
	sigma = p.st.sigma(p.baseToken(), p.quote)
	if leg, _ := p.in.other(p.baseToken()); leg != p.st.cfg.Deployment.USDG {
		sigma = max(sigma, p.st.sigma(leg, p.leg)) // if one of them falls by a part, the position loses at most that part
	}
	return sigma, min(p.st.maxBps(p.in.Currency0), p.st.maxBps(p.in.Currency1))
}

// proceeds removes the liquidity from its pool, and then sells the tokens one after the other: the second into the
// pools as the first sale left them.
func (p *pledgedPosition) proceeds(in poolPrice) (*big.Int, error) {
	own, err := in(p.in, p.base0)
	if err != nil {
		return nil, err
	}
	of0, of1, err := ammv4.Amounts(&own.SqrtPriceX96, own.Tick, p.held.TickLower, p.held.TickUpper, &p.held.Liquidity)
	if err != nil {
		return nil, err
	}
	without := p.leave(own)
	after := func(other *pool, currency0 bool) (*pool, error) {
		if other.ID == without.ID {
			return without, nil
		}
		return in(other, currency0)
	}
	sum, left, err := p.st.soldFor(p.in.Currency0, of0, after)
	if err != nil {
		return nil, err
	}
	more, _, err := p.st.soldFor(p.in.Currency1, of1, left)
	if err != nil {
		return nil, err
	}
	return sum.Add(sum, more), nil
}

// leave is its pool without the position.
func (p *pledgedPosition) leave(own *pool) *pool {
	if p.apart == nil {
		p.apart = make(map[*pool]*pool, 2)
	}
	if p.apart[own] == nil {
		p.apart[own] = own.without(p.held)
	}
	return p.apart[own]
}

// without is the pool after the position has left it. If the position's liquidity is too recent to count as standing,
// the same amount is subtracted from that of others.
func (p *pool) without(held *topics.PositionLiquidity) *pool {
	left := *p
	ticks := slices.Clone(p.amm.Ticks)
	sum, shown := p.below, p.below // two's complement
	if known := p.amm.From != p.amm.To; known && held.TickLower < p.amm.From && p.amm.From <= held.TickUpper {
		sum.Sub(&sum, &held.Liquidity)
		if shown = sum; sum.Sign() < 0 {
			shown.Clear()
		}
	}
	left.below, left.amm.Ticks = shown, ticks
	for i := range ticks {
		t := &ticks[i]
		sum.Add(&sum, &t.Net)
		switch t.Index {
		case held.TickLower:
			sum.Sub(&sum, &held.Liquidity)
		case held.TickUpper:
			sum.Add(&sum, &held.Liquidity)
		}
		before := shown
		if shown = sum; sum.Sign() < 0 {
			shown.Clear()
		}
		t.Net.Sub(&shown, &before)
	}
	left.sum()
	return &left
}

// positionBody is the position's present contents and fees.
func (s *Service) positionBody(ctx context.Context, st *state, p *pledgedPosition) (*positionBody, error) {
	of0, of1, err := ammv4.Amounts(&p.in.SqrtPriceX96, p.in.Tick, p.held.TickLower, p.held.TickUpper, &p.held.Liquidity)
	if err != nil {
		return nil, err
	}
	fees, err := s.chain.uncollected(ctx, st, p.in, &p.held.TokenID, &p.held.Liquidity, p.held.TickLower, p.held.TickUpper)
	if err != nil {
		return nil, err
	}
	return &positionBody{
		TokenID: p.held.TokenID.Dec(), PoolID: p.in.ID.Hex(), Token0: lower(p.in.Currency0), Token1: lower(p.in.Currency1),
		Fee: p.in.Fee, TickLower: p.held.TickLower, TickUpper: p.held.TickUpper, Liquidity: p.held.Liquidity.Dec(),
		InRange: p.held.TickLower <= p.in.Tick && p.in.Tick < p.held.TickUpper,
		Amount0: of0.Dec(), Amount1: of1.Dec(), Fees0: fees[0].Dec(), Fees1: fees[1].Dec(),
		FeesUSDG: p.worth(&fees[0], &fees[1], p.quote.price).String(),
	}, nil
}
