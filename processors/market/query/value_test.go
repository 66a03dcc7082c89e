package query

import (
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/topics"
)

var dollar, stone, gem = common.Address{9}, common.Address{1}, common.Address{2}

func allowedPool(id byte, currency0, currency1 common.Address, tick int32, liquidity *uint256.Int) topics.Pool {
	price, err := ammv4.SqrtPriceAtTick(tick)
	if err != nil {
		panic(err)
	}
	return topics.Pool{
		ID: common.Hash{id}, Initialized: true, Limits: &topics.PoolLimits{Allowed: true}, Currency0: currency0, Currency1: currency1,
		SqrtPriceX96: *price, Tick: tick, Liquidity: *liquidity,
	}
}

// A token that is worth more than 256 bits hold is without a price, in all lanes, and so is one whose value would have the sum
// exceed them. The others are valued as ever.
func TestValueBeyondAWord(t *testing.T) {
	top := int32(879_960)
	huge := new(uint256.Int).SetAllOne()
	book := bookOf([]topics.Pool{
		allowedPool(1, stone, dollar, 0, uint256.NewInt(1e18)),
		allowedPool(2, gem, dollar, top, uint256.NewInt(1)),
	}, &market{USDG: dollar})
	one := uint256.NewInt(1)
	for name, c := range map[string]struct {
		amounts  map[assetKey]*uint256.Int
		sum      *uint256.Int
		unpriced []common.Address
	}{
		"one value": {
			map[assetKey]*uint256.Int{{gem, contracts.LaneMeme}: huge, {gem, contracts.LanePosition}: one, {stone, contracts.LaneMeme}: uint256.NewInt(7)},
			uint256.NewInt(7),
			[]common.Address{gem},
		},
		"the sum": {
			map[assetKey]*uint256.Int{{stone, contracts.LaneMeme}: uint256.NewInt(7), {dollar, contracts.LaneMeme}: huge},
			uint256.NewInt(7),
			[]common.Address{dollar},
		},
		"the sum of a token": {
			map[assetKey]*uint256.Int{{stone, contracts.LaneMeme}: huge, {stone, contracts.LanePosition}: one, {dollar, contracts.LaneMeme}: one},
			one,
			[]common.Address{stone},
		},
		"just within": {
			map[assetKey]*uint256.Int{{stone, contracts.LaneMeme}: new(uint256.Int).Sub(huge, one), {dollar, contracts.LaneMeme}: one},
			huge,
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tvl := valueOf(c.amounts, book)
			if tvl.USDG != *c.sum || !cmp.Equal(tvl.Unpriced, c.unpriced) {
				t.Errorf("%s, unpriced %v; want %s, %v", tvl.USDG.Dec(), tvl.Unpriced, c.sum.Dec(), c.unpriced)
			}
			lines, lanes := new(big.Int), new(big.Int)
			for _, a := range tvl.ByAsset {
				if a.USDG != nil {
					lines.Add(lines, a.USDG.ToBig())
				}
				if named := cmp.Equal(c.unpriced, []common.Address{a.Token}); named != (a.USDG == nil) {
					t.Errorf("%s: unpriced %t, has a value %t", a.Token, named, a.USDG != nil)
				}
			}
			for i := range tvl.ByLane {
				lanes.Add(lanes, tvl.ByLane[i].ToBig())
			}
			if want := c.sum.ToBig(); lines.Cmp(want) != 0 || lanes.Cmp(want) != 0 {
				t.Errorf("the sum of the values is %s, of the lanes %s, want %s", lines, lanes, want)
			}
		})
	}
}
