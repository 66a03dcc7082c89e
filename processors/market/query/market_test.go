package query_test

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

const marketPartitions = 8

// The market of the tests: sTKN is currency1 of its pool, USDG currency0 of every other.
var (
	usdg  = common.HexToAddress("0x01")
	tkn   = common.HexToAddress("0x10")
	stkn  = common.HexToAddress("0x20")
	stock = common.HexToAddress("0x30")
	meme  = common.HexToAddress("0x40")

	stknPool = common.Hash{0xaa}
	tknPool  = common.Hash{0xbb}
	thinPool = common.Hash{0xcc}

	deployment = contracts.Deployment{
		ChainID: 1, USDG: usdg, PositionManager: manager, TKN: tkn, STKN: stkn, PoolID: stknPool,
		EpochController: common.Address{1}, RewardDistributor: common.Address{2}, LiquidityStaking: common.Address{3}, Burner: common.Address{4},
	}
)

type marketNode struct {
	*node
	router *query.Client
	number uint64
	time   uint64
}

func newMarketNode(t testing.TB, d contracts.Deployment) *marketNode {
	n := newNode(t, topics.RoleOwner, 1, span(marketPartitions)...)
	routing := query.DefaultConfig()
	routing.Partitions, routing.Local = marketPartitions, n
	r, err := query.NewClient(routing, d)
	if err != nil {
		t.Fatal(err)
	}
	return &marketNode{node: n, router: r, time: 1_000_000}
}

// mine lands a block so many seconds after the last.
func (m *marketNode) mine(t testing.TB, seconds uint64, events ...contracts.Event) {
	t.Helper()
	m.number++
	m.time += seconds
	at := block(m.number)
	at.Timestamp = m.time
	m.land(t, marketPartitions, at, events...)
}

func at(t testing.TB, tick int32) uint256.Int {
	t.Helper()
	price, err := ammv4.SqrtPriceAtTick(tick)
	if err != nil {
		t.Fatal(err)
	}
	return *price
}

func initialize(t testing.TB, id common.Hash, currency0, currency1 common.Address, tick int32) *contracts.PoolInitialized {
	return &contracts.PoolInitialized{
		PoolID: id, Currency0: currency0, Currency1: currency1, Fee: 3000, TickSpacing: 60, SqrtPriceX96: at(t, tick), Tick: tick,
	}
}

func provide(id common.Hash, tokenID uint64, lower, upper int32, liquidity uint64) *contracts.LiquidityModified {
	salt := word(tokenID)
	return &contracts.LiquidityModified{
		PoolID: id, Sender: manager, TickLower: lower, TickUpper: upper, LiquidityDelta: word(liquidity), Salt: salt.Bytes32(),
	}
}

func hold(tokenID uint64, owner common.Address) *contracts.PositionTransferred {
	return &contracts.PositionTransferred{To: owner, TokenID: word(tokenID)}
}

func allow(id common.Hash) *contracts.PoolSet {
	return &contracts.PoolSet{PoolID: id, Allowed: true, MinLiquidity: word(100), MaxLiquidity: word(1 << 62)}
}

func asset(token common.Address, lane contracts.Lane, decimals uint8) *contracts.AssetSet {
	e := &contracts.AssetSet{Token: token, Lane: lane, Allowed: true, Decimals: decimals}
	if lane == contracts.LanePosition {
		e.Kind = contracts.KindPosition
	}
	return e
}

func must[T any](t testing.TB, a query.Answer[T], err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return a.Value
}

