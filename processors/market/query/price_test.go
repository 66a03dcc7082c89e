package query

import (
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/topics"
)

func TestPriceAsText(t *testing.T) {
	for _, c := range []struct {
		num, den int64
		want     string
	}{
		{0, 5, "0"},
		{6, 3, "2"},
		{1, 8, "0.125"},
		{1, 3, "0.333333333333333333"},
		{2, 3, "0.666666666666666666"},
		{10_000_000_001, 10_000_000_000, "1.0000000001"},
		{1, 1_000_000_000_000_000_000, "0.000000000000000001"},
	} {
		if got := newPrice(big.NewInt(c.num), big.NewInt(c.den)).String(); got != c.want {
			t.Errorf("%d/%d is %s, want %s", c.num, c.den, got, c.want)
		}
	}
	tiny := newPrice(big.NewInt(1), pow10(19))
	if got := tiny.String(); got != "0" {
		t.Errorf("beyond 18 digits: %s", got)
	}
	if got := newPrice(big.NewInt(6), big.NewInt(4)); got.Num.Int64() != 3 || got.Den.Int64() != 2 {
		t.Errorf("%s/%s, want lowest terms", got.Num, got.Den)
	}
}

// A token is worth what its deepest pool says, and through another token only where it has none with USDG.
func TestPriceBook(t *testing.T) {
	one := new(uint256.Int).Lsh(uint256.NewInt(1), 96)
	usdg, a, b, c := common.Address{1}, common.Address{2}, common.Address{3}, common.Address{4}
	pool := func(id byte, x, y common.Address, root, liquidity uint64) read.Item {
		p := topics.Pool{
			ID: common.Hash{id}, Initialized: true, Currency0: x, Currency1: y, Liquidity: *uint256.NewInt(liquidity),
			SqrtPriceX96: *new(uint256.Int).Mul(one, uint256.NewInt(root)), Limits: &topics.PoolLimits{Allowed: id != 9},
		}
		if id == 8 {
			p.Hooks = common.Address{7}
		}
		row, err := p.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		return read.Item{Key: p.ID[:], Row: row}
	}
	book, err := newPriceBook([]read.Item{
		pool(1, usdg, a, 2, 1_000), // 4 a per USDG, 500 USDG deep
		pool(2, usdg, a, 3, 1_200), // 9 a per USDG, 400 deep
		pool(3, a, b, 5, 1_000),    // 25 b per a
		pool(4, a, b, 6, 0),        // nothing in it
		pool(8, usdg, b, 1, 1_000), // hooks
		pool(9, usdg, c, 1, 1_000), // not allowed
	}, &market{USDG: usdg})
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[common.Address]string{usdg: "1", a: "0.25", b: "0.01"} {
		if price, ok := book.price(token); !ok || price.String() != want {
			t.Errorf("%s: %s, want %s", token, price, want)
		}
	}
	if _, ok := book.price(c); ok {
		t.Error("a price by a pool that the registry does not allow")
	}
}
