package valuation

import (
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/topics"
)

// TestLiquidityOfABlockIsNoDepth: somebody adds deep liquidity to a thin pool, moves it, and values in the same block and for
// some minutes. Nothing that was refused is valued for it, and no more is suggested of what was. What has stood for as long as
// a price has to, counts.
func TestLiquidityOfABlockIsNoDepth(t *testing.T) {
	w := newWorld(t)
	by := w.deployer()
	router, created := by.swapRouter()
	much := new(big.Int).Lsh(big.NewInt(1), 100)
	w.mine(1, created, by.call(w.dep.USDG, own(t, "USDG"), "mint", by.address, much))
	w.mine(1, by.approve(w.dep.USDG, router)...)
	token, p := w.listMeme(by, router)
	worth := func(floor uint64) (value, suggested *big.Int) {
		w.service.cfg.Reference.MinDepth = floor
		s := &stage{state: w.state()}
		of := &topics.Deal{Token: token, Term: 7 * 24 * 3600, AmountOrTokenID: *uint256.NewInt(1e13), Cap: *uint256.NewInt(1e9), MinPrice: *uint256.NewInt(1e9)}
		return s.valuedAs(t, of, nil)
	}
	const thin, deep = 1e12, 1e10 // floors between which the pool is
	if value, _ := worth(thin); value != nil {
		t.Fatalf("worth %s in a pool that is too thin", value)
	}
	fair, most := worth(deep)
	if fair == nil || fair.Sign() == 0 || most.Sign() == 0 {
		t.Fatalf("worth %s, of which %s is suggested", fair, most)
	}
	check := func(when string) {
		t.Helper()
		if value, _ := worth(thin); value != nil {
			t.Errorf("%s a thin pool values it at %s", when, value)
		}
		if value, suggested := worth(deep); value != nil && (value.Cmp(fair) > 0 || suggested.Cmp(most) > 0) {
			t.Errorf("%s it is worth %s and %s is suggested, before %s and %s", when, value, suggested, fair, most)
		}
	}
	dear := int32(150) // a price of the token that is higher, by as much as is not refused
	if p.Currency0 == w.dep.USDG {
		dear = -dear
	}
	all := new(big.Int).Lsh(big.NewInt(1), 90)
	next, err := w.call("PositionManager", w.dep.PositionManager, "nextTokenId")
	if err != nil {
		t.Fatal(err)
	}
	w.mine(1, by.mint(p, -887_220, 887_220, big.NewInt(1e16), much, much), by.swap(router, p, dear < 0, all, dear))
	check("in the same block")
	w.mine(1, by.swap(router, p, dear > 0, all, 0))
	for range 6 {
		w.mine(240)
		check("for some minutes")
	}
	w.mine(1, by.withdraw(p, next[0].(*big.Int), nil), by.mint(p, -887_220, 887_220, big.NewInt(1e16), much, much))
	for range 7 {
		w.mine(240)
		check("taken out and added again")
	}
	w.mine(1200)
	if value, suggested := worth(thin); value == nil || suggested.Cmp(most) <= 0 {
		t.Errorf("worth %s, of which %s is suggested, although the liquidity has stood; it was %s and %s", value, suggested, fair, most)
	}
}

// TestAPositionIsNoDepthOfItsOwn: what a position is sold into is what others have, and where the position is as young as it
// can be, no more than that.
func TestAPositionIsNoDepthOfItsOwn(t *testing.T) {
	held := &topics.PositionLiquidity{PoolID: common.Hash{1}, TickLower: -6000, TickUpper: 6000, Liquidity: *uint256.NewInt(3e14)}
	proceeds := func(young uint64) *big.Int {
		s := newStage(t)
		s.add(t, s.direct, held, young)
		p, err := s.pledgedPosition(held)
		if err != nil {
			t.Fatal(err)
		}
		sum, err := p.proceeds(asTheyStand)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	old := proceeds(0)
	for _, young := range []uint64{1, 1e14, 3e14} {
		if got := proceeds(young); got.Sign() == 0 || got.Cmp(old) > 0 {
			t.Errorf("sold for %s where %d of it is young, for %s where nothing is", got, young, old)
		}
	}
}
