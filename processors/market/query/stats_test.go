package query_test

import (
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/polltest"
)

// ledger is the market as its events say it, kept without a row, an index or a sum.
type ledger struct {
	deals     []*topics.Deal
	bids      []topics.Bid
	positions map[uint64][3]int64 // token ID: lower and upper tick, liquidity; all in tknPool
	ticks     map[common.Hash]int32
	paths     map[common.Hash][][2]int64 // time and tick
}

// play makes valid random events of one block.
func (l *ledger) play(t testing.TB, rng *rand.Rand, now uint64) (events []contracts.Event) {
	for range rng.IntN(6) {
		switch d := l.any(rng); {
		case d == nil || rng.IntN(3) == 0:
			id := uint64(len(l.deals) + 1)
			e := listing(id)
			e.Borrower, e.ListedAt = address(byte(rng.IntN(5))), now
			e.Cap, e.MinPrice = word(1000+rng.Uint64N(1<<40)), word(1000)
			e.Term = []uint32{604_800, 1_814_400}[rng.IntN(2)]
			switch rng.IntN(4) {
			case 0:
				e.Token, e.Lane, e.AmountOrTokenID = stock, contracts.LaneStock, word(rng.Uint64N(1<<50))
			case 1:
				e.Token, e.Lane, e.AmountOrTokenID = meme, contracts.LaneMeme, word(rng.Uint64N(1<<50))
			case 2:
				e.Token, e.Lane, e.AmountOrTokenID = tkn, contracts.LaneMeme, word(rng.Uint64N(1<<50))
			default:
				e.Token, e.Lane, e.Kind, e.AmountOrTokenID = manager, contracts.LanePosition, contracts.KindPosition, word(id)
				lower := int32(rng.IntN(20)-10) * 60
				upper, liquidity := lower+int32(1+rng.IntN(10))*60, rng.Uint64N(1<<40)
				l.positions[id] = [3]int64{int64(lower), int64(upper), int64(liquidity)}
				events = append(events, hold(id, address(0x77)), provide(tknPool, id, lower, upper, liquidity))
			}
			l.deals = append(l.deals, &topics.Deal{
				ID: e.DealID, Borrower: e.Borrower, Kind: e.Kind, Lane: e.Lane, Token: e.Token, AmountOrTokenID: e.AmountOrTokenID,
				Cap: e.Cap, Term: e.Term, ListedAt: now,
			})
			events = append(events, e)
		case d.State == contracts.DealListedState && rng.IntN(4) == 0:
			d.State = contracts.DealCancelledState
			events = append(events, &contracts.DealCancelled{DealID: d.ID, Borrower: d.Borrower, At: now})
		case d.State == contracts.DealListedState && rng.IntN(3) == 0:
			b := topics.Bid{ID: word(uint64(len(l.bids) + 1)), DealID: d.ID, Lender: address(byte(5 + rng.IntN(5))), Price: word(77)}
			l.bids = append(l.bids, b)
			events = append(events, &contracts.BidPlaced{DealID: d.ID, BidID: b.ID, Lender: b.Lender, Price: b.Price})
		case d.State == contracts.DealListedState:
			price := word(1 + rng.Uint64N(d.Cap.Uint64()))
			f := &topics.Funding{Lender: address(byte(5 + rng.IntN(5))), Price: price, Fee: word(price.Uint64() / 200), FundedAt: now}
			d.State, d.Funding = contracts.DealFundedState, f
			events = append(events, &contracts.DealFunded{DealID: d.ID, Lender: f.Lender, Price: f.Price, Fee: f.Fee, FundedAt: now})
		case d.State == contracts.DealFundedState && rng.IntN(2) == 0:
			d.State = contracts.DealReclaimedState
			events = append(events, &contracts.DealReclaimed{DealID: d.ID, Borrower: d.Borrower, Lender: d.Funding.Lender, At: now})
		case d.State == contracts.DealFundedState:
			d.State = contracts.DealClaimedState
			events = append(events, &contracts.DealClaimed{DealID: d.ID, Borrower: d.Borrower, Lender: d.Funding.Lender, At: now})
		}
	}
	for pool, tick := range l.ticks {
		if rng.IntN(3) == 0 {
			l.ticks[pool] = max(-500, min(500, tick+int32(rng.IntN(81)-40)))
			l.paths[pool] = append(l.paths[pool], [2]int64{int64(now), int64(l.ticks[pool])})
			events = append(events, &contracts.Swapped{PoolID: pool, SqrtPriceX96: at(t, l.ticks[pool]), Tick: l.ticks[pool], Liquidity: word(l.depth(pool))})
		}
	}
	return events
}

// depth is the liquidity that a swap says: thinPool's is the least.
func (l *ledger) depth(pool common.Hash) uint64 {
	if pool == thinPool {
		return 1 << 40
	}
	return 1 << 50
}

