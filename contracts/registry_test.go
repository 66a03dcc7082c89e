package contracts

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
)

func TestPositionAsCollateral(t *testing.T) {
	m := newMarket(t)
	tokenID := m.mint(t, alice, m.wethPool, -600, 600, 5_000)
	id := *uint256From(tokenID)
	terms := []any{KindPosition, m.PositionManager, tokenID, 1100, 1000, term7, 0, feeBps}
	events := m.must(t, alice, m.DealVault, "list", terms...)
	emitted(t, events,
		&PositionTransferred{From: alice, To: m.DealVault, TokenID: id},
		&OpenRawChanged{Token: m.PositionManager, OpenRaw: u256(1)},
		&DealListed{
			DealID: u256(1), Borrower: alice, Token: m.PositionManager, Kind: KindPosition, Lane: LanePosition, AmountOrTokenID: id,
			Cap: u256(1100), MinPrice: u256(1000), Term: term7, ListedAt: m.now, FeeBps: feeBps, TermsHash: m.terms(t, 1),
		})
	m.refused(t, "WRONG_FROM", bob, m.DealVault, "list", terms...) // it is the vault's now
	m.fund(t, 1)
	m.now += term7 + grace + 1
	emitted(t, m.must(t, bob, m.DealVault, "claim", 1, m.terms(t, 1)),
		&DealClaimed{DealID: u256(1), Lender: bob, Borrower: alice, At: m.now},
		&Credited{Account: bob, Asset: m.PositionManager, DealID: u256(1), Kind: BalanceNFT, AmountOrTokenID: id, Reason: CreditCollateralClaim},
		&OpenRawChanged{Token: m.PositionManager})
	if got := m.view(t, m.DealVault, "nftCredits", m.PositionManager, tokenID); got != bob {
		t.Errorf("the position is owed to %s", got)
	}
	m.refused(t, "NothingToWithdraw()", alice, m.DealVault, "withdrawNFT", m.PositionManager, tokenID, alice)
	m.refused(t, "InvalidRecipient(", bob, m.DealVault, "withdrawNFT", m.PositionManager, tokenID, m.DealVault)
	emitted(t, m.must(t, bob, m.DealVault, "withdrawNFT", m.PositionManager, tokenID, carol),
		&Withdrawn{Account: bob, Asset: m.PositionManager, To: carol, Kind: BalanceNFT, AmountOrTokenID: id},
		&PositionTransferred{From: m.DealVault, To: carol, TokenID: id})
	m.refused(t, "NothingToWithdraw()", bob, m.DealVault, "withdrawNFT", m.PositionManager, tokenID, bob)

	// A position that has been through a deal can go through another.
	m.must(t, carol, m.PositionManager, "approve", m.DealVault, tokenID)
	m.must(t, carol, m.DealVault, "list", terms...)
}

// TestPositionRefusals: what the registry reads of a position decides, not what its lister says.
func TestPositionRefusals(t *testing.T) {
	m := newMarket(t)
	pool := func(key poolKey) string { return key.id(t).Hex() }
	for _, test := range []struct {
		name      string
		key       poolKey
		liquidity uint64
		want      string
	}{
		{"pool that is not allowed", m.usdgPool, 5_000, "PoolNotAllowed(" + pool(m.usdgPool) + ")"},
		{"hooks", m.hookedPool, 5_000, "PoolHasHooks(" + pool(m.hookedPool) + ")"},
		{"dynamic fee", m.dynamicPool, 5_000, "PoolFeeDynamic(" + pool(m.dynamicPool) + ")"},
		{"too thin", m.wethPool, 999, "LiquidityOutOfRange(999)"},
		{"too thick", m.wethPool, 1_000_001, "LiquidityOutOfRange(1000001)"},
		{"thin enough", m.wethPool, 1_000, ""},
		{"thick enough", m.wethPool, 1_000_000, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := m.fork()
			tokenID := m.mint(t, alice, test.key, -600, 600, test.liquidity)
			args := []any{KindPosition, m.PositionManager, tokenID, 1100, 1000, term7, 0, feeBps}
			if test.want == "" {
				m.must(t, alice, m.DealVault, "list", args...)
				return
			}
			m.refused(t, test.want, alice, m.DealVault, "list", args...)
		})
	}
	t.Run("disallowed while open", func(t *testing.T) {
		m := m.fork()
		tokenID := m.mint(t, alice, m.wethPool, -600, 600, 5_000)
		m.must(t, alice, m.DealVault, "list", KindPosition, m.PositionManager, tokenID, 1100, 1000, term7, 0, feeBps)
		m.must(t, owner, m.AssetRegistry, "setPool", m.wethPool.id(t), false, 1, 1)
		m.must(t, alice, m.DealVault, "cancel", 1, m.terms(t, 1))
	})
}

