package contracts

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
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

// hostileCode answers calls of a method by code of its own, and delegates all others to impl.
func hostileCode(impl common.Address, method string, answer []byte) []byte {
	code := common.FromHex("5f3560e01c63") // PUSH0 CALLDATALOAD PUSH1 0xe0 SHR PUSH4
	code = append(code, crypto.Keccak256([]byte(method))[:4]...)
	code = append(code, common.FromHex("14603557")...)            // EQ PUSH1 0x35 JUMPI
	code = append(code, common.FromHex("365f5f37"+"5f5f365f")...) // CALLDATASIZE PUSH0 PUSH0 CALLDATACOPY, output and input of the call
	code = append(code, 0x73)                                     // PUSH20
	code = append(code, impl[:]...)
	code = append(code, common.FromHex("5af4503d5f5f3e3d5ff3")...) // GAS DELEGATECALL POP, RETURNDATACOPY of all, RETURN
	code = append(code, 0x5b)                                      // JUMPDEST
	return append(code, answer...)
}

// TestTokenTurnsHostile: a registered token that does not say sanely any more what it is called is disallowed, and allowed with
// other limits, under the names of before. Nothing that it does costs the owner more than a bound. A new one is refused.
func TestTokenTurnsHostile(t *testing.T) {
	m := newMarket(t)
	one := big.NewInt(1)
	shut, tight := limits{false, KindERC20, LaneStock, one, one, one}, limits{true, KindERC20, LaneStock, one, big.NewInt(50), big.NewInt(2000)}
	told := AssetSet{Token: m.stock, Kind: KindERC20, Lane: LaneStock, Decimals: 18, Symbol: "AAPL", TokenName: "Apple"}
	hostile := func(t *testing.T, code []byte) {
		m, fresh := m.fork(), common.Address{0xf4}
		m.setCode(m.stock, code)
		m.setCode(fresh, code)
		m.must(t, alice, m.DealVault, "list", KindERC20, m.stock, 100, 1100, 1000, term7, 0, feeBps)
		m.gas = 500_000
		want := told
		want.Allowed, want.MinAmount, want.MaxDealRaw, want.MaxOpenRaw = true, u256(1), u256(50), u256(2000)
		emitted(t, m.must(t, owner, m.AssetRegistry, "setAsset", m.stock, tight), &want)
		want.Allowed, want.MaxDealRaw, want.MaxOpenRaw = false, u256(1), u256(1)
		emitted(t, m.must(t, owner, m.AssetRegistry, "setAsset", m.stock, shut), &want)
		for _, l := range []limits{shut, tight} {
			m.refused(t, "InvalidAsset("+fresh.Hex()+")", owner, m.AssetRegistry, "setAsset", fresh, l)
		}
		m.gas = 30_000_000
		m.refused(t, "AssetNotAllowed(", alice, m.DealVault, "list", KindERC20, m.stock, 1, 1100, 1000, term7, 0, feeBps)
		m.must(t, alice, m.DealVault, "cancel", 1, m.terms(t, 1)) // what is open ends as before
	}
	impl := common.Address{0xee, 1}
	m.setCode(impl, m.state.GetCode(m.stock))
	for name, answer := range map[string]string{
		"reverts":               "5f5ffd",
		"reverts with 64 KB":    "620100005ffd",
		"takes all gas":         "fe",
		"answers nothing":       "5f5ff3",
		"answers 64 KB":         "5f195f52620100005ff3", // of a first word that is all ones
		"answers 4 MB":          "5f195f52624000005ff3",
		"answers no such place": "5f195f5260405ff3",
		"answers no such end":   "6101005f525f19610100526101205ff3", // a length that is all ones
		"answers a long name":   "6101005f526081610100526102005ff3",
	} {
		for _, method := range []string{"name()", "symbol()", "decimals()"} {
			t.Run(method+" "+name, func(t *testing.T) { hostile(t, hostileCode(impl, method, common.FromHex(answer))) })
		}
	}

	// What it says of itself sanely is believed, the names of a token that is disallowed are those of before.
	m.setCode(m.stock, hostileCode(impl, "decimals()", common.FromHex("60075f5260205ff3")))
	if set := m.must(t, owner, m.AssetRegistry, "setAsset", m.stock, shut)[0].(*AssetSet); set.Decimals != 18 {
		t.Errorf("disallowed: %+v", set)
	}
	if set := m.must(t, owner, m.AssetRegistry, "setAsset", m.stock, tight)[0].(*AssetSet); set.Decimals != 7 || set.TokenName != "Apple" {
		t.Errorf("allowed: %+v", set)
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
