package valuation

import (
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/topics"
)

// TestTraded: what a pool trades with is what its liquidity over all prices holds, and that of ranges around its price as far
// as it is no more than nearer to it; a range out of the price, however much is in it, adds nothing.
func TestTraded(t *testing.T) {
	s := newStage(t)
	p := s.direct
	for _, token := range []common.Address{p.Currency0, p.Currency1} {
		wide0, wide1, err := ammv4.Amounts(&p.SqrtPriceX96, p.Tick, -887_220, 887_220, &p.amm.Liquidity)
		if err != nil {
			t.Fatal(err)
		}
		want := wide0.Uint64()
		if token == p.Currency1 {
			want = wide1.Uint64()
		}
		near := func(when string, want uint64) {
			t.Helper()
			if got := p.traded(token).Uint64(); got+3 < want || got > want {
				t.Errorf("%s it trades with %d, want %d", when, got, want)
			}
		}
		add := func(lower, upper int32, liquidity uint64) {
			s.add(t, p, &topics.PositionLiquidity{TickLower: lower, TickUpper: upper, Liquidity: *uint256.NewInt(liquidity)}, 0)
		}
		before := *p
		near("over all prices", want)
		add(60_000, 120_000, 1e18)
		add(-120_000, -60_000, 1e18)
		near("with much out of range", want)
		add(-60, 60, 1e18)
		near("with a range that the price soon leaves", want)
		in0, in1, err := ammv4.Amounts(&p.SqrtPriceX96, p.Tick, -6000, 6000, &before.amm.Liquidity)
		if err != nil {
			t.Fatal(err)
		}
		if token == p.Currency1 {
			in0 = in1
		}
		add(-6000, 6000, before.amm.Liquidity.Uint64())
		near("with as much in a range around its price", want+in0.Uint64())
		*p = before
	}
}
