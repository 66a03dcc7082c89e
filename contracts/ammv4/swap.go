package ammv4

import (
	"slices"

	"github.com/holiman/uint256"
)

// Tick is a tick at which liquidity begins or ends.
type Tick struct {
	Index int32
	Net   uint256.Int // what the price gains in liquidity when it rises past; two's complement
	price uint256.Int // at Index: a fifth of a swap would go into finding it again
}

// NewTick is a tick of a pool.
func NewTick(index int32, net *uint256.Int) (Tick, error) {
	if index < MinTick || index > MaxTick {
		return Tick{}, ErrTick
	}
	t := Tick{Index: index, Net: *net}
	sqrtPriceAt(&t.price, index)
	return t, nil
}

// Pool is what a swap depends on. Swaps change nothing of it, so that many may run at once.
type Pool struct {
	SqrtPriceX96 uint256.Int
	Tick         int32 // of slot0: it may be one below that of the price
	Liquidity    uint256.Int
	LPFee        uint32 // in millionths
	ProtocolFee  uint32 // as slot0 holds it: see ProtocolFee
	TickSpacing  int32
	Ticks        []Tick // of NewTick, ascending; multiples of the spacing

	// Ticks are all that there are from the first of these ticks to the second; both zero: however far.
	From, To int32
}

// Swap is an order. The limit is the price at which it ends, whatever remains.
type Swap struct {
	ZeroForOne bool
	ExactIn    bool // Amount is what comes in; else what goes out
	Amount     uint256.Int
	Limit      uint256.Int
	MaxTicks   int // maximum ticks crossed; 0: no limit
	MaxSteps   int // steps after which it ends, whatever remains; 0: no limit
}

// MaxCrossed is the maximum number of ticks that a quoted swap crosses. Each costs the contract at least three reads and
// two writes of storage, some 20,000 gas: a transaction of 32 million gas does not get as far.
const MaxCrossed = 2048

// Result is what a swap came to.
type Result struct {
	In, Out       uint256.Int // In with all fees
	Fee           uint256.Int // of In: the liquidity's and the protocol's
	ProtocolFee   uint256.Int // of Fee
	FeeGrowthX128 uint256.Int // that it added to the input's feeGrowthGlobal
	SqrtPriceX96  uint256.Int // where it left the pool
	Tick          int32
	Liquidity     uint256.Int
	Steps         int
	Crossed       int // ticks
}

// The limits of a swap that has none of its own.
var (
	lowestLimit  = new(uint256.Int).AddUint64(MinSqrtPrice, 1)
	highestLimit = new(uint256.Int).SubUint64(MaxSqrtPrice, 1)
)

// Quote is V4Quoter's quoteExactInputSingle and quoteExactOutputSingle: a swap without a limit, which must come to
// the whole amount. ErrTicks: it would cross more than MaxCrossed, or leave what the pool knows of its ticks.
func (p *Pool) Quote(r *Result, zeroForOne, exactIn bool, amount *uint256.Int) error {
	if err := p.swapAll(r, zeroForOne, exactIn, amount); err != nil {
		return err
	}
	if exactIn && !r.In.Eq(amount) || !exactIn && !r.Out.Eq(amount) {
		return ErrLiquidity
	}
	return nil
}

// Sell is a swap of an amount that comes in, as far as the liquidity is enough for it.
func (p *Pool) Sell(r *Result, zeroForOne bool, amount *uint256.Int) error {
	return p.swapAll(r, zeroForOne, true, amount)
}

// swapAll is a swap without a limit. At the end of prices it comes to nothing.
func (p *Pool) swapAll(r *Result, zeroForOne, exactIn bool, amount *uint256.Int) error {
	limit, ended := p.limit(zeroForOne)
	if ended {
		*r = p.untouched()
		return nil
	}
	return p.Swap(r, &Swap{ZeroForOne: zeroForOne, ExactIn: exactIn, Amount: *amount, Limit: *limit, MaxTicks: MaxCrossed})
}

// limit is that of a swap without one, and whether the pool is at that end of prices.
func (p *Pool) limit(zeroForOne bool) (limit *uint256.Int, ended bool) {
	if limit = highestLimit; zeroForOne {
		limit = lowestLimit
	}
	return limit, zeroForOne != p.SqrtPriceX96.Gt(limit) || p.SqrtPriceX96.Eq(limit)
}

// untouched is a swap of nothing.
func (p *Pool) untouched() Result {
	return Result{SqrtPriceX96: p.SqrtPriceX96, Tick: p.Tick, Liquidity: p.Liquidity}
}