func TestSetAsset(t *testing.T) {
	m := newMarket(t)
	tight := limits{true, KindERC20, LaneMeme, big.NewInt(5), big.NewInt(100), big.NewInt(150)}
	emitted(t, m.must(t, owner, m.AssetRegistry, "setAsset", m.stock, tight), &AssetSet{
		Token: m.stock, Kind: KindERC20, Lane: LaneMeme, Allowed: true, Decimals: 18,
		MinAmount: u256(5), MaxDealRaw: u256(100), MaxOpenRaw: u256(150), Symbol: "AAPL", TokenName: "Apple",
	})
	id := m.list(t)
	m.refused(t, "AmountOutOfRange()", alice, m.DealVault, "list", KindERC20, m.stock, 51, 1100, 1000, term7, 0, feeBps)

	// Neither lower limits nor a ban touch what is open.
	m.must(t, owner, m.AssetRegistry, "setAsset", m.stock, limits{false, KindERC20, LaneStock, big.NewInt(1), big.NewInt(2), big.NewInt(3)})
	m.refused(t, "AssetNotAllowed(", alice, m.DealVault, "list", KindERC20, m.stock, 2, 1100, 1000, term7, 0, feeBps)
	values, _, err := m.call(t, alice, m.AssetRegistry, "asset", m.stock)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(values); got != "[false 0 0 1 2 3 100]" {
		t.Errorf("asset %s", got)
	}
	m.must(t, alice, m.DealVault, "cancel", id, m.terms(t, id))

	events := m.must(t, owner, m.AssetRegistry, "setAsset", m.PositionManager, limits{true, KindPosition, LanePosition, big.NewInt(1), big.NewInt(1), big.NewInt(3)})
	if set := events[0].(*AssetSet); set.Decimals != 0 || set.Symbol != "UNI-V4-POSM" || set.Kind != KindPosition {
		t.Errorf("asset %+v", set)
	}
}

func TestRegistryRefusals(t *testing.T) {
	m := newMarket(t)
	one, two := big.NewInt(1), big.NewInt(2)
	long := m.deploy(t, owner, mustArtifact(t, "StockToken"), owner, strings.Repeat("n", maxStringBytes+1), "LONG")
	fits := m.deploy(t, owner, mustArtifact(t, "StockToken"), owner, strings.Repeat("n", maxStringBytes), "LONG")
	m.must(t, owner, m.AssetRegistry, "setAsset", fits, limits{true, KindERC20, LaneMeme, one, one, one})
	for _, test := range []struct {
		name   string
		from   common.Address
		method string
		args   []any
		want   string
	}{
		{"not the owner", alice, "setAsset", []any{m.weth, limits{true, KindERC20, LaneETH, one, one, one}}, "OwnableUnauthorizedAccount("},
		{"no minimum", owner, "setAsset", []any{m.weth, limits{true, KindERC20, LaneETH, new(big.Int), one, one}}, "InvalidAsset("},
		{"minimum above the deal's maximum", owner, "setAsset", []any{m.weth, limits{true, KindERC20, LaneETH, two, one, two}}, "InvalidAsset("},
		{"a deal above all deals", owner, "setAsset", []any{m.weth, limits{true, KindERC20, LaneETH, one, two, one}}, "InvalidAsset("},
		{"a token as positions", owner, "setAsset", []any{m.weth, limits{true, KindPosition, LanePosition, one, one, one}}, "InvalidAsset("},
		{"positions as a token", owner, "setAsset", []any{m.PositionManager, limits{true, KindERC20, LaneETH, one, one, one}}, "InvalidAsset("},
		{"positions in another lane", owner, "setAsset", []any{m.PositionManager, limits{true, KindPosition, LaneETH, one, one, one}}, "InvalidAsset("},
		{"a token in the positions' lane", owner, "setAsset", []any{m.weth, limits{true, KindERC20, LanePosition, one, one, one}}, "InvalidAsset("},
		{"a name without end", owner, "setAsset", []any{long, limits{true, KindERC20, LaneMeme, one, one, one}}, "InvalidAsset("},
		{"not the owner", alice, "setPool", []any{common.Hash{1}, true, 1, 2}, "OwnableUnauthorizedAccount("},
		{"empty positions", owner, "setPool", []any{common.Hash{1}, true, 0, 2}, "LiquidityOutOfRange(0)"},
		{"an empty range", owner, "setPool", []any{common.Hash{1}, true, 3, 2}, "LiquidityOutOfRange(3)"},
		{"not the owner", alice, "setVault", []any{alice}, "OwnableUnauthorizedAccount("},
		{"a second vault", owner, "setVault", []any{alice}, "NotVault()"},
		{"not the vault", alice, "onList", []any{KindERC20, m.stock, 100}, "NotVault()"},
		{"not the vault", alice, "onSettle", []any{KindERC20, m.stock, 0}, "NotVault()"},
	} {
		t.Run(test.method+" "+test.name, func(t *testing.T) {
			m.fork().refused(t, test.want, test.from, m.AssetRegistry, test.method, test.args...)
		})
	}
	emitted(t, m.must(t, owner, m.AssetRegistry, "setPool", common.Hash{1}, true, 2, 3),
		&PoolSet{PoolID: common.Hash{1}, Allowed: true, MinLiquidity: u256(2), MaxLiquidity: u256(3)})
	if allowed := m.view(t, m.AssetRegistry, "poolAllowed", common.Hash{1}); allowed != true {
		t.Error("the pool is not allowed")
	}
}