func (l *ledger) any(rng *rand.Rand) *topics.Deal {
	if len(l.deals) == 0 {
		return nil
	}
	return l.deals[rng.IntN(len(l.deals))]
}

func middle(numbers []uint64) *uint256.Int {
	if len(numbers) == 0 {
		return nil
	}
	slices.Sort(numbers)
	n := len(numbers)
	return uint256.NewInt((numbers[(n-1)/2] + numbers[n/2]) / 2)
}

// expect recomputes what Stats says.
func (l *ledger) expect(t testing.TB, now uint64) (s query.Stats) {
	var costs [2][]uint64
	var waits []uint64
	locked := map[query.AssetValue]*uint256.Int{} // by token and lane
	add := func(token common.Address, lane contracts.Lane, raw uint256.Int) {
		k := query.AssetValue{Token: token, Lane: lane}
		if locked[k] == nil {
			locked[k] = new(uint256.Int)
		}
		locked[k].Add(locked[k], &raw)
	}
	for _, d := range l.deals {
		s.Deals.Total++
		s.Deals.ByState[d.State]++
		if f := d.Funding; f != nil {
			for _, w := range []struct {
				to     *query.Windows
				amount *uint256.Int
			}{{&s.Volume, &f.Price}, {&s.Fees, &f.Fee}} {
				w.to.Total.Add(&w.to.Total, w.amount)
				if now-f.FundedAt < 86_400 {
					w.to.Last24h.Add(&w.to.Last24h, w.amount)
				}
				if now-f.FundedAt < 7*86_400 {
					w.to.Last7d.Add(&w.to.Last7d, w.amount)
				}
			}
			cost := new(big.Int).Sub(d.Cap.ToBig(), f.Price.ToBig())
			cost.Mul(cost, big.NewInt(10_000)).Quo(cost, f.Price.ToBig())
			costs[d.Term/1_814_400] = append(costs[d.Term/1_814_400], cost.Uint64())
			waits = append(waits, f.FundedAt-d.ListedAt)
		}
		if d.State > contracts.DealFundedState {
			continue
		}
		if d.Kind == contracts.KindERC20 {
			add(d.Token, d.Lane, d.AmountOrTokenID)
			continue
		}
		p, price := l.positions[d.ID.Uint64()], at(t, l.ticks[tknPool])
		amount0, amount1, err := ammv4.Amounts(&price, l.ticks[tknPool], int32(p[0]), int32(p[1]), uint256.NewInt(uint64(p[2])))
		if err != nil {
			t.Fatal(err)
		}
		add(usdg, contracts.LanePosition, *amount0)
		add(tkn, contracts.LanePosition, *amount1)
	}
	s.Deals.Active = s.Deals.ByState[contracts.DealFundedState]
	s.Medians = query.Medians{CostBps7d: middle(costs[0]), CostBps21d: middle(costs[1]), TimeToFundSeconds: middle(waits)}

	// USDG is currency0 of tknPool, where tkn is currency1; stock is currency1 of thinPool, with TKN: two hops.
	square := func(pool common.Hash) *big.Int {
		price := at(t, l.ticks[pool])
		return new(big.Int).Mul(price.ToBig(), price.ToBig())
	}
	q192 := new(big.Int).Lsh(big.NewInt(1), 192)
	prices := map[common.Address][2]*big.Int{
		usdg:  {big.NewInt(1), big.NewInt(1)},
		tkn:   {q192, square(tknPool)},
		stock: {new(big.Int).Mul(q192, q192), new(big.Int).Mul(square(tknPool), square(thinPool))},
	}
	for k, raw := range locked {
		if raw.IsZero() {
			continue
		}
		k.Raw = *raw
		if p, ok := prices[k.Token]; ok {
			value := new(big.Int).Mul(raw.ToBig(), p[0])
			k.USDG = uint256.MustFromBig(value.Quo(value, p[1]))
			s.TVL.USDG.Add(&s.TVL.USDG, k.USDG)
			s.TVL.ByLane[k.Lane].Add(&s.TVL.ByLane[k.Lane], k.USDG)
		} else {
			s.TVL.Unpriced = []common.Address{k.Token}
		}
		s.TVL.ByAsset = append(s.TVL.ByAsset, k)
	}
	slices.SortFunc(s.TVL.ByAsset, func(a, b query.AssetValue) int {
		if a.Token != b.Token {
			return a.Token.Cmp(b.Token)
		}
		return int(a.Lane) - int(b.Lane)
	})

	held := func(pool common.Hash, by uint64) *int64 {
		var tick *int64
		for _, o := range l.paths[pool] {
			if uint64(o[0]) <= by {
				tick = &o[1]
			}
		}
		return tick
	}
	for hour := (now - 7*86_400) / 3600; hour <= now/3600; hour++ {
		by, end := (hour+1)*3600-1, (hour+1)*3600
		if end >= now {
			by, end = now, now
		}
		in, usd := held(stknPool, by), held(tknPool, by)
		if in == nil {
			continue
		}
		// STKN is currency1 of its pool and has 18 decimals, as TKN has.
		point := fmt.Sprintf("%d %s", end, decimalOf(t, *in, 1))
		if usd != nil {
			point += " " + composed(t, *in, *usd)
		}
		s.PriceHistory = append(s.PriceHistory, query.PricePoint{T: end, PriceSTKNinTKN: text(point)})
		if end == now {
			break
		}
	}
	for hour := (now - 7*86_400) / 3600; hour <= now/3600; hour++ {
		h := query.HourOfVolume{T: hour * 3600}
		for _, d := range l.deals {
			if f := d.Funding; f != nil && f.FundedAt/3600 == hour {
				h.Volume.Add(&h.Volume, &f.Price)
				h.Fees.Add(&h.Fees, &f.Fee)
			}
		}
		s.VolumeHistory = append(s.VolumeHistory, h)
	}
	return s
}

