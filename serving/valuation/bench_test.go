package valuation

import (
	"fmt"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/topics"
)

// BenchmarkAnswers is the arithmetic of an answer whose block's state is there.
func BenchmarkAnswers(b *testing.B) {
	s := newStage(b)
	position := &topics.PositionLiquidity{PoolID: common.Hash{1}, TickLower: -6000, TickUpper: 6000, Liquidity: *uint256.NewInt(1e12)}
	deal := &topics.Deal{Token: meme, Term: 7 * 24 * 3600, AmountOrTokenID: *uint256.NewInt(1e12), Cap: *uint256.NewInt(1e9), MinPrice: *uint256.NewInt(1e9)}
	for name, run := range map[string]func() error{
		"value":    func() error { _, err := s.reference(second); return err },
		"token":    func() error { return fillFor(s, deal, nil) },
		"position": func() error { return fillFor(s, deal, position) },
		"range":    func() error { s.suggest(s.direct, deal.Term); return nil },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := run(); err != nil {
					b.Fatal(fmt.Errorf("%s: %w", name, err))
				}
			}
		})
	}
}

func fillFor(s *stage, deal *topics.Deal, position *topics.PositionLiquidity) error {
	var (
		held collateral
		err  error
	)
	if position != nil {
		held, err = s.pledgedPosition(position)
	} else {
		held, err = s.pledgedToken(deal)
	}
	if err != nil {
		return err
	}
	return new(dealBody).fill(s.state, deal, held)
}

// BenchmarkPools is what all pools of a block cost together, of tokens that two hops price: it grows as they do.
func BenchmarkPools(b *testing.B) {
	for _, n := range []int{1000, 2000} {
		s := newStage(b)
		for i := range n {
			p := *s.pair
			p.ID = common.Hash{0x80, byte(i >> 8), byte(i)}
			p.Currency0, p.Currency1 = meme, common.Address{0x90, byte(i >> 8), byte(i)}
			s.pools = append(s.pools, &p)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				s.pairs = pairsOf(s.pools)
				s.settle()
			}
		})
	}
}
