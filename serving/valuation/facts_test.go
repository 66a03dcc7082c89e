package valuation

import (
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/contracts/ammv4"
)

// registered are the registry's limits of an asset.
type registered struct {
	Allowed                           bool
	Kind, Lane                        uint8
	MinAmount, MaxDealRaw, MaxOpenRaw *big.Int
}

// listMeme creates a meme token that keeps a part of what is sold, opens its pool against USDG with liquidity at a price
// of one to one, and has the registry allow both.
func (w *world) listMeme(by *actor) (token common.Address, id common.Hash) {
	w.t.Helper()
	much := new(big.Int).Lsh(big.NewInt(1), 100)
	token, created := by.create("TrapToken", by.address, w.dep.PoolManager, much)
	p := &pool{}
	p.Currency0, p.Currency1, p.Fee, p.TickSpacing = w.dep.USDG, token, 3000, 60
	if token.Cmp(w.dep.USDG) < 0 {
		p.Currency0, p.Currency1 = token, w.dep.USDG
	}
	at, err := ammv4.SqrtPriceAtTick(0)
	if err != nil {
		w.t.Fatal(err)
	}
	registry := own(w.t, "AssetRegistry")
	w.mine(60, created, by.call(w.dep.PoolManager, w.uniswap["PoolManager"].ABI, "initialize", keyOf(p), at.ToBig()))
	id = idOf(w.t, p)
	txs := append(by.approve(token, by.address),
		by.call(w.dep.AssetRegistry, registry, "setAsset", token, registered{
			Allowed: true, Lane: uint8(contracts.LaneMeme), MinAmount: big.NewInt(1), MaxDealRaw: much, MaxOpenRaw: much,
		}),
		by.call(w.dep.AssetRegistry, registry, "setPool", id, true, big.NewInt(1), much),
		by.mint(p, -887_220, 887_220, big.NewInt(1e13), much, much))
	w.mine(60, txs...)
	w.mine(1800)
	return token, id
}

// TestBoughtAndSold: a token is sellable while what was bought can be sold again for nearly its price, by the real
// contracts.
func TestBoughtAndSold(t *testing.T) {
	w := newWorld(t)
	by := w.deployer()
	token, _ := w.listMeme(by)
	for _, test := range []struct {
		keptBps int64
		want    bool
	}{{0, true}, {900, true}, {1100, false}, {10_000, false}, {20_000, false}} {
		w.mine(1, by.call(token, own(t, "TrapToken"), "keep", big.NewInt(test.keptBps)))
		var b factsBody
		w.get("/assets/"+token.Hex()+"/facts", &b)
		if b.Checks == nil || b.Checks.Sellable == nil || *b.Checks.Sellable != test.want {
			t.Errorf("a token that keeps %d bps of what is sold: %+v", test.keptBps, b.Checks)
		}
	}
}