// Without the token layer everything has an answer, and it is empty.
func TestWithoutTheTokenLayer(t *testing.T) {
	m := newMarketNode(t, contracts.Deployment{ChainID: 1, USDG: usdg, PositionManager: manager})
	m.mine(t, 1)
	ctx := t.Context()
	answer, err := m.router.Pool(ctx)
	if diff := cmp.Diff(query.PoolOverview{}, must(t, answer, err)); diff != "" || answer.At != block(1) {
		t.Error(answer.At, diff)
	}
	rewards, err := m.router.Rewards(ctx, address(1))
	if v := must(t, rewards, err); len(v.Drips) > 0 || v.Epoch != nil || v.Pool != nil {
		t.Error(v)
	}
	epochs, err := query.Epochs.Page(ctx, m.router, query.PageQuery{Limit: 50})
	if v := must(t, epochs, err); len(v.Items) > 0 || v.Next != nil {
		t.Error(v)
	}
	stakes, err := m.router.Stakes(ctx, query.StakesQuery{Owner: address(1), Limit: 50})
	if v := must(t, stakes, err); len(v.Items) > 0 {
		t.Error(v)
	}
	positions, err := m.router.Positions(ctx, query.PositionsQuery{Owner: address(1), Limit: 50})
	if v := must(t, positions, err); len(v.Items) > 0 {
		t.Error(v)
	}
	portfolio, err := m.router.Portfolio(ctx, address(1))
	if v := must(t, portfolio, err); len(v.AsBorrower)+len(v.AsLender)+len(v.Bids)+len(v.Balances)+len(v.Drips) > 0 || v.Summary != (query.Summary{}) {
		t.Error(v)
	}
	stats, err := m.router.Stats(ctx)
	if v := must(t, stats, err); v.Medians != (query.Medians{}) || v.PriceHistory != nil || v.Deals.Total != 0 || v.Emissions != (query.Emissions{}) {
		t.Error(v)
	}
	if _, err := m.router.AssetDeals(ctx, query.AssetDealsQuery{Token: stock, Limit: 50}); !errors.Is(err, query.ErrNotFound) {
		t.Errorf("deals of a token that nobody set: %v", err)
	}
}

// The token layer's week: what of it depends on time is as of the block, whoever knows it.
func TestPoolOverview(t *testing.T) {
	m := newMarketNode(t, deployment)
	seeds := &contracts.PositionStaked{PoolID: stknPool, TokenID: word(1), Owner: address(9), TickLower: -600, TickUpper: 600, Liquidity: word(1_000_000), IsSeed: true, InRange: true}
	second := *seeds
	second.TokenID, second.TickUpper = word(2), 900
	burn := func(caller byte, stkn uint64) *contracts.Burned {
		return &contracts.Burned{Caller: address(caller), USDGSpent: word(1), STKNBurned: word(stkn), At: m.time + 10}
	}
	m.mine(t, 10, burn(1, 1000), burn(2, 2000))
	m.mine(t, 10,
		&contracts.EpochOpened{N: 1, StartsAt: m.time + 10, EndsAt: m.time + 20},
		initialize(t, stknPool, tkn, stkn, 0), provide(stknPool, 1, -600, 600, 1_000_000), provide(stknPool, 2, -60, 60, 3_000_000), seeds, &second)
	m.mine(t, 10, burn(1, 40), burn(3, 2))
	opened := m.time
	m.mine(t, 5, &contracts.EpochOpened{N: 2, StartsAt: opened, EndsAt: opened + 604_800, Weekly: word(7)},
		&contracts.EmissionsNotified{PoolID: stknPool, Epoch: 2, RatePerSecond: word(5), PeriodFinish: m.time + 100})

	first, err := m.router.Pool(t.Context())
	v := must(t, first, err)
	if v.Epoch == nil || v.Epoch.N != 2 || v.Epoch.Weekly != word(7) {
		t.Fatalf("epoch %+v", v.Epoch)
	}
	if v.BurnedThisWeek == nil || *v.BurnedThisWeek != word(42) {
		t.Errorf("burned %s, want 42: what the block burned in which the epoch began counts", v.BurnedThisWeek)
	}
	if len(v.Burns) != 4 || v.Burns[0].At < v.Burns[3].At || v.Burns[3].STKNBurned.Uint64()+v.Burns[2].STKNBurned.Uint64() != 3000 {
		t.Errorf("burns %+v", v.Burns)
	}
	if v.EmissionsRatePerSecond == nil || *v.EmissionsRatePerSecond != word(5) {
		t.Errorf("rate %s", v.EmissionsRatePerSecond)
	}
	if v.Pool == nil || v.Pool.PriceSTKNinTKN.String() != "1" || v.Pool.Liquidity != word(4_000_000) {
		t.Fatalf("pool %+v", v.Pool)
	}
	// sTKN is currency1: its price falls as the tick rises, by 2 % at tick 203, beyond the end of the narrow range.
	if v.Floor == nil || v.Floor.Tick != 900 || v.Floor.PriceSTKNinTKN.String()[:6] != "0.9139" {
		t.Errorf("floor %+v", v.Floor)
	}
	root := new(big.Float).Sqrt(big.NewFloat(1 / 0.98))
	amount := func(l float64, from, to *big.Float) float64 {
		inverse := new(big.Float).Sub(new(big.Float).Quo(big.NewFloat(1), from), new(big.Float).Quo(big.NewFloat(1), to))
		f, _ := inverse.Float64()
		return l * f
	}
	edge := new(big.Float).SetFloat64(1.0030041)
	want := amount(4_000_000, big.NewFloat(1), edge) + amount(1_000_000, edge, root)
	if got := float64(v.Pool.DepthTKN.Uint64()); got < want-3 || got > want+1 {
		t.Errorf("depth %f, want %f", got, want)
	}

	// Another period is over; another epoch has begun since, which the first question does not expect.
	m.mine(t, 100, &contracts.EpochOpened{N: 3, StartsAt: m.time + 100, EndsAt: m.time + 200}, burn(7, 9))
	later, err := m.router.Pool(t.Context())
	v = must(t, later, err)
	if v.Epoch.N != 3 || *v.BurnedThisWeek != word(0) || !v.EmissionsRatePerSecond.IsZero() {
		t.Errorf("epoch %d, burned %s, rate %s", v.Epoch.N, v.BurnedThisWeek, v.EmissionsRatePerSecond)
	}
	page, err := query.Epochs.Page(t.Context(), m.router, query.PageQuery{Limit: 2})
	p := must(t, page, err)
	if len(p.Items) != 2 || p.Items[0].N != 3 || p.Items[1].N != 2 || p.Next == nil {
		t.Fatalf("%+v", p)
	}
	page, err = query.Epochs.Page(t.Context(), m.router, query.PageQuery{Limit: 2, After: p.Next})
	if p = must(t, page, err); len(p.Items) != 1 || p.Items[0].N != 1 || p.Next != nil {
		t.Errorf("%+v", p)
	}
}

