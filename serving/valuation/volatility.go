package valuation

import (
	"math"
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
)

const (
	hour    = 3600
	logTick = 9.999500033330834e-05 // ln(1.0001)
)

// hourlyTicks are the closes of the hours that are over, carried forward; the last one is the reference, which is for now what
// a close is for its hour.
func (p *pool) hourlyTicks(now, history uint64) (ticks []int32) {
	next := 0
	for at := (now - min(now, history) + hour - 1) / hour * hour; at+hour < now; at += hour {
		for next < len(p.Hours) && p.Hours[next].At <= at {
			next++
		}
		if next > 0 {
			ticks = append(ticks, p.Hours[next-1].Tick)
		}
	}
	return append(ticks, p.reference)
}

// sigma is the largest deviation of a token's price among all ways by which it has one: who makes a pool the deepest in which
// nobody trades says what the price is, but not that it stands still.
func (s *state) sigma(token common.Address, q *quoted) (most float64) {
	if len(q.ways) == 0 {
		return s.cfg.Haircut.UnknownHourly
	}
	for _, way := range q.ways {
		sigma, _ := s.cfg.Haircut.deviation(s.series(token, way))
		most = max(most, sigma)
	}
	return most
}

// series is the logarithm of a token's price in USDG, in ticks, at the ends of hours and now, from pools that lead there.
func (s *state) series(token common.Address, pools []*pool) (sum []float64) {
	for i, p := range pools {
		ticks := p.hourlyTicks(s.at.Timestamp, uint64(s.cfg.Haircut.History/time.Second))
		sign := 1.0
		if token != p.Currency0 {
			sign = -1
		}
		if i == 0 {
			sum = make([]float64, len(ticks))
		}
		n := min(len(sum), len(ticks))
		sum, ticks = sum[len(sum)-n:], ticks[len(ticks)-n:]
		for j := range n {
			sum[j] += sign * float64(ticks[j])
		}
		token, _ = p.other(token)
	}
	return sum
}

// deviation is the standard deviation of an hour's log return, from the exponentially weighted average of squared returns, and
// the number of returns. The last one is of an hour that is not over: it counts only where it says that the price moves more.
// With few returns it is at least UnknownHourly.
func (h *Haircut) deviation(series []float64) (sigma float64, returns int) {
	var variance, before float64
	for i := 1; i < len(series); i++ {
		r := (series[i] - series[i-1]) * logTick
		if before = variance; i == 1 {
			variance = r * r
		} else {
			variance = h.Decay*variance + (1-h.Decay)*r*r
		}
	}
	sigma, returns = math.Sqrt(max(variance, before)*ofMedians), max(len(series)-1, 0)
	if returns < h.MinHours {
		sigma = max(sigma, h.UnknownHourly)
	}
	return sigma, returns
}

// ofMedians is the variance of a price that wanders, over that of its means of half an hour, an hour apart: these move less.
// Medians move a little more than means do.
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
	if a > 7 { // but for less than 10^-11; of a large a nothing is left of the one that is added to its square
		return 1
	}
	return (1+a*a)*math.Erf(a/math.Sqrt2) + a*math.Sqrt(2/math.Pi)*math.Exp(-a*a/2) - a*a
}

// pow is the price factor of a number of ticks.
func pow(ticks float64) float64 { return math.Exp(ticks * logTick) }
