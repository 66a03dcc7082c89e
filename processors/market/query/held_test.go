package query_test

import (
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
)

// TestHeld: the positions of some owners in a pool, as of a block that is no longer the latest.
func TestHeld(t *testing.T) {
	m := newMarketNode(t, deployment)
	burner, locker := common.Address{0xde}, common.Address{0x10}
	give := func(id uint64, to common.Address) contracts.Event {
		return &contracts.PositionTransferred{To: to, TokenID: *uint256.NewInt(id)}
	}
	m.mine(t, 1, initialize(t, tknPool, usdg, tkn, 0), initialize(t, thinPool, usdg, stock, 0),
		provide(tknPool, 1, -60, 60, 500), provide(tknPool, 2, -60, 60, 70), provide(tknPool, 3, -60, 60, 9), provide(thinPool, 4, -60, 60, 8),
		give(1, burner), give(2, locker), give(3, common.Address{1}), give(4, burner))
	first, err := m.router.Exchange(t.Context(), query.ExchangeQuery{})
	if err != nil {
		t.Fatal(err)
	}
	m.mine(t, 1, give(3, locker), provide(tknPool, 1, -60, 60, 100))
	held := func(owners ...common.Address) (sum uint64) {
		answer, err := m.router.Held(t.Context(), first.At, tknPool, owners)
		if err != nil || answer.At != first.At {
			t.Fatal(answer.At, err)
		}
		for _, p := range answer.Value {
			sum += p.Liquidity.Uint64()
		}
		return sum
	}
	if both, one, none := held(burner, locker), held(locker), held(common.Address{7}); both != 570 || one != 70 || none != 0 {
		t.Errorf("%d of both, %d of one, %d of nobody", both, one, none)
	}
	var many []contracts.Event
	for id := range uint64(query.MaxHeld) {
		many = append(many, give(1000+id, burner))
	}
	m.mine(t, 1, many...)
	last, err := m.router.Exchange(t.Context(), query.ExchangeQuery{})
	if err != nil {
		t.Fatal(err)
	}
	// Whoever sends dust to one keeps nothing else from being read: neither what was there before, nor what others have.
	answer, err := m.router.Held(t.Context(), last.At, tknPool, []common.Address{burner, locker})
	if err != nil {
		t.Fatal(err)
	}
	sum := uint64(0)
	for _, p := range answer.Value {
		sum += p.Liquidity.Uint64()
	}
	if sum != 679 {
		t.Errorf("%d held beside dust", sum)
	}
}
