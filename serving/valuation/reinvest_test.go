package valuation

import (
	"fmt"
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/ingest/devchain"
)

// reinvestor reinvests on the chain as it was quoted.
type reinvestor struct {
	*actor
	router common.Address
	pool   *pool // of sTKN
	of0    bool  // sTKN is its currency0
}

func newReinvestor(t *testing.T) *reinvestor {
	w := newWorld(t)
	r := &reinvestor{actor: w.deployer()}
	var created *types.Transaction
	r.router, created = r.swapRouter()
	txs := []*types.Transaction{created}
	for _, token := range []common.Address{w.dep.USDG, w.dep.TKN, w.dep.STKN} {
		txs = append(txs, r.approve(token, r.router)...)
	}
	w.mine(1, txs...)
	w.mine(1800) // where the scenario left the prices becomes the reference
	r.pool = w.state().byID(w.dep.PoolID)
	r.of0 = r.pool.Currency0 == w.dep.STKN
	return r
}

// deposited deposits amounts of sTKN and TKN and checks what became of them.
func (r *reinvestor) deposited(lower, upper int32, stkn, tkn *big.Int, minLiquidity, what string) {
	t := r.w.t
	t.Helper()
	amounts := [2]*big.Int{stkn, tkn}
	if !r.of0 {
		amounts[0], amounts[1] = tkn, stkn
	}
	before := [2]*big.Int{r.balance(r.pool.Currency0), r.balance(r.pool.Currency1)}
	block := r.w.mine(1, r.deposit(r.pool, lower, upper, amounts[0], amounts[1]))
	least, _ := new(big.Int).SetString(minLiquidity, 10)
	if got := mintedIn(r.w, block); got.Cmp(least) < 0 || least.Sign() == 0 {
		t.Errorf("%s: liquidity %s, at least %s was quoted", what, got, least)
	}
	for i, token := range []common.Address{r.pool.Currency0, r.pool.Currency1} {
		unused := new(big.Int).Sub(amounts[i], new(big.Int).Sub(before[i], r.balance(token)))
		if bound := new(big.Int).Quo(amounts[i], big.NewInt(1_000_000)); unused.Sign() < 0 || unused.Cmp(bound) > 0 {
			t.Errorf("%s: of %s of currency%d %s are unused", what, amounts[i], i, unused)
		}
	}
}

// mintedIn is the liquidity that a block adds.
func mintedIn(w *world, block *devchain.Block) *big.Int {
	for _, l := range block.Logs() {
		if e, ok := w.decoder.Decode(l.Address, l.Topics, l.Data).(*contracts.LiquidityModified); ok {
			return e.LiquidityDelta.ToBig()
		}
	}
	return new(big.Int)
}

// reinvestments are amounts of sTKN, and ranges around a tick.
func reinvestments(around int32, exponents ...uint64) (all []reinvestment) {
	middle := around / 60 * 60
	for _, exponent := range exponents {
		for _, ends := range [][2]int32{{-887_220, 887_220}, {-1200, 1200}, {-120, 120}, {-60, 6000}, {-6000, 120}} {
			lower, upper := max(middle+ends[0], -887_220), min(middle+ends[1], 887_220)
			all = append(all, reinvestment{amount: pow10(exponent), lower: lower, upper: upper})
		}
	}
	return all
}

// TestZapOnTheChain: what is sold of an amount and deposited with what it brought, through the real PositionManager at
// the state of the quote, is at least minLiquidity, and leaves less than a millionth.
func TestZapOnTheChain(t *testing.T) {
	r := newReinvestor(t)
	for _, in := range append(reinvestments(r.pool.Tick, 15, 18, 21, 24),
		reinvestment{amount: pow10(20), lower: r.pool.Tick/60*60 + 600, upper: r.pool.Tick/60*60 + 1200},
		reinvestment{amount: pow10(20), lower: r.pool.Tick/60*60 - 1200, upper: r.pool.Tick/60*60 - 600}) {
		var z zapBody
		r.w.get(fmt.Sprintf("/quote/reinvest?route=zap&slippageBps=0&amount=%s&tickLower=%d&tickUpper=%d", in.amount.Dec(), in.lower, in.upper), &z)
		sold, _ := new(big.Int).SetString(z.STKNToSell, 10)
		before := r.balance(r.w.dep.TKN)
		if sold.Sign() > 0 {
			r.w.mine(1, r.swap(r.router, r.pool, r.of0, sold, lastTick(r.of0)))
		}
		bought := new(big.Int).Sub(r.balance(r.w.dep.TKN), before)
		r.deposited(in.lower, in.upper, new(big.Int).Sub(in.amount.ToBig(), sold), bought, z.MinLiquidity,
			fmt.Sprintf("%s of sTKN in [%d, %d), %s sold", in.amount.Dec(), in.lower, in.upper, sold))
		r.w.mine(3600) // the price that this left becomes the reference
	}
}

// TestMatchOnTheChain: what payAmount buys, deposited with the amount, is at least minLiquidity, and leaves less than a
// millionth.
func TestMatchOnTheChain(t *testing.T) {
	r := newReinvestor(t)
	for _, in := range reinvestments(r.pool.Tick, 15, 18, 21, 22) {
		var m matchBody
		r.w.get(fmt.Sprintf("/quote/reinvest?route=match&payAsset=%s&slippageBps=0&amount=%s&tickLower=%d&tickUpper=%d",
			r.w.dep.USDG.Hex(), in.amount.Dec(), in.lower, in.upper), &m)
		needed, _ := new(big.Int).SetString(m.TKNNeeded, 10)
		if needed.Sign() == 0 || len(m.Route.Hops) != 1 {
			t.Fatalf("%+v", m)
		}
		by := r.w.state().byID(common.HexToHash(m.Route.Hops[0].PoolID))
		zeroForOne := by.Currency0 == r.w.dep.USDG
		before := r.balance(r.w.dep.USDG)
		r.w.mine(1, r.swap(r.router, by, zeroForOne, new(big.Int).Neg(needed), lastTick(zeroForOne)))
		if paid := new(big.Int).Sub(before, r.balance(r.w.dep.USDG)).String(); paid != m.PayAmount {
			t.Errorf("%s of TKN cost %s, quoted %s", needed, paid, m.PayAmount)
		}
		r.deposited(in.lower, in.upper, in.amount.ToBig(), needed, m.MinLiquidity,
			fmt.Sprintf("%s of sTKN and %s of TKN in [%d, %d)", in.amount.Dec(), needed, in.lower, in.upper))
		r.w.mine(3600)
	}
}

// lastTick is as far as a price can go.
func lastTick(zeroForOne bool) int32 {
	if zeroForOne {
		return ammv4.MinTick + 1
	}
	return ammv4.MaxTick - 1
}

func pow10(n uint64) *uint256.Int { return new(uint256.Int).Exp(uint256.NewInt(10), uint256.NewInt(n)) }
