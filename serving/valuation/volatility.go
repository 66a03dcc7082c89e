package valuation

import (
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
)

const (
	hour    = 3600
	logTick = 9.999500033330834e-05 // ln(1.0001)
)

// level is the bounds of the logarithm of a price, in ticks.
type level struct {
	low, high float64
	empty     bool // the pool had hardly any liquidity: the price means nothing
	brief     bool // the pool had more for a moment only: the price may show a move, but not that there was none
}

// levelOf is the level of one of a pool's currencies in the other.
func levelOf(low, high int32, currency0 bool) level {
	if currency0 {
		return level{low: float64(low), high: float64(high)}
	}
	return level{low: -float64(high), high: -float64(low)}
}

// partOfFloor divides the floor of depth that a pool must have had for its closes to count. It is not 1, or a provider
// of a part of the liquidity could choose which hours count by taking it out.
const partOfFloor = 10

// twoPercent is about the part of a currency's virtual reserve that moves a price by 2 %.
const twoPercent = 0.00995

// tooLittle reports whether, with a liquidity and at a price in ticks, less than least of the pool's other currency
// would have moved the price by 2 %.
func tooLittle(liquidity *uint256.Int, at, least float64) bool {
	return float(liquidity)*pow(at/2)*twoPercent < least
}

// hourly are the prices of a currency at the closes of past hours, carried forward; the last one is the reference, as
// the close of the present hour. A close with less depth in the other currency than least is empty: it has the price of
// the last close that is not, or of the first one. A close that had this depth only for moments is brief: its bounds
// are those of the price in its hour, because the liquidity may have been there at any of them.
func (p *pool) hourly(now, history uint64, currency0 bool, least float64) (levels []level) {
	next := 0
	var went []level
	for at := (now - min(now, history) + hour - 1) / hour * hour; at+hour < now; at += hour {
		for next < len(p.Hours) && p.Hours[next].At <= at {
			next++
		}
		if next > 0 {
			c := &p.Hours[next-1]
			of := levelOf(c.Low, c.High, currency0)
			whole := levelOf(c.Low-c.Below, c.High+c.Above, currency0)
			of.empty, of.brief = tooLittle(&c.Liquidity, whole.high, least), tooLittle(&c.Usual, of.low, least)
			levels, went = append(levels, of), append(went, whole)
		}
	}
	levels = append(levels, levelOf(p.reference.low, p.reference.high, currency0))
	known := levels[slices.IndexFunc(levels, func(of level) bool { return !of.empty })]
	for i, of := range levels {
		if !of.empty {
			known = of
		}
		levels[i].low, levels[i].high = known.low, known.high
	}
	for i, whole := range went {
		if of := &levels[i]; of.brief && !of.empty {
			of.low, of.high = whole.low, whole.high
		}
	}
	return levels
}

// sigma is the largest deviation of a token's price over all routes by which it has one. So making a pool without
// trades the deepest one sets the price, but does not lower the deviation.
func (s *state) sigma(token common.Address, q *quoted) (most float64) {
	h := &s.cfg.Haircut
	if len(q.ways) == 0 {
		return h.UnknownHourly
	}
	unknown := h.UnknownHourly
	if s.laneOf(token) == contracts.LaneMeme {
		unknown = max(unknown, h.UnknownMeme)
	}
	ways := q.ways
	if q.kind == kindPool {
		ways = slices.Concat(ways, s.hopWays(token)) // a pool with the dollar must not hide the moves of other pools
	}
	for _, way := range ways {
		known, returns := h.deviation(s.series(token, way))
		if returns < h.MinHours {
			known = max(known, unknown)
		}
		most = max(most, known, h.ofReturns(s.carried(token, way)))
	}
	return most
}