// A deal, its grant, and drips in other partitions, cut when it ends early.
func TestRewardedDeal(t *testing.T) {
	m := newMarketNode(t, deployment)
	drip := func(id uint64, account byte, total uint64) *contracts.DripCreated {
		return &contracts.DripCreated{
			Account: address(account), DripID: word(id), DealID: word(1), Epoch: 4, Total: word(total), Start: m.time + 1, Length: 700, Cliff: m.time + 101,
		}
	}
	lp := drip(3, 2, 90)
	lp.Source, lp.DealID = contracts.DripLP, word(0)
	funded := &contracts.DealFunded{DealID: word(1), Lender: address(2), Price: word(950), Fee: word(5), FundedAt: m.time + 1}
	m.mine(t, 1, listing(1), funded, listing(2),
		&contracts.RewardReserved{DealID: word(1), N: 4, Granted: word(1000), LenderAmount: word(700), BorrowerAmount: word(300), BudgetExhausted: true},
		drip(1, 2, 700), drip(2, 1, 300), lp)
	start := m.time
	check := func(when string, unlocked, claimable [2]uint64) {
		t.Helper()
		a, err := m.router.DealWithReward(t.Context(), uint256.NewInt(1))
		d := must(t, a, err)
		if d.Reward == nil || d.Reward.Granted != word(1000) || !d.Reward.BudgetExhausted || len(d.Reward.Drips) != 2 {
			t.Fatalf("%s: %+v", when, d.Reward)
		}
		for i, drip := range d.Reward.Drips {
			if drip.ID != word(uint64(i+1)) || drip.UnlockedNow != word(unlocked[i]) || drip.ClaimableNow != word(claimable[i]) {
				t.Errorf("%s: drip %s has %s unlocked and %s claimable, want %d and %d", when, drip.ID.Dec(), drip.UnlockedNow.Dec(), drip.ClaimableNow.Dec(), unlocked[i], claimable[i])
			}
		}
	}
	m.mine(t, 99)
	check("before the cliff", [2]uint64{0, 0}, [2]uint64{0, 0})
	m.mine(t, 1)
	check("at the cliff", [2]uint64{100, 42}, [2]uint64{100, 42})
	m.mine(t, 250, &contracts.DripClaimed{Account: address(2), DripID: word(1), Amount: word(350), ClaimedAfter: word(350)})
	check("half way", [2]uint64{350, 150}, [2]uint64{0, 150})
	a, err := m.router.DealWithReward(t.Context(), uint256.NewInt(1))
	want := []query.CurvePoint{{T: start}, {T: start + 100, Unlocked: word(100)}, {T: start + 700, Unlocked: word(700)}}
	if diff := cmp.Diff(want, must(t, a, err).Reward.Drips[0].Curve); diff != "" {
		t.Error(diff)
	}
	m.mine(t, 50, &contracts.DripCut{Account: address(1), DripID: word(2), At: m.time + 50, TotalAfter: word(171), Returned: word(129)},
		&contracts.RewardReturned{DealID: word(1), N: 4, Amount: word(129)})
	m.mine(t, 1000)
	check("after a cut and the end", [2]uint64{700, 171}, [2]uint64{350, 171})
	a, err = m.router.DealWithReward(t.Context(), uint256.NewInt(1))
	want = []query.CurvePoint{{T: start}, {T: start + 100, Unlocked: word(42)}, {T: start + 400, Unlocked: word(171)}, {T: start + 700, Unlocked: word(171)}}
	d := must(t, a, err)
	if diff := cmp.Diff(want, d.Reward.Drips[1].Curve); diff != "" || d.Reward.Returned != word(129) {
		t.Error(d.Reward.Returned, diff)
	}

	none, err := m.router.DealWithReward(t.Context(), uint256.NewInt(2))
	if must(t, none, err).Reward != nil {
		t.Error("a reward that nobody granted")
	}
	missing, err := m.router.DealWithReward(t.Context(), uint256.NewInt(9))
	if !errors.Is(err, query.ErrNotFound) || missing.At.Number != m.number {
		t.Errorf("deal 9 as of block %d: %v", missing.At.Number, err)
	}

	// The account sees all of its drips, the position's too.
	rewards, err := m.router.Rewards(t.Context(), address(2))
	r := must(t, rewards, err)
	if len(r.Drips) != 2 || r.ClaimableNow != word(350+90) || !r.StillDripping.IsZero() {
		t.Errorf("%d drips, %s claimable, %s dripping", len(r.Drips), r.ClaimableNow.Dec(), r.StillDripping.Dec())
	}
}

