package valuation

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// The pools of these tests: a meme priced in dollars, and another priced in the meme.
var (
	usdg   = common.Address{0x01}
	meme   = common.Address{0x02}
	second = common.Address{0x03}
)

const (
	began = 1_000_000
	now   = began + 7*24*3600
)

// stage is a market that tests move.
type stage struct {
	*state
	direct, pair *pool
}

func newStage(t testing.TB) *stage {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Deployment.USDG, cfg.Deployment.ChainID = usdg, 1
	s := &stage{state: &state{cfg: &cfg, at: topics.BlockRef{Number: 9, Timestamp: now}, assets: map[common.Address]*topics.Asset{
		meme:   {Token: meme, Lane: contracts.LaneMeme, Decimals: 6},
		second: {Token: second, Lane: contracts.LaneStock, Decimals: 6},
	}}}
	s.direct = s.open(t, 1, usdg, meme, 0, 1e15)
	s.pair = s.open(t, 2, meme, second, 0, 1e15)
	return s
}

// open adds a pool with liquidity over every price, at a tick ever since.
func (s *stage) open(t testing.TB, id byte, currency0, currency1 common.Address, tick int32, liquidity uint64) *pool {
	t.Helper()
	price, err := ammv4.SqrtPriceAtTick(tick)
	if err != nil {
		t.Fatal(err)
	}
	l := uint256.NewInt(liquidity)
	p := &pool{PoolState: query.PoolState{Pool: topics.Pool{
		ID: common.Hash{id}, Initialized: true, Currency0: currency0, Currency1: currency1, Fee: 3000, TickSpacing: 60,
		SqrtPriceX96: *price, Tick: tick, Liquidity: *l,
	}}}
	for _, end := range []struct {
		at  int32
		net *uint256.Int
	}{{-887_220, l}, {887_220, new(uint256.Int).Neg(l)}} {
		one, err := ammv4.NewTick(end.at, end.net)
		if err != nil {
			t.Fatal(err)
		}
		p.Ticks = append(p.Ticks, one)
	}
	p.amm = ammv4.Pool{SqrtPriceX96: *price, Tick: tick, Liquidity: *l, LPFee: 3000, TickSpacing: 60, Ticks: p.Ticks}
	p.Standing = p.Ticks
	for at := uint64(began); at <= now-3600; at += 3600 { // a price that trembles by the hour
		p.Hours = append(p.Hours, query.PriceAt{At: at, Low: tick + int32(at/3600%3*20), High: tick + int32(at/3600%3*20), Liquidity: *l, Usual: *l})
	}
	p.Seconds = []query.PriceAt{{At: began, Low: tick, High: tick}}
	s.pools = append(s.pools, p)
	s.judge()
	return p
}

// judge computes what the stateCache computes of a block.
func (s *stage) judge() {
	s.pairs = pairsOf(s.pools)
	for _, p := range s.pools {
		p.judge(s.at.Timestamp, 1800, nil)
	}
	s.settle()
}

// move swaps a pool to a tick.
func (s *stage) move(t testing.TB, p *pool, to int32) {
	t.Helper()
	limit, err := ammv4.SqrtPriceAtTick(to)
	if err != nil {
		t.Fatal(err)
	}
	if to == p.Tick {
		return
	}
	var r ammv4.Result
	order := ammv4.Swap{ZeroForOne: to < p.Tick, ExactIn: true, Amount: *new(uint256.Int).Lsh(uint256.NewInt(1), 120), Limit: *limit}
	if err := p.amm.Swap(&r, &order); err != nil {
		t.Fatal(err)
	}
	p.SqrtPriceX96, p.Tick, p.Liquidity = r.SqrtPriceX96, r.Tick, r.Liquidity
	p.amm.SqrtPriceX96, p.amm.Tick, p.amm.Liquidity = r.SqrtPriceX96, r.Tick, r.Liquidity
	s.seen(p, r.Tick)
}

// seen is a tick at which a block of now leaves a pool.
func (s *stage) seen(p *pool, tick int32) {
	last := &p.Seconds[len(p.Seconds)-1]
	if last.At <= s.at.Timestamp { // the first block of its second
		p.Seconds = append(p.Seconds, query.PriceAt{At: s.at.Timestamp, Low: last.Low, High: last.High}, query.PriceAt{At: s.at.Timestamp + 1})
	}
	n := len(p.Seconds)
	p.Seconds[n-2].Low, p.Seconds[n-2].High = min(p.Seconds[n-2].Low, tick), max(p.Seconds[n-2].High, tick)
	p.Seconds[n-1].Low, p.Seconds[n-1].High = tick, tick
	s.judge()
}

