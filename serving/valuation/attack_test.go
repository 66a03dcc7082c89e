package valuation

import (
	"cmp"
	"errors"
	"math/big"
	"slices"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// liquidity replaces what a pool has, by what begins at one tick and ends at another.
func (s *stage) liquidity(t testing.TB, p *pool, lower, upper int32, liquidity uint64) {
	t.Helper()
	p.Ticks = nil
	l := uint256.NewInt(liquidity)
	for _, end := range []struct {
		at  int32
		net *uint256.Int
	}{{lower, l}, {upper, new(uint256.Int).Neg(l)}} {
		one, err := ammv4.NewTick(end.at, end.net)
		if err != nil {
			t.Fatal(err)
		}
		p.Ticks = append(p.Ticks, one)
	}
	p.Liquidity.Clear()
	if lower <= p.Tick && p.Tick < upper {
		p.Liquidity = *l
	}
	p.amm.Ticks, p.amm.Liquidity, p.Standing = p.Ticks, p.Liquidity, p.Ticks
	s.judge()
}

// add adds a position's liquidity to its pool, of which some is young.
func (s *stage) add(t testing.TB, p *pool, held *topics.PositionLiquidity, young uint64) {
	t.Helper()
	p.Ticks, p.Standing = slices.Clone(p.Ticks), slices.Clone(p.Ticks)
	stands := new(uint256.Int).SubUint64(&held.Liquidity, young)
	for _, end := range []struct {
		at    int32
		minus bool
	}{{held.TickLower, false}, {held.TickUpper, true}} {
		for _, to := range []struct {
			ticks *[]ammv4.Tick
			net   uint256.Int
		}{{&p.Ticks, held.Liquidity}, {&p.Standing, *stands}} {
			if end.minus {
				to.net.Neg(&to.net)
			}
			tick, err := ammv4.NewTick(end.at, &to.net)
			if err != nil {
				t.Fatal(err)
			}
			*to.ticks = append(*to.ticks, tick)
			slices.SortFunc(*to.ticks, func(a, b ammv4.Tick) int { return cmp.Compare(a.Index, b.Index) })
		}
	}
	*p = *p.at(&p.SqrtPriceX96, p.Tick, false)
	s.judge()
}

// empty adds a pool without liquidity, whose price was moved to anywhere for nothing, long ago.
func (s *stage) empty(t testing.TB, id byte, currency0, currency1 common.Address, price *uint256.Int) *pool {
	t.Helper()
	tick, err := ammv4.TickAtSqrtPrice(price)
	if err != nil {
		t.Fatal(err)
	}
	p := s.open(t, id, currency0, currency1, tick, 0)
	p.Ticks, p.amm.Ticks, p.Standing = nil, nil, nil
	p.SqrtPriceX96, p.amm.SqrtPriceX96 = *price, *price
	s.judge()
	return p
}

// TestPoolAtTheEndOfPrices: a pool without liquidity can be moved to the lowest and the highest price for nothing. It
// changes no value and no quote, and its own answers are no faults of the service.
func TestPoolAtTheEndOfPrices(t *testing.T) {
	lowest, highest := new(uint256.Int).AddUint64(ammv4.MinSqrtPrice, 1), new(uint256.Int).SubUint64(ammv4.MaxSqrtPrice, 1)
	position := &topics.PositionLiquidity{PoolID: common.Hash{1}, TickLower: -6000, TickUpper: 6000, Liquidity: *uint256.NewInt(1e12)}
	for name, price := range map[string]*uint256.Int{"lowest": lowest, "highest": highest, "initialised lowest": ammv4.MinSqrtPrice} {
		t.Run(name, func(t *testing.T) {
			for _, of := range []struct {
				token common.Address
				held  *topics.PositionLiquidity
			}{{token: meme}, {token: second}, {held: position}} {
				fair, most := newStage(t).valued(t, of.token, of.held)
				s := newStage(t)
				s.empty(t, 9, usdg, meme, price)
				s.empty(t, 8, meme, second, price)
				if value, suggested := s.valued(t, of.token, of.held); value == nil || value.Cmp(fair) != 0 || suggested.Cmp(most) != 0 {
					t.Errorf("worth %s and %s suggested beside it, without it %s and %s", value, suggested, fair, most)
				}
			}
			s := newStage(t)
			p := s.empty(t, 9, usdg, meme, price)
			for _, zeroForOne := range []bool{true, false} {
				way := []route{{{p, zeroForOne}}}
				for _, exactIn := range []bool{true, false} {
					if _, err := best(way, exactIn, uint256.NewInt(1e6)); !errors.Is(err, ammv4.ErrLiquidity) {
						t.Errorf("a quote of nothing: %v", err)
					}
				}
			}
			for _, fair := range p.fair.both() {
				if fair == nil || !fair.Liquidity.IsZero() {
					t.Errorf("at its reference: %v", fair)
				}
			}
			for _, term := range []uint32{1, 7 * 24 * 3600} {
				r := s.suggest(p, term)
				if widest := usable(p.TickSpacing); r.lower >= r.upper || r.lower < -widest || r.upper > widest {
					t.Errorf("for %d s the range [%d, %d) is suggested", term, r.lower, r.upper)
				}
			}
		})
	}
}

// TestNobodyChoosesThePool: disturbing the pool that prices a token, in one block, does not make another pool price it,
// whose price was held for half an hour with little money and which gets liquidity for that block.
func TestNobodyChoosesThePool(t *testing.T) {
	for name, of := range map[string]struct {
		token common.Address
		good  func(*stage) *pool
		other func(*stage) *pool // at a price that is 65 % higher
	}{
		"of the pair": {
			token: second, good: func(s *stage) *pool { return s.pair },
			other: func(s *stage) *pool { return s.open(t, 9, meme, second, -5000, 1e9) },
		},
		"with the dollar": {
			token: meme, good: func(s *stage) *pool { return s.direct },
			other: func(s *stage) *pool { return s.open(t, 9, usdg, meme, -5000, 1e9) },
		},
		"by another token": {
			token: second, good: func(s *stage) *pool { return s.pair },
			other: func(s *stage) *pool {
				third := common.Address{0x04}
				s.open(t, 7, usdg, third, 0, 1e15)
				return s.open(t, 9, second, third, 5000, 1e9)
			},
		},
		"by another token, from its dollars on": {
			token: second, good: func(s *stage) *pool { return s.direct },
			other: func(s *stage) *pool {
				third := common.Address{0x04}
				s.open(t, 7, usdg, third, 0, 1e15)
				return s.open(t, 9, second, third, 5000, 1e9)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, ticks := range []int32{250, 3000} {
				s := newStage(t)
				good, other := of.good(s), of.other(s)
				s.liquidity(t, good, -600, 600, 1e15)
				fair, most := s.valued(t, of.token, nil)
				if fair == nil || fair.Sign() == 0 {
					t.Fatalf("worth %s beside a thin pool", fair)
				}
				s.liquidity(t, other, -887_220, 887_220, 5e14)
				if value, _ := s.valued(t, of.token, nil); value != nil && value.Cmp(fair) > 0 {
					t.Errorf("worth %s, without its liquidity %s", value, fair)
				}
				s.move(t, good, ticks)
				value, suggested := s.valued(t, of.token, nil)
				if value != nil && (value.Cmp(fair) > 0 || suggested.Cmp(most) > 0) {
					t.Errorf("moved by %d ticks: worth %s and %s suggested, without it %s and %s", ticks, value, suggested, fair, most)
				}
			}
		})
	}
}

// TestNobodyHidesWhatThePriceDid: the price moved within the last hour, and somebody moves the pool back for a block,
// by as much as is not refused: the deviation that the haircut allows for is no lower for it.
func TestNobodyHidesWhatThePriceDid(t *testing.T) {
	for _, moved := range []int32{150, -150} {
		stage := func() *stage {
			s := newStage(t)
			p := s.direct
			s.move(t, p, moved)
			p.Hours = append(p.Hours, query.PriceAt{At: s.at.Timestamp, Low: p.Tick, High: p.Tick, Liquidity: p.Liquidity, Usual: p.Liquidity})
			s.wait(2400)
			return s
		}
		s := stage()
		_, most := s.valued(t, meme, nil)
		was, _ := s.cfg.Haircut.deviation(s.series(meme, []*pool{s.direct}))
		s.move(t, s.direct, 0)
		s.direct.Hours = append(s.direct.Hours, query.PriceAt{At: s.at.Timestamp, Low: s.direct.Tick, High: s.direct.Tick, Liquidity: s.direct.Liquidity, Usual: s.direct.Liquidity})
		_, suggested := s.valued(t, meme, nil)
		is, _ := s.cfg.Haircut.deviation(s.series(meme, []*pool{s.direct}))
		if is < was || suggested == nil || suggested.Cmp(most) > 0 {
			t.Errorf("moved back by %d ticks the deviation is %g and %s suggested, without it %g and %s", moved, is, suggested, was, most)
		}
	}
}

// TestTimeInRangeIsAPart: however narrow or wide a range is.
func TestTimeInRangeIsAPart(t *testing.T) {
	last := 0.0
	for a := 1e-9; a < 1e12; a *= 1.1 {
		part := timeInRange(a)
		if part < last || part > 1 {
			t.Fatalf("%g deviations: %g of the time, with less %g", a, part, last)
		}
		last = part
	}
	if last != 1 {
		t.Errorf("in any range it is %g of the time", last)
	}
}

// TestDecimalsOfAStranger: the registry may allow a pool of a token that it does not know. The token's price and what
// it is paid out in are in its own decimals, and not in those that most tokens have.
func TestDecimalsOfAStranger(t *testing.T) {
	w := newWorld(t)
	by := w.deployer()
	much := new(big.Int).Lsh(big.NewInt(1), 100)
	token, created := by.create("USDG", by.address) // of 6 decimals, as the real one
	p := &pool{}
	p.Currency0, p.Currency1, p.Fee, p.TickSpacing = w.dep.USDG, token, 3000, 60
	if token.Cmp(w.dep.USDG) < 0 {
		p.Currency0, p.Currency1 = token, w.dep.USDG
	}
	at, err := ammv4.SqrtPriceAtTick(0)
	if err != nil {
		t.Fatal(err)
	}
	w.mine(60, created, by.call(token, own(t, "USDG"), "mint", by.address, much),
		by.call(w.dep.PoolManager, w.uniswap["PoolManager"].ABI, "initialize", keyOf(p), at.ToBig()))
	p.ID = idOf(t, p)
	txs := append(by.approve(token, by.address), by.approve(w.dep.USDG, by.address)...)
	w.mine(60, append(txs, by.call(w.dep.AssetRegistry, own(t, "AssetRegistry"), "setPool", p.ID, true, big.NewInt(1), much),
		by.mint(p, -887_220, 887_220, big.NewInt(1e13), much, much))...)
	w.mine(2400)
	var value assetBody
	w.get("/assets/"+token.Hex()+"/value", &value)
	if value.PriceUSDG != "1" || value.PriceRaw.Num != value.PriceRaw.Den {
		t.Errorf("a dollar a dollar: %+v", value)
	}
	var out payoutBody
	w.get("/quote/payout?usdg=1000000&to="+token.Hex(), &out)
	if rate, ok := new(big.Rat).SetString(out.Rate); !ok || rate.Cmp(big.NewRat(99, 100)) < 0 || rate.Cmp(big.NewRat(1, 1)) > 0 {
		t.Errorf("a dollar a dollar less the fee: %+v", out)
	}
}

// TestFeesAreOfThePositionAsked: after a reorg a token ID may be that of another position. What was read ahead for the
// one is not told as the other's.
func TestFeesAreOfThePositionAsked(t *testing.T) {
	w := newWorld(t)
	w.play(30)
	compared := 0
	for id := range 200 {
		answer, err := w.reader.Collateral(t.Context(), w.at, uint256.NewInt(uint64(id)))
		if err != nil || answer.Value.Position == nil {
			continue
		}
		held := answer.Value.Position
		w.service.chain.note(askedPosition{tokenID: held.TokenID, pool: held.PoolID, lower: held.TickLower - 600, upper: held.TickUpper + 600})
		w.mine(1)
		st := w.state()
		p := st.byID(held.PoolID)
		if p == nil {
			continue
		}
		a := askedPosition{tokenID: held.TokenID, pool: held.PoolID, lower: held.TickLower, upper: held.TickUpper}
		words, err := w.service.chain.readFees(t.Context(), st, &a)
		if err != nil {
			t.Fatal(err)
		}
		want := owed(p, words, &held.Liquidity, a.lower, a.upper)
		got, err := w.service.chain.uncollected(t.Context(), st, p, &held.TokenID, &held.Liquidity, a.lower, a.upper)
		if err != nil || got != want {
			t.Errorf("position %s: fees %s and %s, the chain says %s and %s, %v", held.TokenID.Dec(), &got[0], &got[1], &want[0], &want[1], err)
		}
		compared++
	}
	if compared < 3 {
		t.Errorf("only %d positions", compared)
	}
}

// TestBothTokensAreSold: what a position gives is sold as one would have to, the second token into what the first has
// left of the pools. Here both go through the same pool in the end: that gives what their sum does.
func TestBothTokensAreSold(t *testing.T) {
	s := newStage(t)
	held := &topics.PositionLiquidity{PoolID: s.pair.ID, TickLower: -6000, TickUpper: 6000, Liquidity: *uint256.NewInt(3e14)}
	p, err := s.pledgedPosition(held)
	if err != nil {
		t.Fatal(err)
	}
	of0, of1, err := ammv4.Amounts(&s.pair.SqrtPriceX96, s.pair.Tick, held.TickLower, held.TickUpper, &held.Liquidity)
	if err != nil {
		t.Fatal(err)
	}
	without := s.pair.without(held)
	var first, both ammv4.Result
	if err := without.amm.Quote(&first, false, true, of1); err != nil { // second is currency1 of the pair
		t.Fatal(err)
	}
	if err := s.direct.amm.Quote(&both, false, true, of0.Add(of0, &first.Out)); err != nil { // meme is currency1 of the other
		t.Fatal(err)
	}
	for _, in := range []poolPrice{asTheyStand, atReference} {
		got, err := p.proceeds(in)
		if err != nil {
			t.Fatal(err)
		}
		if gap := new(big.Int).Sub(got, both.Out.ToBig()); gap.CmpAbs(big.NewInt(2)) > 0 {
			t.Errorf("both are sold for %s, together they bring %s", got, &both.Out)
		}
	}
}

// wild has the hours of a pool close at 0 and at a tick in turns.
func wild(p *pool, tick int32) {
	for i := range p.Hours {
		p.Hours[i].Low, p.Hours[i].High = int32(i%2)*tick, int32(i%2)*tick
	}
}

// TestNobodyChoosesACalmPool: making a pool without trades the deepest one does not raise the suggested cap.
func TestNobodyChoosesACalmPool(t *testing.T) {
	of := &topics.Deal{Token: meme, Term: 30 * 24 * 3600, AmountOrTokenID: *uint256.NewInt(1e9), Cap: *uint256.NewInt(1e9), MinPrice: *uint256.NewInt(1e9)}
	suggested := func(liquidity uint64) *big.Int {
		s := newStage(t)
		s.assets[meme].Lane = contracts.LaneETH
		wild(s.direct, 150)
		wild(s.open(t, 9, usdg, meme, 0, liquidity), 0)
		_, suggested := s.valuedAs(t, of, nil)
		return suggested
	}
	thin, deep := suggested(1e9), suggested(11e14)
	gain := new(big.Int).Sub(deep, thin)
	if gain.Mul(gain, big.NewInt(1_000_000)).Cmp(thin) > 0 { // a sale into a deeper pool brings a little more
		t.Errorf("%s suggested, beside a thin pool %s", deep, thin)
	}
}

// TestAnEmptyPoolSaysNothing: a second pool was empty, and its price was moved to anywhere for nothing; since then it
// has as much liquidity as the floor asks for. What its price was says nothing of how much the token moves. Where it
// had liquidity then it does.
func TestAnEmptyPoolSaysNothing(t *testing.T) {
	for _, token := range []common.Address{meme, second} {
		of := &topics.Deal{Token: token, Term: 7 * 24 * 3600, AmountOrTokenID: *uint256.NewInt(1e9), Cap: *uint256.NewInt(1e9), MinPrice: *uint256.NewInt(1e9)}
		suggested := func(beside bool, liquidity uint64) *big.Int {
			s := newStage(t)
			if beside {
				p := s.open(t, 9, usdg, meme, 0, 2e12)
				wild(p, 20_000)
				for i := range p.Hours {
					p.Hours[i].Liquidity.SetUint64(liquidity)
					p.Hours[i].Usual.SetUint64(liquidity)
				}
			}
			_, suggested := s.valuedAs(t, of, nil)
			return suggested
		}
		alone, empty, full := suggested(false, 0), suggested(true, 0), suggested(true, 2e12)
		if alone == nil || alone.Sign() == 0 || empty == nil || empty.Cmp(alone) < 0 {
			t.Errorf("%s suggested beside a pool that was empty, without it %s", empty, alone)
		}
		if full == nil || full.Cmp(new(big.Int).Quo(alone, big.NewInt(100))) > 0 {
			t.Errorf("%s suggested beside a pool that moved although it had liquidity, without it %s", full, alone)
		}
	}
}

// TestAMomentShowsNoCalm: a price moved by 6 % an hour, and then the provider of nearly all of the pool took that out,
// except for a moment in each hour. No trades then do not show that the price stands still.
func TestAMomentShowsNoCalm(t *testing.T) {
	for _, token := range []common.Address{meme, second} {
		suggested := func(most, usual uint64, moves int32) *big.Int {
			s := newStage(t)
			s.assets[meme].Lane = contracts.LaneETH
			wild(s.direct, 600)
			for i := len(s.direct.Hours) - 40; i < len(s.direct.Hours); i++ {
				c := &s.direct.Hours[i]
				c.Low, c.High = moves*int32(i%2), moves*int32(i%2)
				c.Liquidity.SetUint64(most)
				c.Usual.SetUint64(usual)
			}
			_, suggested := s.valuedAs(t, &topics.Deal{
				Token: token, Term: 7 * 24 * 3600, AmountOrTokenID: *uint256.NewInt(1e9), Cap: *uint256.NewInt(1e9), MinPrice: *uint256.NewInt(1e9),
			}, nil)
			return suggested
		}
		const full = 1e15
		empty, moment, calm, moved := suggested(0, 0, 0), suggested(full, 0, 0), suggested(full, full, 0), suggested(full, 0, 3000)
		if moment.Cmp(empty) > 0 || calm.Cmp(empty) <= 0 || moved.Cmp(empty) >= 0 {
			t.Errorf("%s suggested where there was liquidity for moments, where there was none %s, where it stayed %s, where the price moved %s",
				moment, empty, calm, moved)
		}
	}
}

// TestOutForHalfOfEachHour: a price moved by 6 % an hour, and the provider of nearly all of the pool was out in the
// second half of each, and could set the price there. That hides nothing.
func TestOutForHalfOfEachHour(t *testing.T) {
	suggested := func(days uint32, lane contracts.Lane, out bool) *big.Int {
		s := newStage(t)
		s.assets[meme].Lane = lane
		for i := range s.direct.Hours {
			c, moved := &s.direct.Hours[i], int32(i%2)*600
			if c.Low, c.High = moved, moved; out {
				c.Low, c.High, c.Above = 0, 0, moved
				c.Usual.Clear()
			}
		}
		_, suggested := s.valuedAs(t, &topics.Deal{
			Token: meme, Term: days * 24 * 3600, AmountOrTokenID: *uint256.NewInt(1e9), Cap: *uint256.NewInt(1e9), MinPrice: *uint256.NewInt(1e9),
		}, nil)
		return suggested
	}
	for _, days := range []uint32{7, 30} {
		for _, lane := range []contracts.Lane{contracts.LaneETH, contracts.LaneMeme} {
			if stayed, out := suggested(days, lane, false), suggested(days, lane, true); stayed.Sign() == 0 || out.Cmp(stayed) > 0 {
				t.Errorf("%d days, lane %d: %s suggested, %s where it stayed", days, lane, out, stayed)
			}
		}
	}
}

// TestAMemeTokenIsNotCalm: of one of which next to nothing is known more is assumed than of other tokens.
func TestAMemeTokenIsNotCalm(t *testing.T) {
	s := newStage(t)
	s.direct.Hours = s.direct.Hours[len(s.direct.Hours)-3:]
	sigma := map[contracts.Lane]float64{}
	for _, lane := range []contracts.Lane{contracts.LaneStock, contracts.LaneETH, contracts.LaneMeme} {
		s.assets[meme].Lane = lane
		q, err := s.reference(meme)
		if err != nil {
			t.Fatal(err)
		}
		sigma[lane] = s.sigma(meme, q)
	}
	if h := &s.cfg.Haircut; sigma[contracts.LaneStock] != h.UnknownHourly || sigma[contracts.LaneETH] != h.UnknownHourly || sigma[contracts.LaneMeme] != h.UnknownMeme {
		t.Errorf("deviations by lane: %v", sigma)
	}
}

// TestMomentsSetNoMedian: a pool was empty but for a moment in each of some hours, at ten times the price. What a token
// was worth in a week does not follow it, and where that is most of the week nobody knows.
func TestMomentsSetNoMedian(t *testing.T) {
	known := func(moments int) (b factsBody) {
		s := newStage(t)
		for i := range s.direct.Hours[:moments] {
			c := &s.direct.Hours[i]
			c.Low, c.High = -23_027, -23_027
			c.Usual.Clear()
		}
		q, err := s.reference(meme)
		if err != nil {
			t.Fatal(err)
		}
		b.priced(s.state, meme, q, big.NewInt(1e12))
		return b
	}
	fair, some, most := known(0), known(60), known(100)
	if fair.MedianCap7dUSDG == nil || some.MedianCap7dUSDG == nil || *some.MedianCap7dUSDG != *fair.MedianCap7dUSDG || *some.Drawdown7dBps != *fair.Drawdown7dBps {
		t.Errorf("%+v with moments of liquidity in 60 hours, without them %+v", some, fair)
	}
	if most.MedianCap7dUSDG != nil || most.Drawdown7dBps != nil {
		t.Errorf("a median of %s of a week of which little is known", *most.MedianCap7dUSDG)
	}
}

// TestAnEmptyPoolWidensNoRange: nor is the range wider that is suggested for a pool that was moved while it was empty.
func TestAnEmptyPoolWidensNoRange(t *testing.T) {
	for _, p := range []func(s *stage) *pool{func(s *stage) *pool { return s.direct }, func(s *stage) *pool { return s.pair }} {
		suggested := func(wide int32, liquidity uint64) suggestion {
			s := newStage(t)
			p := p(s)
			for i := range p.Hours[:len(p.Hours)-40] {
				c := &p.Hours[i]
				c.Low, c.High = c.Low+wide*int32(i%2), c.High+wide*int32(i%2)
				c.Liquidity.SetUint64(liquidity)
				c.Usual.SetUint64(liquidity)
			}
			return s.suggest(p, 7*24*3600)
		}
		calm, empty, full := suggested(0, 0), suggested(20_000, 0), suggested(20_000, 1e15)
		if empty != calm || full.sigma < 2*calm.sigma || full.upper-full.lower <= calm.upper-calm.lower {
			t.Errorf("an empty pool that was moved: %+v, one that was not: %+v, one with liquidity: %+v", empty, calm, full)
		}
	}
}

// TestAnEmptyHopHidesNothing: of a price of two hops one moved by 6 % an hour. What the other did not tell, as it was
// empty or is young and began so, hides nothing of it.
func TestAnEmptyHopHidesNothing(t *testing.T) {
	const full = 1e15
	for name, place := range map[string]func(s *stage, liquidity uint64){
		"empty": func(s *stage, liquidity uint64) {
			wild(s.direct, 600)
			wild(s.pair, 0)
			for i := range s.pair.Hours {
				s.pair.Hours[i].Liquidity.SetUint64(liquidity)
				s.pair.Hours[i].Usual.SetUint64(liquidity)
			}
		},
		"young": func(s *stage, liquidity uint64) {
			wild(s.pair, 600)
			for i := len(s.pair.Hours) - 4; i < len(s.pair.Hours); i++ {
				s.pair.Hours[i].Low, s.pair.Hours[i].High = 0, 0
			}
			s.direct.Hours = []query.PriceAt{
				{At: now - 3*3600, Liquidity: *uint256.NewInt(liquidity), Usual: *uint256.NewInt(liquidity)},
				{At: now - 2*3600, Liquidity: *uint256.NewInt(full), Usual: *uint256.NewInt(full)},
			}
		},
	} {
		suggested := func(liquidity uint64) *big.Int {
			s := newStage(t)
			place(s, liquidity)
			_, suggested := s.valuedAs(t, &topics.Deal{
				Token: second, Term: 7 * 24 * 3600, AmountOrTokenID: *uint256.NewInt(1e9), Cap: *uint256.NewInt(1e9), MinPrice: *uint256.NewInt(1e9),
			}, nil)
			return suggested
		}
		if fair, hidden := suggested(full), suggested(0); fair.Sign() == 0 || hidden.Cmp(fair) > 0 {
			t.Errorf("%s: %s suggested where a hop was empty, %s where it was not", name, hidden, fair)
		}
	}
}

// TestEitherTokenMayFall: of a position of two tokens the one that moves more decides, whichever address is lower.
func TestEitherTokenMayFall(t *testing.T) {
	held := &topics.PositionLiquidity{PoolID: common.Hash{2}, TickLower: -6000, TickUpper: 6000, Liquidity: *uint256.NewInt(1e9)}
	of := &topics.Deal{Token: meme, Term: 30 * 24 * 3600, AmountOrTokenID: *uint256.NewInt(1), Cap: *uint256.NewInt(1e9), MinPrice: *uint256.NewInt(1e9)}
	suggested := func(first, other int32) *big.Int {
		s := newStage(t)
		s.assets[meme].Lane = contracts.LaneETH
		wild(s.direct, first)
		wild(s.pair, 0)
		wild(s.open(t, 9, usdg, second, 0, 1e15), other)
		_, suggested := s.valuedAs(t, of, held)
		return suggested
	}
	calm, one, two := suggested(0, 0), suggested(300, 0), suggested(0, 300)
	if one.Cmp(two) != 0 || one.Cmp(calm) >= 0 {
		t.Errorf("%s suggested with one token wild, %s with the other, %s with none", one, two, calm)
	}
}

// TestACentRefusesNoQuote: an empty pool stood at an absurd price for half of the window, which costs nothing; then its
// price was moved back, and somebody left a fraction of a cent where it had been. A quote through a deep pool is no
// worse for it.
func TestACentRefusesNoQuote(t *testing.T) {
	s := newStage(t)
	even, err := ammv4.SqrtPriceAtTick(0)
	if err != nil {
		t.Fatal(err)
	}
	p := s.empty(t, 7, usdg, meme, even)
	p.Seconds = []query.PriceAt{{At: began, Low: 207_240, High: 207_240}, {At: now, Low: 0, High: 0}}
	quote := func() (*swapped, error) {
		o, err := s.offer([]common.Address{usdg}, []common.Address{meme}, nil)
		if err != nil {
			return nil, err
		}
		return o.quote(false, uint256.NewInt(1e12))
	}
	before, err := quote()
	if err != nil {
		t.Fatal(err)
	}
	s.liquidity(t, p, 207_180, 207_300, 2e10)
	if after, err := quote(); err != nil || !after.in.Eq(&before.in) {
		t.Errorf("with the order: %v, want what it was", err)
	}
}

// TestPricesBeyondAPool: of two hops each was once far away, so that both together were further than one pool can be.
func TestPricesBeyondAPool(t *testing.T) {
	for _, sum := range []float64{900_000, -900_000, 0} {
		if _, err := ammv4.SqrtPriceAtTick(tickOf(sum)); err != nil {
			t.Errorf("a sum of %v: %v", sum, err)
		}
	}
}