// Positions of a wallet: who holds them, what is in them and what the registry says are in three partitions.
func TestPositions(t *testing.T) {
	m := newMarketNode(t, deployment)
	m.mine(t, 1,
		initialize(t, stknPool, tkn, stkn, 100), initialize(t, tknPool, usdg, tkn, 0),
		hold(1, address(1)), provide(stknPool, 1, 0, 60, 1_000_000), // below the price
		hold(2, address(1)), provide(stknPool, 2, 60, 120, 1_000_000),
		hold(3, address(1)), provide(tknPool, 3, 60, 120, 1_000_000), // above the price
		hold(4, address(2)), provide(tknPool, 4, -60, 60, 50))
	for id := uint64(10); id < 40; id++ {
		m.mine(t, 1, hold(id, address(3)), provide(tknPool, id, -60, 60, id))
	}
	list := func(owner byte, limit int, after []byte) query.Page[query.Position] {
		t.Helper()
		a, err := m.router.Positions(t.Context(), query.PositionsQuery{Owner: address(owner), Limit: limit, After: after})
		return must(t, a, err)
	}
	ps := list(1, 50, nil).Items
	if len(ps) != 3 || ps[0].InRange || !ps[1].InRange || ps[2].InRange {
		t.Fatalf("%+v", ps)
	}
	if !ps[0].Amount0.IsZero() || ps[0].Amount1.IsZero() || ps[1].Amount0.IsZero() || ps[1].Amount1.IsZero() || ps[2].Amount0.IsZero() || !ps[2].Amount1.IsZero() {
		t.Errorf("amounts %+v", ps)
	}
	for i, p := range ps {
		if p.Refusal != query.RefusalAsset || p.TokenID != word(uint64(i+1)) {
			t.Errorf("position %s: %q", p.TokenID.Dec(), p.Refusal)
		}
	}
	m.mine(t, 1, asset(manager, contracts.LanePosition, 0), allow(tknPool))
	ps = list(1, 50, nil).Items
	if ps[0].Refusal != query.RefusalPool || ps[2].Refusal != query.RefusalNone || list(2, 50, nil).Items[0].Refusal != query.RefusalLiquidity {
		t.Errorf("refusals %q, %q", ps[0].Refusal, ps[2].Refusal)
	}

	var seen []uint64
	for after := []byte(nil); ; {
		page := list(3, 7, after)
		for _, p := range page.Items {
			seen = append(seen, p.TokenID.Uint64())
		}
		if after = page.Next; after == nil {
			break
		}
	}
	if len(seen) != 30 || !slices.IsSorted(seen) {
		t.Errorf("in pages: %v", seen)
	}

	// Stakes have weights of their last checkpoint, and a range and a value of now.
	m.mine(t, 1, &contracts.PositionStaked{
		PoolID: stknPool, TokenID: word(2), Owner: address(1), TickLower: 60, TickUpper: 120, Liquidity: word(1_000_000), Weight: word(1_000_000), TotalWeight: word(1_000_000), InRange: true,
	}, &contracts.Swapped{PoolID: stknPool, SqrtPriceX96: at(t, 120), Tick: 120})
	a, err := m.router.Stakes(t.Context(), query.StakesQuery{Owner: address(1), Limit: 5})
	s := must(t, a, err).Items
	if len(s) != 1 || !s[0].InRange || s[0].InRangeNow {
		t.Fatalf("%+v", s)
	}
	// All of it is sTKN, worth 1.0001^-120 TKN each.
	moved := list(1, 50, nil).Items[1]
	want := float64(moved.Amount1.Uint64()) / 1.012072
	if got := float64(s[0].ValueTKN.Uint64()); got < want-1 || got > want+1 || moved.Amount0.Sign() != 0 {
		t.Errorf("value %f, want %f of %+v", got, want, moved)
	}
}

