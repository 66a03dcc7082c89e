package query_test

import (
	"errors"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/market/prices"
	"github.com/lienstream/lienstream/processors/market/query"
)

func TestExchange(t *testing.T) {
	m := newMarketNode(t, deployment)
	hooked := initialize(t, common.Hash{0xdd}, usdg, meme, 0)
	hooked.Hooks = common.Address{1}
	m.mine(t, 1, asset(stock, contracts.LaneStock, 18),
		initialize(t, tknPool, usdg, tkn, 100), allow(tknPool), provide(tknPool, 1, -600, 600, 1000), provide(tknPool, 2, 0, 600, 500),
		initialize(t, stknPool, tkn, stkn, 7), // not allowed, but the token layer's
		initialize(t, thinPool, usdg, stock, 0), hooked, allow(hooked.PoolID))
	began := m.time
	swap := func(tick int32) *contracts.Swapped {
		return &contracts.Swapped{
			PoolID: tknPool, SqrtPriceX96: at(t, tick), Tick: tick, Liquidity: word(1500), Amount0: word(10), Amount1: *new(uint256.Int).Neg(uint256.NewInt(9)),
		}
	}
	m.mine(t, 3600, swap(110))
	m.mine(t, 600, swap(120), swap(130))
	m.mine(t, 0, swap(140)) // in the same second
	m.mine(t, 60, swap(150))
	m.mine(t, 10)

	read := func(seconds, hours uint64) query.Exchange {
		answer, err := m.router.Exchange(t.Context(), query.ExchangeQuery{Seconds: seconds, Hours: hours})
		if err == nil && answer.At.Number != m.number {
			t.Errorf("as of block %d, not %d", answer.At.Number, m.number)
		}
		return must(t, answer, err)
	}
	x := read(100, 7200)
	if len(x.Assets) != 1 || x.Assets[0].Token != stock {
		t.Errorf("assets %v", x.Assets)
	}
	if len(x.Pools) != 2 || x.Pools[0].ID != stknPool || x.Pools[1].ID != tknPool {
		t.Fatalf("pools %v", x.Pools)
	}
	p := x.Pools[1]
	wanted := []ammv4.Tick{}
	for _, tick := range []struct {
		index int32
		net   int64
	}{{-600, 1000}, {0, 500}, {600, -1500}} {
		net := uint256.NewInt(uint64(max(tick.net, -tick.net)))
		if tick.net < 0 {
			net.Neg(net)
		}
		one, err := ammv4.NewTick(tick.index, net)
		if err != nil {
			t.Fatal(err)
		}
		wanted = append(wanted, one)
	}
	if diff := cmp.Diff(wanted, p.Ticks, cmp.AllowUnexported(ammv4.Tick{})); diff != "" {
		t.Error("ticks (-want +got):", diff)
	}
	// Within a second the price was between what its blocks and the last one before it left; 120 was not left by any.
	all := []query.PriceAt{
		{At: began, Low: 100, High: 100},
		{At: began + 3600, Low: 100, High: 110},
		{At: began + 3601, Low: 110, High: 110},
		{At: began + 4200, Low: 110, High: 140},
		{At: began + 4201, Low: 140, High: 140},
		{At: began + 4260, Low: 140, High: 150},
		{At: began + 4261, Low: 150, High: 150},
	}
	if diff := cmp.Diff(all[3:], read(60, 0).Pools[1].Seconds); diff != "" {
		t.Error("a minute (-want +got):", diff)
	}
	if diff := cmp.Diff(all, read(1<<40, 0).Pools[1].Seconds); diff != "" {
		t.Error("all seconds (-want +got):", diff)
	}
	if hours := p.Hours; len(hours) != 1 || hours[0] != (query.PriceAt{At: began - began%3600, Low: 100, High: 100, Liquidity: word(1500)}) {
		t.Errorf("hours %v", hours)
	}
	if p.Volume24h != (prices.Volume{word(50), word(45)}) {
		t.Errorf("traded %v in five swaps of 10 and 9", p.Volume24h)
	}
	m.mine(t, 23*3600, swap(150))
	want := uint64(0)
	for _, at := range []uint64{began + 3600, began + 4200, began + 4200, began + 4200, began + 4260, m.time} {
		if at-at%3600+24*3600 > m.time { // its hour began less than a day ago
			want += 10
		}
	}
	if v := read(60, 0).Pools[1].Volume24h; v[0] != word(want) {
		t.Errorf("traded %v, want %d", v, want)
	}
	if m.mine(t, 24*3600); read(60, 0).Pools[1].Volume24h != (prices.Volume{}) {
		t.Error("traded within a day in which nobody did")
	}
	if len(x.Pools[0].Ticks) != 0 || len(x.Pools[0].Seconds) != 1 || x.Pools[0].Seconds[0].Low != 7 {
		t.Errorf("a pool that never moved: %+v", x.Pools[0])
	}
}

func TestCollateral(t *testing.T) {
	m := newMarketNode(t, deployment)
	pledged := &contracts.DealListed{
		DealID: word(5), Borrower: common.Address{9}, Kind: contracts.KindPosition, Token: manager, AmountOrTokenID: word(2), Cap: word(10), Term: 7,
	}
	m.mine(t, 1, initialize(t, tknPool, usdg, tkn, 0), provide(tknPool, 2, -60, 60, 500), pledged)
	first, err := m.router.Exchange(t.Context(), query.ExchangeQuery{})
	if err != nil {
		t.Fatal(err)
	}
	m.mine(t, 1, provide(tknPool, 2, -60, 60, 100))
	answer, err := m.router.Collateral(t.Context(), first.At, uint256.NewInt(5))
	c := must(t, answer, err)
	if answer.At != first.At || c.Deal.ID != word(5) || c.Position == nil || c.Position.Liquidity != word(500) {
		t.Errorf("as of block %d: %+v", answer.At.Number, c)
	}
	if _, err := m.router.Collateral(t.Context(), first.At, uint256.NewInt(6)); !errors.Is(err, query.ErrNotFound) {
		t.Errorf("no such deal: %v", err)
	}
	gone := first.At
	gone.Hash[0]++
	if _, err := m.router.Collateral(t.Context(), gone, uint256.NewInt(5)); !errors.Is(err, query.ErrUnavailable) {
		t.Errorf("no such block: %v", err)
	}
}
