package valuation

import (
	"iter"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
)

// nearTicks is how far liquidity has to reach to either side of the price to be traded with: as far as depth is
// measured.
const nearTicks = 200

// traded is an upper bound of what the liquidity around the pool's price holds of one of its currencies. Liquidity
// farther away is not traded with, and anyone can place it there: so at each tick at most as much counts as at any tick
// between it and the price.
func (p *pool) traded(token common.Address) *uint256.Int {
	least := p.amm.Liquidity
	for _, up := range []bool{false, true} {
		for tick, behind := range p.outward(up) {
			if abs(tick-p.Tick) > nearTicks {
				break
			}
			if behind.Lt(&least) {
				least = *behind
			}
		}
	}
	sum, up, from := new(uint256.Int), token == p.Currency0, &p.SqrtPriceX96
	for tick, behind := range p.outward(up) {
		root, err := ammv4.SqrtPriceAtTick(tick)
		if err != nil || least.IsZero() {
			break
		}
		amount := ammv4.Amount1
		if up {
			amount = ammv4.Amount0
		}
		part, err := amount(from, root, &least, false)
		if err != nil {
			break
		}
		sum.Add(sum, part)
		if from = root; behind.Lt(&least) {
			least = *behind
		}
	}
	return sum
}

// outward are the ticks to one side of the price, the nearest first, and the liquidity behind each.
func (p *pool) outward(up bool) iter.Seq2[int32, *uint256.Int] {
	ticks := p.amm.Ticks
	next, _ := slices.BinarySearchFunc(ticks, p.Tick+1, func(t ammv4.Tick, tick int32) int { return int(t.Index) - int(tick) })
	return func(yield func(int32, *uint256.Int) bool) {
		behind := p.amm.Liquidity
		if up {
			for i := next; i < len(ticks); i++ {
				if behind.Add(&behind, &ticks[i].Net); !yield(ticks[i].Index, &behind) {
					return
				}
			}
			return
		}
		for i := next - 1; i >= 0; i-- {
			if behind.Sub(&behind, &ticks[i].Net); !yield(ticks[i].Index, &behind) {
				return
			}
		}
	}
}
