package valuation

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/topics"
)

// TestBurningPaysWhatWasSaid: a position below, in and above the price, after swaps, donations and a partial withdrawal, is
// burnt for what its amounts and fees were said to be, to the wei.
func TestBurningPaysWhatWasSaid(t *testing.T) {
	w := newWorld(t)
	by := w.deployer()
	router, created := by.swapRouter()
	donor, another := by.createRouter("PoolDonateTest")
	txs := []*types.Transaction{created, another}
	for _, token := range []common.Address{w.dep.USDG, w.dep.TKN} {
		txs = append(append(txs, by.approve(token, router)...), by.call(token, own(t, "TKN"), "approve", donor, new(big.Int).Lsh(big.NewInt(1), 150)))
	}
	w.mine(1, txs...)
	w.mine(1800)
	var p *pool
	for _, known := range w.state().pools {
		if other, ok := known.other(w.dep.USDG); ok && other == w.dep.TKN {
			p = known
		}
	}
	much, spacing := new(big.Int).Lsh(big.NewInt(1), 110), p.TickSpacing
	middle := p.Tick / spacing * spacing
	random := rand.New(rand.NewPCG(7, 7))
	next, err := w.call("PositionManager", w.dep.PositionManager, "nextTokenId")
	if err != nil {
		t.Fatal(err)
	}
	first := next[0].(*big.Int).Int64()
	ranges := [][2]int32{{-30, 31}, {-1, 2}, {-40, -20}, {20, 40}, {-3, 1}, {0, 1}, {-60, 60}, {-20, -1}, {2, 9}}
	txs = nil
	for _, ends := range ranges {
		liquidity := new(big.Int).Quo(p.Liquidity.ToBig(), big.NewInt(3+random.Int64N(997)))
		txs = append(txs, by.mint(p, middle+ends[0]*spacing, middle+ends[1]*spacing, liquidity, much, much))
	}
	w.mine(1, txs...)
	swap := func(ticks int32) {
		now := w.state().byID(p.ID)
		w.mine(1, by.swap(router, p, ticks < 0, much, now.Tick+ticks))
	}
	sides := map[string]int{}
	for i := range ranges {
		for range 3 { // there and back across the ends of ranges
			swap(-spacing * (1 + random.Int32N(6)))
			swap(spacing * (1 + random.Int32N(6)))
		}
		w.mine(1, by.call(donor, w.uniswap["PoolDonateTest"].ABI, "donate", keyOf(p), big.NewInt(1+random.Int64N(1e9)), big.NewInt(1+random.Int64N(1e12)), []byte{}))
		tokenID := big.NewInt(first + int64(i))
		held := by.held(p, tokenID)
		w.mine(1, by.withdraw(p, tokenID, new(big.Int).Quo(held.Liquidity.ToBig(), big.NewInt(2+random.Int64N(5)))))
		swap(spacing * (4*random.Int32N(2) - 2))
		w.mine(1, by.call(donor, w.uniswap["PoolDonateTest"].ABI, "donate", keyOf(p), big.NewInt(1+random.Int64N(1e9)), big.NewInt(1+random.Int64N(1e12)), []byte{}))

		held = by.held(p, tokenID)
		st := w.state()
		said, err := w.service.positionBody(t.Context(), st, &pledgedPosition{st: st, in: st.byID(p.ID), held: held, quote: &quoted{price: par}, leg: &quoted{price: par}})
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case said.InRange:
			sides["in"]++
		case st.byID(p.ID).Tick < held.TickLower:
			sides["below"]++
		default:
			sides["above"]++
		}
		before := [2]*big.Int{by.balance(p.Currency0), by.balance(p.Currency1)}
		w.mine(1, by.withdraw(p, tokenID, nil))
		for side, texts := range [2][2]string{{said.Amount0, said.Fees0}, {said.Amount1, said.Fees1}} {
			want := new(big.Int)
			for _, text := range texts {
				n, _ := new(big.Int).SetString(text, 10)
				want.Add(want, n)
			}
			if got := new(big.Int).Sub(by.balance([]common.Address{p.Currency0, p.Currency1}[side]), before[side]); got.Cmp(want) != 0 {
				t.Errorf("position %d of %v: burning it paid %s of currency%d, said was %s and %s of fees", i, ranges[i], got, side, texts[0], texts[1])
			}
		}
	}
	if sides["in"] == 0 || sides["below"] == 0 || sides["above"] == 0 {
		t.Errorf("positions at the price: %v", sides)
	}
}

// held is what a position of the actor's has in a pool, by the index.
func (a *actor) held(p *pool, tokenID *big.Int) *topics.PositionLiquidity {
	a.w.t.Helper()
	answer, err := a.w.reader.Held(a.w.t.Context(), a.w.at, p.ID, []common.Address{a.address})
	if err != nil {
		a.w.t.Fatal(err)
	}
	for i := range answer.Value {
		if answer.Value[i].TokenID.ToBig().Cmp(tokenID) == 0 {
			return &answer.Value[i]
		}
	}
	a.w.t.Fatalf("no position %s", tokenID)
	return nil
}