func TestAssetDeals(t *testing.T) {
	m := newMarketNode(t, deployment)
	m.mine(t, 1, asset(stock, contracts.LaneStock, 18), asset(meme, contracts.LaneMeme, 18))
	for id := uint64(1); id <= 30; id++ {
		e := listing(id)
		e.Token = stock
		events := []contracts.Event{e}
		if id%3 != 0 {
			events = append(events, &contracts.DealFunded{DealID: word(id), Lender: address(2), Price: word(950), FundedAt: m.time + id%5})
		}
		m.mine(t, 0, events...)
	}
	list := func(token common.Address, after []byte) (query.Page[query.DealWithBids], error) {
		a, err := m.router.AssetDeals(t.Context(), query.AssetDealsQuery{Token: token, Limit: 7, After: after})
		return a.Value, err
	}
	var order []string
	for after := []byte(nil); ; {
		page, err := list(stock, after)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page.Items {
			order = append(order, fmt.Sprintf("%d.%02d", d.Deal.Funding.FundedAt-m.time, d.Deal.ID.Uint64()))
		}
		if after = page.Next; after == nil {
			break
		}
	}
	if len(order) != 20 || !slices.IsSortedFunc(order, func(a, b string) int { return strings.Compare(b, a) }) {
		t.Errorf("%v", order)
	}
	if page, err := list(meme, nil); err != nil || len(page.Items) > 0 {
		t.Errorf("of a token without deals: %v, %v", page, err)
	}
	if _, err := list(usdg, nil); !errors.Is(err, query.ErrNotFound) {
		t.Errorf("of a token that the registry never set: %v", err)
	}
}