// Swap is Pool.swap. It goes from tick to tick and stops at every 256th possible tick too, as the contract does at the
// ends of its bitmap's words: each stop rounds.
//
// It allocates nothing. With ErrTicks the result is that of the ticks up to there.
func (p *Pool) Swap(r *Result, s *Swap) error {
	*r = p.untouched()
	protocolFee := ProtocolFee(p.ProtocolFee, s.ZeroForOne)
	fee := p.LPFee
	if protocolFee > 0 {
		fee = SwapFee(protocolFee, fee)
	}
	switch {
	case fee > feeUnits || fee == feeUnits && !s.ExactIn:
		return ErrFee
	case s.Amount.IsZero():
		return nil
	case s.Amount.BitLen() > 255:
		return ErrOverflow
	case s.ZeroForOne && (!s.Limit.Lt(&p.SqrtPriceX96) || !s.Limit.Gt(MinSqrtPrice)),
		!s.ZeroForOne && (!s.Limit.Gt(&p.SqrtPriceX96) || !s.Limit.Lt(MaxSqrtPrice)):
		return ErrPrice
	}
	if !p.knows(p.Tick) {
		return ErrTicks
	}
	next := p.cursor(s.ZeroForOne)
	remaining := s.Amount
	var step Step
	for !remaining.IsZero() && !r.SqrtPriceX96.Eq(&s.Limit) && (s.MaxSteps == 0 || r.Steps < s.MaxSteps) {
		start := r.SqrtPriceX96
		tick, found := p.stop(r.Tick, next, s.ZeroForOne)
		var at uint256.Int
		if found {
			at = p.Ticks[next].price
		} else {
			sqrtPriceAt(&at, tick)
		}
		target := &at
		if s.ZeroForOne == at.Lt(&s.Limit) {
			target = &s.Limit
		}
		if err := step.run(&r.SqrtPriceX96, target, &r.Liquidity, &remaining, s.ExactIn, fee); err != nil {
			return err
		}
		r.Steps++
		if err := r.take(&step, &remaining, s.ExactIn, fee, protocolFee); err != nil {
			return err
		}
		r.SqrtPriceX96 = step.Next
		switch {
		case r.SqrtPriceX96.Eq(&at):
			if found {
				if r.Crossed++; s.MaxTicks > 0 && r.Crossed > s.MaxTicks {
					return ErrTicks
				}
				if !cross(&r.Liquidity, &p.Ticks[next].Net, s.ZeroForOne) {
					return ErrLiquidity
				}
				next += direction(s.ZeroForOne)
			}
			r.Tick = tick
			if s.ZeroForOne {
				r.Tick--
			}
		case !r.SqrtPriceX96.Eq(&start):
			var err error
			if r.Tick, err = TickAtSqrtPrice(&r.SqrtPriceX96); err != nil {
				return err
			}
		}
		if !p.knows(r.Tick) {
			return ErrTicks
		}
	}
	if r.In.BitLen() > 127 || r.Out.BitLen() > 127 { // int128 each
		return ErrOverflow
	}
	return nil
}

// knows reports whether all ticks up to this one are known.
func (p *Pool) knows(tick int32) bool { return p.From == p.To || p.From <= tick && tick <= p.To }

// take adds a step to the sums.
func (r *Result) take(step *Step, remaining *uint256.Int, exactIn bool, fee, protocolFee uint32) error {
	var in uint256.Int
	if _, overflow := in.AddOverflow(&step.In, &step.Fee); overflow || in.BitLen() > 255 || step.Out.BitLen() > 255 {
		return ErrOverflow
	}
	if exactIn {
		remaining.Sub(remaining, &in)
	} else {
		remaining.Sub(remaining, &step.Out)
	}
	_, over := r.In.AddOverflow(&r.In, &in)
	_, overOut := r.Out.AddOverflow(&r.Out, &step.Out)
	if over || overOut {
		return ErrOverflow
	}
	r.Fee.Add(&r.Fee, &step.Fee)
	lp := step.Fee
	if protocolFee > 0 {
		toProtocol := step.Fee // all of it, where the liquidity takes nothing
		if fee != protocolFee {
			rate, full := uint256.Int{uint64(protocolFee)}, uint256.Int{feeUnits}
			toProtocol.Div(toProtocol.Mul(&in, &rate), &full)
		}
		lp.Sub(&lp, &toProtocol)
		r.ProtocolFee.Add(&r.ProtocolFee, &toProtocol)
	}
	if !r.Liquidity.IsZero() {
		var growth uint256.Int
		growth.Div(growth.Lsh(&lp, 128), &r.Liquidity)
		r.FeeGrowthX128.Add(&r.FeeGrowthX128, &growth)
	}
	return nil
}

// cross is LiquidityMath.addDelta of the change at a tick. It returns false beyond uint128.
func cross(liquidity, net *uint256.Int, falling bool) bool {
	if falling {
		liquidity.Sub(liquidity, net)
	} else {
		liquidity.Add(liquidity, net)
	}
	return liquidity.BitLen() <= liquidityBits
}

func direction(zeroForOne bool) int {
	if zeroForOne {
		return -1
	}
	return 1
}

// cursor is the index of the first tick that a swap may come to.
func (p *Pool) cursor(zeroForOne bool) int {
	i, at := slices.BinarySearchFunc(p.Ticks, p.Tick, func(t Tick, tick int32) int { return int(t.Index) - int(tick) })
	switch {
	case zeroForOne && at, !zeroForOne && !at:
		return i
	case zeroForOne:
		return i - 1
	}
	return i + 1
}

// stop is TickBitmap.nextInitializedTickWithinOneWord within the bounds of ticks: the next tick, where it lies in the
// same word of the bitmap, and else the end of the word. i is the next tick's index.
func (p *Pool) stop(tick int32, i int, zeroForOne bool) (int32, bool) {
	compressed := tick / p.TickSpacing
	if tick%p.TickSpacing < 0 {
		compressed--
	}
	end := (compressed + 1) | 0xff // the word's last
	if zeroForOne {
		end = compressed &^ 0xff // its first
	}
	end *= p.TickSpacing
	if i >= 0 && i < len(p.Ticks) {
		if t := p.Ticks[i].Index; zeroForOne && t >= end || !zeroForOne && t <= end {
			return t, true
		}
	}
	if p.From != p.To {
		end = min(end, p.To+1) // what is beyond is unknown; a tick is at From
	}
	return min(max(end, MinTick), MaxTick), false
}