// text smuggles a point of the history through cmp.
func text(point string) query.Price {
	return query.Price{Num: new(big.Int).SetBytes([]byte(point)), Den: big.NewInt(1)}
}

// decimalOf is 1/price at a tick, scaled, with up to 18 digits.
func decimalOf(t testing.TB, tick int64, scale int64) string {
	price := at(t, int32(tick))
	square := new(big.Int).Mul(price.ToBig(), price.ToBig())
	return fraction(new(big.Int).Mul(new(big.Int).Lsh(big.NewInt(1), 192), big.NewInt(scale)), square)
}

func composed(t testing.TB, stknTick, tknTick int64) string {
	a, b := at(t, int32(stknTick)), at(t, int32(tknTick))
	den := new(big.Int).Mul(a.ToBig(), a.ToBig())
	den.Mul(den, b.ToBig()).Mul(den, b.ToBig())
	num := new(big.Int).Lsh(big.NewInt(1), 384)
	return fraction(num.Mul(num, new(big.Int).Exp(big.NewInt(10), big.NewInt(12), nil)), den)
}

func fraction(num, den *big.Int) string {
	scaled := new(big.Int).Mul(num, new(big.Int).Exp(big.NewInt(10), big.NewInt(18), nil))
	scaled.Quo(scaled, den)
	digits := fmt.Sprintf("%019s", scaled.String())
	whole, rest := digits[:len(digits)-18], digits[len(digits)-18:]
	for len(rest) > 0 && rest[len(rest)-1] == '0' {
		rest = rest[:len(rest)-1]
	}
	for len(whole) > 1 && whole[0] == '0' {
		whole = whole[1:]
	}
	if rest == "" {
		return whole
	}
	return whole + "." + rest
}

// asText makes the history of an answer what expect says of it.
func asText(s query.Stats) query.Stats {
	points := make([]query.PricePoint, len(s.PriceHistory))
	for i, p := range s.PriceHistory {
		point := fmt.Sprintf("%d %s", p.T, p.PriceSTKNinTKN)
		if p.PriceUSDGPerSTKN != nil {
			point += " " + p.PriceUSDGPerSTKN.String()
		}
		points[i] = query.PricePoint{T: p.T, PriceSTKNinTKN: text(point)}
	}
	if len(points) == 0 {
		points = nil
	}
	s.PriceHistory = points
	return s
}

var compareBig = cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 })

// newLedgerNode makes a node with three pools, and a ledger of it.
func newLedgerNode(t testing.TB) (*marketNode, *ledger) {
	t.Helper()
	m := newMarketNode(t, deployment)
	l := &ledger{
		positions: map[uint64][3]int64{}, paths: map[common.Hash][][2]int64{},
		ticks: map[common.Hash]int32{stknPool: 0, tknPool: 0, thinPool: 0},
	}
	m.mine(t, 1,
		initialize(t, stknPool, tkn, stkn, 0), initialize(t, tknPool, usdg, tkn, 0), initialize(t, thinPool, tkn, stock, 0),
		provide(stknPool, 1<<32, -6000, 6000, 1<<40), provide(tknPool, 1<<33, -6000, 6000, 1<<50), provide(thinPool, 1<<34, -6000, 6000, 1<<40),
		allow(tknPool), allow(thinPool), asset(stock, contracts.LaneStock, 18), asset(tkn, contracts.LaneMeme, 18))
	for pool := range l.ticks {
		l.paths[pool] = append(l.paths[pool], [2]int64{int64(m.time), 0})
	}
	return m, l
}