// hopWays are the routes of two hops from a token to USDG that are not thin, reliable or not.
func (s *state) hopWays(token common.Address) (all [][]*pool) {
	for hop := range s.hops(token) {
		second, _ := s.deepest(hop, s.cfg.Deployment.USDG, par)
		if second == nil || second.thin {
			continue
		}
		inUSDG, err := second.pool.referenceOf(hop)
		if err != nil {
			continue
		}
		if first, _ := s.deepest(token, hop, inUSDG); first != nil && !first.thin {
			all = append(all, ways(first, second)...)
		}
	}
	return all
}

// series is the logarithm of a token's price in USDG, in ticks, at the ends of hours and now, through pools that lead
// there. It goes as far back as all of them have a price. The last level is never empty.
func (s *state) series(token common.Address, pools []*pool) []level {
	hops := s.seriesOf(token, pools)
	if len(hops) == 0 {
		return nil // of the dollar token
	}
	n := len(hops[0])
	for _, hop := range hops {
		n = min(n, len(hop))
	}
	return sumOf(hops, n)
}

// carried is series as far back as any of the pools has a price. Before its first price, a pool has that one: so a
// young pool does not hide the moves of another.
func (s *state) carried(token common.Address, pools []*pool) []level {
	hops := s.seriesOf(token, pools)
	n := 0
	for _, hop := range hops {
		n = max(n, len(hop))
	}
	for i, hop := range hops {
		before := hop[0]
		before.empty, before.brief = true, false
		hops[i] = append(slices.Repeat([]level{before}, n-len(hop)), hop...)
	}
	return sumOf(hops, n)
}

// ownSeries is the logarithm of a pool's own price, or of its inverse, at the ends of hours and now. It is the price in
// the currency that has a price in USDG, so that it is known which closes are empty. If neither has one, none is empty.
func (s *state) ownSeries(p *pool) []level {
	history := uint64(s.cfg.Haircut.History / time.Second)
	for _, of0 := range []bool{true, false} {
		against := p.Currency1
		if !of0 {
			against = p.Currency0
		}
		if q, err := s.priced(against); err == nil {
			per, _ := new(big.Rat).SetFrac(q.price.Den, q.price.Num).Float64()
			return p.hourly(s.at.Timestamp, history, of0, s.leastClose()*per)
		}
	}
	return p.hourly(s.at.Timestamp, history, true, 0)
}

// leastClose is the least depth of a close that counts, in raw USDG that move the price by 2 %.
func (s *state) leastClose() float64 { return float64(s.cfg.Reference.MinDepth) / partOfFloor }

// seriesOf are the logarithms of the prices of each pool, at least of now.
func (s *state) seriesOf(token common.Address, pools []*pool) [][]level {
	hops, of0 := make([][]level, len(pools)), make([]bool, len(pools))
	for i, p := range pools {
		of0[i] = token == p.Currency0
		token, _ = p.other(token)
	}
	least := s.leastClose() // in the last pool's dollars, and then in the other currency of each pool before
	for i, p := range slices.Backward(pools) {
		hops[i] = p.hourly(s.at.Timestamp, uint64(s.cfg.Haircut.History/time.Second), of0[i], least)
		least /= pow(hops[i][len(hops[i])-1].low)
	}
	return hops
}

// sumOf adds up the last n levels of each hop. A sum is empty if all are, so that an empty hop does not hide the moves
// of another. It is brief if any is.
func sumOf(hops [][]level, n int) []level {
	sum := slices.Repeat([]level{{empty: true}}, n)
	for _, hop := range hops {
		for i, of := range hop[len(hop)-n:] {
			sum[i].low += of.low
			sum[i].high += of.high
			sum[i].empty = sum[i].empty && of.empty
			sum[i].brief = sum[i].brief || of.brief
		}
	}
	return sum
}