func (s *stage) wait(seconds uint64) {
	s.at.Timestamp += seconds
	s.judge()
}

// valued is the value and the suggested cap of what a deal holds; nil where both are refused.
func (s *stage) valued(t testing.TB, token common.Address, held *topics.PositionLiquidity) (value, suggested *big.Int) {
	t.Helper()
	return s.valuedAs(t, &topics.Deal{
		Token: token, Term: 7 * 24 * 3600, AmountOrTokenID: *uint256.NewInt(1e12), Cap: *uint256.NewInt(1e9), MinPrice: *uint256.NewInt(1e9),
	}, held)
}

func (s *stage) valuedAs(t testing.TB, deal *topics.Deal, held *topics.PositionLiquidity) (value, suggested *big.Int) {
	t.Helper()
	var (
		in  collateral
		err error
	)
	if held != nil {
		in, err = s.pledgedPosition(held)
	} else {
		in, err = s.pledgedToken(deal)
	}
	var b dealBody
	if err == nil {
		err = b.fill(s.state, deal, in)
	}
	if _, refused := errors.AsType[*refusal](err); refused {
		return nil, nil
	}
	if err != nil {
		t.Fatal(err)
	}
	value, _ = new(big.Int).SetString(b.ValueUSDG, 10)
	suggested, _ = new(big.Int).SetString(b.SuggestedCap, 10)
	return value, suggested
}

// TestNobodyRaisesAValuation: whoever moves a pool, for a block, for ten minutes or around a valuation, at best gets
// what is suggested without it, or a refusal.
func TestNobodyRaisesAValuation(t *testing.T) {
	position := &topics.PositionLiquidity{PoolID: common.Hash{1}, TickLower: -6000, TickUpper: 6000, Liquidity: *uint256.NewInt(1e12)}
	for name, of := range map[string]struct {
		token common.Address
		held  *topics.PositionLiquidity
		pool  func(*stage) *pool
	}{
		"token":            {token: meme, pool: func(s *stage) *pool { return s.direct }},
		"two hops, first":  {token: second, pool: func(s *stage) *pool { return s.pair }},
		"two hops, second": {token: second, pool: func(s *stage) *pool { return s.direct }},
		"position":         {token: meme, held: position, pool: func(s *stage) *pool { return s.direct }},
	} {
		t.Run(name, func(t *testing.T) {
			fair, most := newStage(t).valued(t, of.token, of.held)
			if fair == nil || fair.Sign() == 0 || most.Sign() == 0 {
				t.Fatalf("worth %s, suggested %s", fair, most)
			}
			check := func(s *stage, when string) {
				t.Helper()
				value, suggested := s.valued(t, of.token, of.held)
				if value == nil {
					return // refused
				}
				if value.Cmp(fair) > 0 || suggested.Cmp(most) > 0 {
					t.Errorf("%s: worth %s and %s suggested, without it %s and %s", when, value, suggested, fair, most)
				}
			}
			for _, ticks := range []int32{2624, -3567, 150, -150} { // +30 %, -30 %, and as much as is not refused
				s := newStage(t)
				p := of.pool(s)
				start := p.Tick
				s.move(t, p, start+ticks)
				check(s, "in one block")
				if value, _ := s.valued(t, of.token, of.held); value != nil && abs(ticks) > 200 {
					t.Errorf("moved by %d ticks it is worth %s", ticks, value)
				}
				s.wait(600)
				check(s, "for ten minutes")
				s.move(t, p, start)
				check(s, "and back")
				s.wait(600)
				check(s, "ten minutes later")
			}
		})
	}
}

// TestThinPoolPullsNothing: a second pool of the pair, which little money moves, has no say, nor has one that is much
// shallower; one as deep that disagrees stops the price.
func TestThinPoolPullsNothing(t *testing.T) {
	s := newStage(t)
	fair, _ := s.valued(t, second, nil)
	s.open(t, 9, meme, second, -5000, 1e9) // at a price that is 65 % higher
	if value, _ := s.valued(t, second, nil); value == nil || value.Cmp(fair) != 0 {
		t.Errorf("worth %s beside a thin pool, %s without", value, fair)
	}
	s.open(t, 8, meme, second, -5000, 2e13) // deep enough to price it, and some 40 times shallower
	if value, _ := s.valued(t, second, nil); value == nil || value.Cmp(fair) != 0 {
		t.Errorf("worth %s beside a much shallower pool, %s without", value, fair)
	}
	s.open(t, 7, meme, second, -5000, 9e14)
	if value, _ := s.valued(t, second, nil); value != nil {
		t.Errorf("worth %s although two deep pools disagree", value)
	}
}

