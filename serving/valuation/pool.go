package valuation

import (
	"slices"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/market/query"
)

// pool is a pool with its reference price and depth.
type pool struct {
	query.PoolState
	amm       ammv4.Pool
	growth    ammv4.FeeGrowth
	reference span   // the time-weighted median ticks
	history   uint64 // seconds of the window with a price
	stood     *pool  // with only the liquidity that has been there long enough: liquidity of one block has no effect
	fair      ends   // stood at its reference
	settled   ends   // with all of its liquidity, at the price nearest to its own within either tick of its reference
	shallow   bool   // settled is too shallow, or unknown
	depth     [2]uint256.Int
	below     uint256.Int // liquidity below the first tick that amm knows
}

// span is the ticks between which a price is.
type span struct{ low, high int32 }

// cheap is the end at which one of the pool's currencies is worth least.
func (r span) cheap(currency0 bool) int32 {
	if currency0 {
		return r.low
	}
	return r.high
}

// apart is the distance of two references: the larger one of their lower and their higher ends.
func (r span) apart(other span) int32 { return max(abs(r.low-other.low), abs(r.high-other.high)) }

func (r span) middle() int32 { return r.low + (r.high-r.low)/2 }

// ends is a pool at both ends of its reference; nil: it is unknown there.
type ends struct{ low, high *pool }

// cheap is the pool where one of its currencies is worth least.
func (e ends) cheap(currency0 bool) *pool {
	if currency0 {
		return e.low
	}
	return e.high
}

// both are the different ones.
func (e ends) both() []*pool {
	if e.low == e.high {
		return []*pool{e.low}
	}
	return []*pool{e.low, e.high}
}

// judge computes a pool's reference, depth and states from its prices over a window. It takes them from the pool of the
// block before if nothing changed, as in most pools: a pool may have very many ticks.
func (p *pool) judge(now, window uint64, before *pool) {
	p.reference.low, p.reference.high, p.history = query.MedianTick(p.Seconds, now, window)
	if before != nil && p.like(before) {
		p.stood, p.depth, p.fair, p.settled = before.stood, before.depth, before.fair, before.settled
		return
	}
	p.stood = p.at(&p.SqrtPriceX96, p.Tick, true)
	p.depth = depthOf(&p.stood.amm)
	p.fair = p.atEnds(true, ammv4.SqrtPriceAtTick)
	p.settled = p.atEnds(false, p.nearestIn)
}

// like reports whether judge would compute the same from two states of a pool, except for its history.
func (p *pool) like(other *pool) bool {
	return p.SqrtPriceX96 == other.SqrtPriceX96 && p.Tick == other.Tick && p.Liquidity == other.Liquidity && p.reference == other.reference &&
		p.amm.LPFee == other.amm.LPFee && p.amm.ProtocolFee == other.amm.ProtocolFee &&
		p.Same(&other.Window) && slices.EqualFunc(p.Far, other.Far, func(a, b query.Window) bool { return a.Same(&b) })
}

// atEnds is a pool as it would be at prices of both ends of the reference.
func (p *pool) atEnds(standing bool, price func(tick int32) (*uint256.Int, error)) (e ends) {
	at := func(tick int32) *pool {
		root, err := price(tick)
		if err != nil {
			return nil
		}
		there := p.moved(root, standing)
		if there != nil {
			there.depth = depthOf(&there.amm)
		}
		return there
	}
	e.low = at(p.reference.low)
	if e.high = e.low; p.reference.high != p.reference.low {
		e.high = at(p.reference.high)
	}
	return e
}

// nearestIn is the square root of the price within a tick that is nearest to the pool's price. A reference has no finer
// resolution than a tick.
func (p *pool) nearestIn(tick int32) (*uint256.Int, error) {
	low, err := ammv4.SqrtPriceAtTick(tick)
	if err != nil || p.SqrtPriceX96.Lt(low) {
		return low, err
	}
	high, err := ammv4.SqrtPriceAtTick(min(tick+1, ammv4.MaxTick))
	if err != nil || high.Lt(&p.SqrtPriceX96) {
		return high, err
	}
	return &p.SqrtPriceX96, nil
}

// at is the pool as it would be at a price, with all of its liquidity or only the standing part; nil: it is unknown
// there.
func (p *pool) at(root *uint256.Int, tick int32, standing bool) *pool {
	w := p.WindowAt(tick)
	if w == nil {
		return nil
	}
	there := *p
	there.below, there.amm.Ticks = w.Below, w.Ticks
	if standing {
		there.below, there.amm.Ticks = w.StandingBelow, w.Standing
	}
	there.amm.From, there.amm.To = w.From, w.To
	there.SqrtPriceX96, there.Tick = *root, tick
	there.amm.SqrtPriceX96, there.amm.Tick = *root, tick
	there.sum()
	return &there
}

// sum adds up the liquidity at the pool's tick.
func (p *pool) sum() {
	p.amm.Liquidity = p.below
	for i := range p.amm.Ticks {
		if p.amm.Ticks[i].Index > p.Tick {
			break
		}
		p.amm.Liquidity.Add(&p.amm.Liquidity, &p.amm.Ticks[i].Net)
	}
	p.Liquidity = p.amm.Liquidity
}

// moved is the pool as it would be at a price; nil: it is unknown there.
func (p *pool) moved(root *uint256.Int, standing bool) *pool {
	if !root.Lt(ammv4.MaxSqrtPrice) {
		root = new(uint256.Int).SubUint64(ammv4.MaxSqrtPrice, 1)
	}
	tick, err := ammv4.TickAtSqrtPrice(root)
	if err != nil {
		return nil
	}
	return p.at(root, tick, standing)
}

// after is the pool as a swap leaves it.
func (p *pool) after(r *ammv4.Result) *pool {
	left := *p
	left.SqrtPriceX96, left.Tick, left.Liquidity = r.SqrtPriceX96, r.Tick, r.Liquidity
	left.amm.SqrtPriceX96, left.amm.Tick, left.amm.Liquidity = r.SqrtPriceX96, r.Tick, r.Liquidity
	return &left
}