// deviation is the standard deviation of an hour's log return, from the exponentially weighted average of squared
// returns, and the number of returns. The last return belongs to an hour that is not over, so it counts only if it
// raises the result. With few returns the result is at least UnknownHourly.
func (h *Haircut) deviation(series []level) (sigma float64, returns int) {
	for _, of := range series[:max(len(series)-1, 0)] {
		if !of.empty && !of.brief {
			returns++
		}
	}
	sigma = h.ofReturns(series)
	if returns < h.MinHours {
		sigma = max(sigma, h.UnknownHourly)
	}
	return sigma, returns
}

// ofReturns is deviation without the minimum for few returns. A return is the largest that the bounds allow, so that
// holding a price for a part of each second does not hide one.
func (h *Haircut) ofReturns(series []level) float64 {
	var variance, before float64
	var last, stood *level // stood: the last that is not brief
	first := true
	for i := range series {
		of := &series[i]
		if of.empty {
			continue // the next return includes this move
		}
		if last != nil {
			r := largest(last, of)
			if stood != nil && !of.brief { // brief levels in between must not split a move
				r = max(r, largest(stood, of))
			}
			before = variance
			switch next := h.Decay*variance + (1-h.Decay)*r*r; {
			case first: // a return to or from a brief close does not start the average, or a calm one could be chosen
				variance, first = max(variance, r*r), of.brief || last.brief
			case !of.brief || next > variance:
				variance = next
			}
		}
		if last = of; !of.brief {
			stood = of
		}
	}
	return math.Sqrt(max(variance, before) * ofMedians)
}

// largest is the largest log return that the bounds of two levels allow.
func largest(from, to *level) float64 { return max(to.high-from.low, from.high-to.low) * logTick }

// ofMedians corrects for half-hour means, which move less than the price: it is the variance of a random walk over that
// of its means of half an hour, an hour apart. Medians move a little more than means.
const ofMedians = 6. / 5

// factor is the remaining part of a value after a haircut for a term, in billionths: at most what the lane
// allows.
func (h *Haircut) factor(sigma float64, term uint32, maxBps uint16) int64 {
	left := math.Exp(-h.Quantile * sigma * math.Sqrt(float64(term)/hour))
	return int64(min(left*billion, float64(maxBps)*billion/10_000))
}

const billion = 1_000_000_000

// shaved is a value after a haircut, rounded down.
func shaved(value *big.Int, factor int64) *big.Int {
	z := new(big.Int).Mul(value, big.NewInt(factor))
	return z.Quo(z, big.NewInt(billion))
}

// laneOf is the lane of a token; an unknown token gets the lane with the largest haircut.
func (s *state) laneOf(token common.Address) contracts.Lane {
	if a := s.assets[token]; a != nil {
		return a.Lane
	}
	if token == s.weth || token == (common.Address{}) {
		return contracts.LaneETH
	}
	return contracts.LaneMeme
}

// maxBps is the maximum suggested part of a token's value; of the dollar token it is all.
func (s *state) maxBps(token common.Address) uint16 {
	if token == s.cfg.Deployment.USDG {
		return 10_000
	}
	lane := s.laneOf(token)
	if int(lane) >= len(s.cfg.Haircut.LaneMaxBps) {
		lane = contracts.LaneMeme
	}
	return s.cfg.Haircut.LaneMaxBps[lane]
}

// timeInRange is the expected part of a period in which a Brownian motion stays within a standard deviations
// (of the whole period) of its start.
func timeInRange(a float64) float64 {
	if a > 7 { // the result differs by less than 10^-11, and for a large a the formula loses precision
		return 1
	}
	return (1+a*a)*math.Erf(a/math.Sqrt2) + a*math.Sqrt(2/math.Pi)*math.Exp(-a*a/2) - a*a
}

// float is the number nearest to an amount. Float64 of uint256 would truncate.
func float(amount *uint256.Int) float64 {
	f, _ := new(big.Float).SetInt(amount.ToBig()).Float64()
	return f
}

// pow is the price factor of a number of ticks.
func pow(ticks float64) float64 { return math.Exp(ticks * logTick) }