// TestAThinWayStopsNothing: the same by another token: a way that is much shallower stops no price, whether it
// disagrees or somebody moves it; one as deep stops it.
func TestAThinWayStopsNothing(t *testing.T) {
	third := common.Address{0x04}
	set := func(liquidity uint64) (s *stage, other *pool) {
		s = newStage(t)
		s.open(t, 7, usdg, third, 0, 1e15)
		return s, s.open(t, 9, second, third, 0, liquidity)
	}
	fair, _ := newStage(t).valued(t, second, nil)
	// The first pool of a way is the deepest of all, and the second one is thin.
	s := newStage(t)
	thin := s.open(t, 7, usdg, third, 0, 2e12)
	s.open(t, 9, second, third, 0, 1.1e15)
	s.move(t, thin, 300)
	if value, _ := s.valued(t, second, nil); value == nil || value.Cmp(fair) != 0 {
		t.Errorf("a way whose second pool is thin and is moved: worth %s, without it %s", value, fair)
	}
	for _, of := range []struct {
		liquidity uint64
		stops     bool
	}{{2e13, false}, {9e14, true}} { // both are deep enough to price it
		for what, change := range map[string]func(s *stage, p *pool){
			"disagrees": func(s *stage, p *pool) {
				p.Seconds[0].Low, p.Seconds[0].High = 5000, 5000
				s.move(t, p, 5000)
				s.wait(3600)
			},
			"is moved": func(s *stage, p *pool) { s.move(t, p, 300) },
		} {
			s, p := set(of.liquidity)
			change(s, p)
			value, _ := s.valued(t, second, nil)
			if stopped := value == nil; stopped != of.stops || !stopped && value.Cmp(fair) != 0 {
				t.Errorf("a way of %d %s: worth %s, without it %s", of.liquidity, what, value, fair)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	reason := func(s *stage, token common.Address) string {
		_, err := s.reference(token)
		r, _ := errors.AsType[*refusal](err)
		if r == nil {
			return ""
		}
		return r.reason
	}
	paused := true
	for name, test := range map[string]struct {
		change func(*stage)
		want   string
	}{
		"nothing":     {func(*stage) {}, ""},
		"deviation":   {func(s *stage) { s.move(t, s.direct, 201) }, reasonDeviation},
		"within it":   {func(s *stage) { s.move(t, s.direct, 200) }, ""},
		"depth":       {func(s *stage) { s.cfg.Reference.MinDepth = 1e15 }, reasonDepth},
		"token":       {func(s *stage) { s.assets[second].Paused = &paused }, reasonPaused},
		"hop":         {func(s *stage) { s.assets[meme].Paused = &paused }, reasonPaused},
		"dollar":      {func(s *stage) { s.usdgPaused = true }, reasonPaused},
		"history":     {func(s *stage) { s.pair.Seconds[0].At = now - 1000; s.judge() }, reasonHistory},
		"no pool":     {func(s *stage) { s.pools = s.pools[:1]; s.judge() }, reasonNoPool},
		"pair's move": {func(s *stage) { s.move(t, s.pair, -300) }, reasonDeviation},
	} {
		s := newStage(t)
		test.change(s)
		if got := reason(s, second); got != test.want {
			t.Errorf("%s: refused for %q, want %q", name, got, test.want)
		}
	}
}

// TestMedianTick compares with the median of every second, written out.
func TestMedianTick(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const window = 60
		end := rapid.Uint64Range(100, 300).Draw(t, "now")
		var seconds []query.PriceAt
		at := uint64(0)
		for range rapid.IntRange(1, 20).Draw(t, "observations") {
			at += rapid.Uint64Range(1, 40).Draw(t, "gap")
			if at > end {
				break
			}
			low := rapid.Int32Range(-5, 5).Draw(t, "low")
			seconds = append(seconds, query.PriceAt{At: at, Low: low, High: low + rapid.Int32Range(0, 3).Draw(t, "width")})
		}
		var lows, highs []int32
		for second := end - window + 1; second <= end; second++ {
			i := len(seconds) - 1
			for i >= 0 && seconds[i].At > second {
				i--
			}
			if i >= 0 {
				lows, highs = append(lows, seconds[i].Low), append(highs, seconds[i].High)
			}
		}
		var low, high int32
		if slices.Sort(lows); len(lows) > 0 {
			slices.Sort(highs)
			low, high = lows[(len(lows)-1)/2], highs[len(highs)/2]
		}
		if gotLow, gotHigh, history := query.MedianTick(seconds, end, window); gotLow != low || gotHigh != high || int(history) != len(lows) {
			t.Fatalf("%d to %d over %d s, want %d to %d over %d s: %v until %d", gotLow, gotHigh, history, low, high, len(lows), seconds, end)
		}
	})
}

// TestScenariosAgainstBruteForce: atCap is the lowest price at which the value is the cap, whatever the collateral.
func TestScenariosAgainstBruteForce(t *testing.T) {
	s := newStage(t)
	for _, in := range []*pool{s.direct, s.pair} {
		held, err := s.pledgedPosition(&topics.PositionLiquidity{PoolID: in.ID, TickLower: -1200, TickUpper: 600, Liquidity: *uint256.NewInt(1e13)})
		if err != nil {
			t.Fatal(err)
		}
		full, err := held.value(held.base().price)
		if err != nil {
			t.Fatal(err)
		}
		for _, share := range []int64{1, 30, 80, 99, 100, 101} {
			want := new(big.Int).Quo(new(big.Int).Mul(full, big.NewInt(share)), big.NewInt(100))
			at, ok, err := held.atValue(want)
			if err != nil || !ok {
				t.Fatalf("%d %%: %t, %v", share, ok, err)
			}
			have, err := held.value(at)
			if err != nil || have.Cmp(want) < 0 {
				t.Errorf("%d %%: worth %s, want %s, %v", share, have, want, err)
			}
			below, err := held.value(part(at, 999_999_999, 1_000_000_000))
			if err != nil || below.Cmp(want) > 0 || below.Cmp(want) == 0 && share < 99 {
				t.Errorf("%d %%: just below it is worth %s, want less than %s, %v", share, below, want, err)
			}
		}
		bottom, top, ok, err := held.ends()
		if err != nil || !ok || top.Num.Cmp(new(big.Int)) <= 0 {
			t.Fatal(bottom, top, ok, err)
		}
		if _, ok, err := held.atValue(new(big.Int).Lsh(full, 40)); ok && in == s.direct || err != nil {
			t.Errorf("a position of dollars at the end is worth any amount: %v", err)
		}
	}
}

// TestTimeInRange holds the closed form against 10,000 paths.
func TestTimeInRange(t *testing.T) {
	random := rand.New(rand.NewPCG(4663, 3))
	const paths, steps = 10_000, 400
	for _, a := range []float64{0.3, 1, 1.5, 2.5} {
		var sum, squares float64
		for range paths {
			at, inside := 0.0, 0
			for range steps {
				at += random.NormFloat64() / math.Sqrt(steps)
				if math.Abs(at) < a {
					inside++
				}
			}
			f := float64(inside) / steps
			sum, squares = sum+f, squares+f*f
		}
		mean := sum / paths
		margin := 4*math.Sqrt((squares/paths-mean*mean)/paths) + 0.01 // and of the steps
		if got := timeInRange(a); math.Abs(got-mean) > margin {
			t.Errorf("%g deviations: %.4f, of %d paths %.4f ± %.4f", a, got, paths, mean, margin)
		}
	}
	if timeInRange(0) != 0 || timeInRange(math.Inf(1)) != 1 {
		t.Errorf("at the ends: %g and %g", timeInRange(0), timeInRange(math.Inf(1)))
	}
}

// TestFeeEstimate: what the formula says a position earns is what one unit of liquidity did earn, by what it costs.
func TestFeeEstimate(t *testing.T) {
	s := newStage(t)
	p := s.direct
	before := p.growth
	var r ammv4.Result
	if err := p.amm.Quote(&r, true, true, uint256.NewInt(1e13)); err != nil {
		t.Fatal(err)
	}
	p.growth[0].Add(&p.growth[0], &r.FeeGrowthX128)
	p.Volume24h[0], p.Volume24h[1] = r.In, r.Out
	around := suggestion{lower: -1200, upper: 1200, stays: 0.5}
	liquidity := uint256.NewInt(1e15)
	owed := ammv4.FeesOwed(&p.growth, &before, liquidity)
	of0, of1, err := ammv4.Amounts(&p.SqrtPriceX96, p.Tick, around.lower, around.upper, liquidity)
	if err != nil {
		t.Fatal(err)
	}
	earned, cost := float64(owed[0].Uint64()), float64(of0.Uint64()+of1.Uint64()) // at a price of one
	want := bpsOfAll * earned / cost * 2 * 0.5
	estimate := func() int64 { return feeEstimate(p, around, &before, p.swapFees(23*hour, now/hour*hour), 2) }
	if got := estimate(); math.Abs(float64(got)-want) > 1 || got == 0 {
		t.Errorf("%d bps, a position earns %.2f", got, want)
	}
	p.growth[0].Add(&p.growth[0], new(uint256.Int).Lsh(uint256.NewInt(1_000_000), 128)) // a donation while the liquidity was 1
	if got := estimate(); math.Abs(float64(got)-want) > 1 {
		t.Errorf("%d bps after a donation, a position earns %.2f", got, want)
	}
}

// TestFeesOfPaths: what is estimated for a suggested range is what 10,000 paths of the price earn in it on average,
// where fees come as fast as before.
func TestFeesOfPaths(t *testing.T) {
	random := rand.New(rand.NewPCG(4663, 16))
	const paths, steps, term = 10_000, 400, 7 * 24 * 3600
	s := newStage(t)
	p := s.direct
	r := s.suggest(p, term)
	before := p.growth
	grown := new(uint256.Int).Lsh(uint256.NewInt(1), 128-14) // of a unit of liquidity, in a day
	p.growth[1].Add(&p.growth[1], grown)
	var sum, squares float64
	for range paths {
		at, inside := 0.0, 0
		for range steps {
			at += random.NormFloat64() * r.sigma * math.Sqrt(1.0*term/hour/steps) / logTick
			if float64(r.lower) <= at && at < float64(r.upper) {
				inside++
			}
		}
		f := float64(inside) / steps
		sum, squares = sum+f, squares+f*f
	}
	mean := sum / paths
	of0, of1, err := ammv4.Amounts(&p.SqrtPriceX96, p.Tick, r.lower, r.upper, uint256.NewInt(1e15))
	if err != nil {
		t.Fatal(err)
	}
	whole := bpsOfAll * 7 * math.Ldexp(1, -14) * 1e15 / float64(of0.Uint64()+of1.Uint64()) // at a price of one, if it never left the range
	margin := whole*(4*math.Sqrt((squares/paths-mean*mean)/paths)+0.01) + 1                // and of the steps, and of rounding
	if got := float64(feeEstimate(p, r, &before, math.Inf(1), 7)); math.Abs(got-whole*mean) > margin || mean > 0.97 {
		t.Errorf("%g bps, of %d paths %.1f ± %.1f: in range for %.3f of the time", got, paths, whole*mean, margin, mean)
	}
}

// TestValueAtARoot: the short way to a position's value at a square root of the price is the long one.
func TestValueAtARoot(t *testing.T) {
	s := newStage(t)
	rapid.Check(t, func(t *rapid.T) {
		lower := rapid.Int32Range(-2000, 1999).Draw(t, "lower")
		held := &topics.PositionLiquidity{
			PoolID: common.Hash{byte(rapid.IntRange(1, 3).Draw(t, "pool"))}, TickLower: lower * 60,
			TickUpper: rapid.Int32Range(lower+1, 2000).Draw(t, "upper") * 60, Liquidity: *uint256.NewInt(rapid.Uint64().Draw(t, "liquidity")),
		}
		p, err := s.pledgedPosition(held)
		if err != nil {
			t.Skip(err)
		}
		root, err := ammv4.SqrtPriceAtTick(rapid.Int32Range(ammv4.MinTick, ammv4.MaxTick-1).Draw(t, "tick"))
		if err != nil {
			t.Fatal(err)
		}
		root.AddUint64(root, rapid.Uint64Range(0, 1<<20).Draw(t, "beyond"))
		at := valueAt{pledgedPosition: p}
		short, err := at.of(root)
		if err != nil {
			t.Fatal(err)
		}
		long, err := p.value(p.baseAt(root))
		if err != nil {
			t.Fatal(err)
		}
		if short.Cmp(long) != 0 {
			t.Errorf("at %s it is %s, and %s", root, short, long)
		}
	})
}
