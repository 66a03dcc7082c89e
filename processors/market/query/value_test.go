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

// A pool in which there is next to nothing sets no price, wherever its price was moved, and one that claims much at a price
// far from that of others sets none either: what it is worth is then not known. In whatever order the pools come.
func TestNobodySetsAPriceForNothing(t *testing.T) {
	const top, bottom = 879_960, -879_960
	whole, one := uint256.NewInt(1e18), uint256.NewInt(1)
	much := new(uint256.Int).Mul(whole, uint256.NewInt(1e8))
	deep := allowedPool(5, stone, dollar, 0, whole)
	for name, c := range map[string]struct {
		pools []topics.Pool
		want  string // of a whole stone; empty: unpriced
		gems  string
	}{
		"alone":                     {[]topics.Pool{deep}, "1000000000000000000", ""},
		"one unit at the top":       {[]topics.Pool{deep, allowedPool(2, stone, dollar, top, one)}, "1000000000000000000", ""},
		"one unit at the bottom":    {[]topics.Pool{deep, allowedPool(2, stone, dollar, bottom, one)}, "1000000000000000000", ""},
		"one unit, turned":          {[]topics.Pool{allowedPool(5, dollar, stone, 0, whole), allowedPool(2, dollar, stone, bottom, one)}, "1000000000000000000", ""},
		"much at the top":           {[]topics.Pool{deep, allowedPool(2, stone, dollar, top/2, much)}, "", ""},
		"much at the bottom":        {[]topics.Pool{deep, allowedPool(2, stone, dollar, -top/2, much)}, "", ""},
		"a shallow one beside":      {[]topics.Pool{deep, allowedPool(2, stone, dollar, 300, uint256.NewInt(1e17))}, "1000000000000000000", ""},
		"a deeper one beside":       {[]topics.Pool{deep, allowedPool(2, stone, dollar, 6932, uint256.NewInt(3e18))}, "2000000000000000000", ""},
		"through a contested token": {[]topics.Pool{deep, allowedPool(2, stone, dollar, top/2, much), allowedPool(3, gem, stone, 0, whole), allowedPool(4, gem, common.Address{3}, 0, whole), allowedPool(6, common.Address{3}, dollar, 0, whole)}, "", ""},
		"one unit at the second hop": {
			[]topics.Pool{deep, allowedPool(3, gem, stone, 0, whole), allowedPool(4, gem, stone, top, one)}, "1000000000000000000", "1000000000000000000",
		},
		"much at the second hop": {
			[]topics.Pool{deep, allowedPool(3, gem, stone, 0, whole), allowedPool(4, gem, stone, top/2, much)}, "1000000000000000000", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range len(c.pools) {
				c.pools = append(c.pools[1:], c.pools[0])
				tvl := valueOf(map[assetKey]*uint256.Int{{stone, contracts.LaneMeme}: whole, {gem, contracts.LaneMeme}: whole}, bookOf(append([]topics.Pool{}, c.pools...), &market{USDG: dollar}))
				for i, want := range []string{c.want, c.gems} {
					got := ""
					if v := tvl.ByAsset[i].USDG; v != nil {
						got = v.Dec()
					}
					if len(got) != len(want) || len(got) > 0 && got[:3] != want[:3] {
						t.Errorf("%s is worth %q, want %q", tvl.ByAsset[i].Token, got, want)
					}
				}
			}
		})
	}
}