// Stats and portfolios are what whoever goes through all deals would say, here and over HTTP.
func TestStatsAndPortfoliosEqualALedger(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	m, l := newLedgerNode(t)
	remote, paged := inTwoHalves(t, m.node), m.client(t)
	paged.SetMany(0) // as if there were more positions than a request may have
	compared := map[string]int{}
	for i := range 400 {
		step := rng.Uint64N(3)
		if rng.IntN(40) == 0 {
			step = rng.Uint64N(200_000)
		}
		m.mine(t, step, l.play(t, rng, m.time+step)...)
		if i%7 != 0 {
			continue
		}
		want := l.expect(t, m.time)
		for name, r := range map[string]*query.Client{"local": m.router, "remote": remote, "paged": paged} {
			a, err := r.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if a.At.Number != m.number {
				continue // the remote one has not heard of the block yet
			}
			if diff := cmp.Diff(want, asText(a.Value), compareBig); diff != "" {
				t.Fatalf("%s, block %d: %s", name, m.number, diff)
			}
			l.checkPortfolios(t, r)
			compared[name]++
		}
	}
	if compared["local"] < 50 || compared["paged"] < 50 || compared["remote"] == 0 {
		t.Errorf("compared %v times", compared)
	}
}

// half is the node as one of two that share its partitions out.
type half struct {
	*node
	odd int32
}

func (h half) View(ctx context.Context, p int32, at *topics.BlockRef) (state.View, error) {
	if p%2 != h.odd {
		return nil, query.ErrUnavailable
	}
	return h.node.View(ctx, p, at)
}

func (h half) Watermarks() []query.Watermark {
	return slices.DeleteFunc(h.node.Watermarks(), func(w query.Watermark) bool { return w.Partition%2 != h.odd })
}

// inTwoHalves is a router that finds the node's partitions in two places.
func inTwoHalves(t testing.TB, n *node) *query.Client {
	r, topic := emptyRouter(t, marketPartitions)
	for odd, instance := range []string{"even", "odd"} {
		server := httptest.NewServer(serveMarket(t.Context(), half{n, int32(odd)}))
		t.Cleanup(server.Close)
		addr := server.Listener.Addr().String()
		for _, w := range (half{n, int32(odd)}).Watermarks() {
			topic.tell(t, topics.Owner{
				Partition: w.Partition, Instance: instance, Addr: addr, Role: w.Role,
				Incarnation: w.Incarnation, At: w.At, Latest: w.Latest, ObservedAt: w.ObservedAt, State: topics.StateRunning,
			})
		}
	}
	polltest.Until(t, "the router knows the nodes", func() bool { _, err := r.Watermarks(); return err == nil })
	return r
}

func (l *ledger) checkPortfolios(t *testing.T, r *query.Client) {
	t.Helper()
	for w := range byte(10) {
		wallet := address(w)
		a, err := r.Portfolio(t.Context(), wallet)
		p := must(t, a, err)
		var want query.Summary
		var roles, bids [2][]uint64
		for _, d := range slices.Backward(l.deals) {
			f := d.Funding
			if d.Borrower == wallet {
				roles[0] = append(roles[0], d.ID.Uint64())
				if f != nil {
					want.ReceivedAlready.Add(&want.ReceivedAlready, new(uint256.Int).Sub(&f.Price, &f.Fee))
				}
				if d.State == contracts.DealFundedState {
					want.StillAtStake.Add(&want.StillAtStake, &d.Cap)
				}
			}
			if f != nil && f.Lender == wallet {
				roles[1] = append(roles[1], d.ID.Uint64())
				want.PaidOut.Add(&want.PaidOut, &f.Price)
				if d.State == contracts.DealFundedState {
					want.AwaitingExpiry.Add(&want.AwaitingExpiry, &d.Cap)
				}
			}
		}
		for _, b := range slices.Backward(l.bids) {
			if b.Lender == wallet {
				bids[0] = append(bids[0], b.ID.Uint64())
			}
		}
		for _, b := range p.Bids {
			bids[1] = append(bids[1], b.ID.Uint64())
		}
		if diff := cmp.Diff(want, p.Summary); diff != "" {
			t.Fatalf("summary of %s: %s", wallet, diff)
		}
		for i, list := range [][]query.DealWithBids{p.AsBorrower, p.AsLender} {
			var got []uint64
			for _, d := range list {
				got = append(got, d.Deal.ID.Uint64())
			}
			if !slices.Equal(got, roles[i]) {
				t.Fatalf("deals of %s in role %d: %v, want %v", wallet, i, got, roles[i])
			}
		}
		if !slices.Equal(bids[0], bids[1]) {
			t.Fatalf("bids of %s: %v, want %v", wallet, bids[1], bids[0])
		}
	}
}
