package valuation

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/serving/httpapi"
)

type rangeBody struct {
	Recommended    recommendedBody `json:"recommended"`
	Full           ticksBody       `json:"full"`
	FeeEstimateBps *int64          `json:"feeEstimateBps"`
	Basis          basisBody       `json:"basis"`
}

type recommendedBody struct {
	TickLower int32  `json:"tickLower"`
	TickUpper int32  `json:"tickUpper"`
	WidthBps  int64  `json:"widthBps"`
	Note      string `json:"note"`
}

type ticksBody struct {
	TickLower int32 `json:"tickLower"`
	TickUpper int32 `json:"tickUpper"`
}

type basisBody struct {
	PoolID             string  `json:"poolId"`
	ReferenceTick      int32   `json:"referenceTick"`
	SigmaHourly        string  `json:"sigmaHourly"`
	Returns            int     `json:"returns"`
	LookbackSeconds    uint64  `json:"lookbackSeconds"`
	FeeLookbackSeconds *uint64 `json:"feeLookbackSeconds"`
	TimeInRangeBps     int64   `json:"timeInRangeBps"`
	AsOfBlock          uint64  `json:"asOfBlock"`
	At                 uint64  `json:"at"`
}

// suggestion is a range around a pool's reference price.
type suggestion struct {
	lower, upper int32
	sigma        float64 // of an hour's log return
	returns      int
	stays        float64 // the expected part of the term in which the price is in range
}

func (s *Service) rangeSuggest(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	id := req.Query("pool").Required().Hash()
	termParam := req.Query("term")
	term := termParam.Required().Seconds()
	if limit := int64(s.cfg.MaxTerm / time.Second); term != nil && int64(*term) > limit {
		termParam.Refuse("must be at most %d", limit)
	}
	if err := req.Err(); err != nil {
		return err
	}
	st, err := s.state(ctx, res)
	if err != nil {
		return err
	}
	p, err := st.allowedPool(*id)
	if err != nil {
		return err
	}
	for _, token := range []common.Address{p.Currency0, p.Currency1} {
		if err := st.paused(token); err != nil {
			return s.refused(err)
		}
	}
	if err := st.sound(p); err != nil {
		return s.refused(err)
	}
	r := st.suggest(p, *term)
	widest := usable(p.TickSpacing)
	body := rangeBody{
		Recommended: recommendedBody{
			TickLower: r.lower, TickUpper: r.upper, WidthBps: widthBps(r.lower, r.upper),
			Note: strconv.FormatFloat(s.cfg.Haircut.RangeDeviation, 'g', -1, 64) + " deviations of the price over the term on either side of the reference price",
		},
		Full: ticksBody{-widest, widest},
		Basis: basisBody{
			PoolID: p.ID.Hex(), ReferenceTick: p.reference.middle(), SigmaHourly: strconv.FormatFloat(r.sigma, 'f', 8, 64), Returns: r.returns,
			LookbackSeconds: uint64(s.cfg.Haircut.History / time.Second), TimeInRangeBps: int64(math.Floor(r.stays * bpsOfAll)),
			AsOfBlock: st.at.Number, At: st.at.Timestamp,
		},
	}
	if r.returns < s.cfg.Haircut.MinHours {
		body.Recommended.Note += "; the pool's history is short, so a minimum volatility is assumed"
	}
	past, err := s.chain.growthBefore(ctx, st, p, uint64(s.cfg.FeeLookback/time.Second), s.now())
	if err != nil {
		return s.refused(err)
	}
	if past != nil {
		seconds := st.at.Timestamp - past.at
		most := p.swapFees(seconds, st.at.Timestamp)
		estimate := feeEstimate(p, r, &past.growth, most, float64(*term)/float64(seconds))
		body.FeeEstimateBps, body.Basis.FeeLookbackSeconds = &estimate, &seconds
	}
	return s.answer(res, st, body)
}

// suggest is a range of RangeDeviation standard deviations on both sides, rounded outward to the pool's tick
// spacing.
func (s *state) suggest(p *pool, term uint32) suggestion {
	h := &s.cfg.Haircut
	r := suggestion{}
	r.sigma, r.returns = h.deviation(s.ownSeries(p))
	spread := r.sigma * math.Sqrt(float64(term)/hour) // of the log price over the term
	half := h.RangeDeviation * spread / logTick
	widest := usable(p.TickSpacing)
	r.lower = max(snap(float64(p.reference.low)-half, p.TickSpacing, math.Floor), -widest)
	r.upper = min(snap(float64(p.reference.high)+half, p.TickSpacing, math.Ceil), widest)
	if r.lower >= r.upper { // the price never moved
		r.lower, r.upper = max(r.lower-p.TickSpacing, -widest), min(r.upper+p.TickSpacing, widest)
	}
	r.stays = timeInRange(float64(r.upper-r.lower) / 2 * logTick / spread)
	return r
}

// snap rounds a tick to a multiple of the spacing, within the tick limits.
func snap(tick float64, spacing int32, round func(float64) float64) int32 {
	tick = min(max(tick, ammv4.MinTick), ammv4.MaxTick)
	return int32(round(tick/float64(spacing))) * spacing
}

// usable is the highest tick of the spacing.
func usable(spacing int32) int32 { return ammv4.MaxTick / spacing * spacing }

// widthBps is how far the upper price is above the lower one, at most 2^63-1.
func widthBps(lower, upper int32) int64 {
	width := bpsOfAll * (pow(float64(upper-lower)) - 1)
	return int64(min(width, 1<<62))
}

// feeEstimate is the fees per value in the range over the term, in bps: the fees of a unit of liquidity in the lookback
// period, at most what swaps explain, scaled to the part of the term in range, divided by the cost of a unit of
// liquidity.
func feeEstimate(p *pool, r suggestion, before *ammv4.FeeGrowth, most, terms float64) int64 {
	root := func(tick int32) float64 { return pow(float64(tick) / 2) }
	s, a, b := root(p.reference.middle()), root(r.lower), root(r.upper)
	cost := 2*s - a - s*s/b // of currency1
	if cost <= 0 {
		return 0
	}
	grown := func(i int) float64 {
		return math.Ldexp(float(new(uint256.Int).Sub(&p.growth[i], &before[i])), -128)
	}
	earned := min(grown(0)*s*s+grown(1), most)
	return int64(min(bpsOfAll*earned*terms*r.stays/cost, 1<<62))
}

// swapFees is what a unit of the present liquidity would earn from the swaps of the last seconds, in currency1. The
// pool's fee growth is not used alone, because donations raise it, and the only provider of a block gets its own fees
// back.
func (p *pool) swapFees(seconds, now uint64) float64 {
	root := pow(float64(p.reference.middle()) / 2)
	traded := max(float(&p.Volume24h[0])*root*root, float(&p.Volume24h[1])) * float64(p.amm.LPFee) / 1_000_000
	counted := 23*hour + now%hour // seconds that the volume covers
	return traded * max(float64(seconds)/float64(counted), 1) / max(float(&p.Liquidity), 1)
}
