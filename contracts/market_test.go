package contracts

import (
	"bytes"
	"math/big"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/google/go-cmp/cmp"
	"github.com/holiman/uint256"
)

// The people of the tests.
var (
	owner = common.HexToAddress("0x00000000000000000000000000000000000a0001")
	alice = common.HexToAddress("0x00000000000000000000000000000000000a0002") // borrows
	bob   = common.HexToAddress("0x00000000000000000000000000000000000a0003") // lends
	carol = common.HexToAddress("0x00000000000000000000000000000000000a0004") // lends, too
	fees  = common.HexToAddress("0x00000000000000000000000000000000000a0005") // gets the fees
	seed  = common.HexToAddress("0x00000000000000000000000000000000000a0006") // provides the seed liquidity
)

const (
	day      = 24 * 60 * 60
	week     = 7 * day
	term7    = week
	term21   = 3 * week
	grace    = 2 * day
	feeBps   = 50
	hookFlag = 1 << 4 // an address that ends so has the right to a call after a donation, and no other
)

// poolKey is Uniswap's PoolKey.
type poolKey struct {
	Currency0, Currency1 common.Address
	Fee, TickSpacing     *big.Int
	Hooks                common.Address
}

func (k poolKey) id(t testing.TB) common.Hash {
	t.Helper()
	packed, err := abi.Arguments{{Type: newType(t, "address")}, {Type: newType(t, "address")}, {Type: newType(t, "uint24")}, {Type: newType(t, "int24")}, {Type: newType(t, "address")}}.
		Pack(k.Currency0, k.Currency1, k.Fee, k.TickSpacing, k.Hooks)
	if err != nil {
		t.Fatal(err)
	}
	return crypto.Keccak256Hash(packed)
}

func newType(t testing.TB, name string, components ...abi.ArgumentMarshaling) abi.Type {
	t.Helper()
	typ, err := abi.NewType(name, "", components)
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

// market is everything deployed on one EVM, with real Uniswap v4.
type market struct {
	*evm
	Deployment
	decoder           *Decoder
	stock, weth, swap common.Address
	wethPool          poolKey // WETH/USDG: its positions may be listed
	usdgPool          poolKey // USDG/TKN
	stknPool          poolKey // TKN/sTKN: the market's own
	hookedPool        poolKey
	dynamicPool       poolKey
}

// newMarket deploys the contracts with rich people, three pools with full-range liquidity, and no rewards yet.
func newMarket(t testing.TB) *market {
	t.Helper()
	uniswap := uniswapArtifacts(t)
	m := &market{evm: newEVM(t)}
	ours := func(name string, args ...any) common.Address {
		t.Helper()
		artifact, err := artifactOf(name)
		if err != nil {
			t.Fatal(err)
		}
		return m.deploy(t, owner, artifact, args...)
	}
	theirs := func(name string, args ...any) common.Address {
		t.Helper()
		return m.deploy(t, owner, uniswap[name], args...)
	}
	m.ChainID = testChainID
	m.USDG, m.TKN, m.weth = ours("USDG", owner), ours("TKN", owner), ours("WETH")
	m.STKN = ours("STKN", owner, m.TKN)
	m.stock = ours("StockToken", owner, "Apple", "AAPL")
	permit2 := theirs("Permit2")
	m.PoolManager = theirs("PoolManager", owner)
	m.PositionManager = theirs("PositionManager", m.PoolManager, permit2, 300_000, common.Address{}, m.weth)
	m.StateView, m.V4Quoter = theirs("StateView", m.PoolManager), theirs("V4Quoter", m.PoolManager)
	m.swap = theirs("PoolSwapTest", m.PoolManager)
	m.AssetRegistry = ours("AssetRegistry", owner, m.PositionManager)
	m.DealVault = ours("DealVault", owner, m.USDG, m.AssetRegistry, grace, feeBps, fees)
	m.must(t, owner, m.AssetRegistry, "setVault", m.DealVault)

	m.wethPool, m.usdgPool, m.stknPool = m.key(m.weth, m.USDG), m.key(m.USDG, m.TKN), m.key(m.TKN, m.STKN)
	m.hookedPool, m.dynamicPool = m.key(m.weth, m.USDG), m.key(m.weth, m.USDG)
	m.hookedPool.Hooks[19], m.dynamicPool.Hooks[19] = hookFlag, hookFlag
	m.dynamicPool.Fee = big.NewInt(0x800000)
	m.RewardDistributor = ours("RewardDistributor", owner, m.STKN)
	m.LiquidityStaking = m.deployHook(t, "LiquidityStaking", owner, m.PoolManager, m.PositionManager, m.stknPool, m.RewardDistributor, m.USDG, seed)
	m.stknPool.Hooks = m.LiquidityStaking
	m.PoolID = m.stknPool.id(t)
	m.EpochController = ours("EpochController", owner, m.DealVault, m.RewardDistributor, m.LiquidityStaking)
	m.Burner = ours("Burner", owner, m.PoolManager, m.DealVault, m.TKN, m.STKN, m.usdgPool, m.stknPool)
	m.must(t, owner, m.STKN, "setMinter", m.RewardDistributor, true)
	m.must(t, owner, m.RewardDistributor, "setSource", m.EpochController, true)
	m.must(t, owner, m.RewardDistributor, "setSource", m.LiquidityStaking, true)
	m.must(t, owner, m.LiquidityStaking, "setController", m.EpochController)
	m.decoder = NewDecoder(m.Deployment)
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}

	m.enrich(t)
	m.allow(t)
	for _, key := range []poolKey{m.wethPool, m.usdgPool, m.stknPool, m.hookedPool, m.dynamicPool} {
		m.must(t, owner, m.PoolManager, "initialize", key, new(big.Int).Lsh(big.NewInt(1), 96))
	}
	for _, key := range []poolKey{m.wethPool, m.usdgPool, m.stknPool} {
		m.mint(t, seed, key, -887_220, 887_220, 1e15)
	}
	return m
}

// deployHook is deploy at an address that the pool manager calls after swaps.
func (m *market) deployHook(t testing.TB, name string, args ...any) common.Address {
	t.Helper()
	artifact := mustArtifact(t, name)
	packed, err := artifact.ABI.Pack("", fitAll(t, artifact.ABI.Constructor.Inputs, args)...)
	if err != nil {
		t.Fatal(err)
	}
	_, maker, _, err := m.transact(owner, nil, Create2Maker, 0)
	if err != nil {
		t.Fatal(err)
	}
	code := append(bytes.Clone(artifact.Bytecode), packed...)
	at, salt := HookAddress(maker, code)
	if _, _, _, err := m.transact(owner, &maker, append(salt[:], code...), 0); err != nil {
		t.Fatal(err)
	}
	m.abis[at] = artifact.ABI
	return at
}

// enrich gives everybody of everything, and lets the contracts draw on it.
func (m *market) enrich(t testing.TB) {
	t.Helper()
	const plenty = 1e18
	for _, who := range []common.Address{alice, bob, carol, seed, owner} {
		for _, token := range []common.Address{m.USDG, m.TKN, m.stock} {
			m.must(t, owner, token, "mint", who, uint64(2*plenty))
		}
		m.endow(who, 2*plenty)
		if _, _, err := m.pay(t, who, m.weth, plenty, "deposit"); err != nil {
			t.Fatal(err)
		}
		m.must(t, who, m.TKN, "approve", m.STKN, uint64(plenty))
		m.must(t, who, m.STKN, "stake", uint64(plenty))
		spenders := []common.Address{m.DealVault, m.LiquidityStaking, m.Burner, m.swap}
		for _, spender := range spenders {
			for _, token := range []common.Address{m.USDG, m.TKN, m.STKN, m.stock, m.weth} {
				m.must(t, who, token, "approve", spender, uint256.NewInt(0).SetAllOne().ToBig())
			}
			m.must(t, who, m.PositionManager, "setApprovalForAll", spender, true)
		}
	}
}

// limits is the registry's Limits.
type limits struct {
	Allowed                           bool
	Kind                              Kind
	Lane                              Lane
	MinAmount, MaxDealRaw, MaxOpenRaw *big.Int
}

func (m *market) allow(t testing.TB) {
	t.Helper()
	m.must(t, owner, m.AssetRegistry, "setAsset", m.stock, limits{true, KindERC20, LaneStock, big.NewInt(10), big.NewInt(1000), big.NewInt(3000)})
	m.must(t, owner, m.AssetRegistry, "setAsset", m.weth, limits{true, KindERC20, LaneETH, big.NewInt(1), big.NewInt(1e9), big.NewInt(1e10)})
	m.must(t, owner, m.AssetRegistry, "setAsset", m.PositionManager, limits{true, KindPosition, LanePosition, big.NewInt(1), big.NewInt(1), big.NewInt(3)})
	for _, key := range []poolKey{m.wethPool, m.hookedPool, m.dynamicPool} {
		m.must(t, owner, m.AssetRegistry, "setPool", key.id(t), true, 1_000, 1_000_000)
	}
}

// key is the pool of two tokens with a fee of 0.3 %.
func (m *market) key(a, b common.Address) poolKey {
	if bytes.Compare(a[:], b[:]) > 0 {
		a, b = b, a
	}
	return poolKey{Currency0: a, Currency1: b, Fee: big.NewInt(3000), TickSpacing: big.NewInt(60)}
}

func (m *market) fork() *market {
	fork := *m
	fork.evm = m.evm.fork()
	return &fork
}

// mint makes a position, paid from the PositionManager's own balance so that Permit2 stays out of it.
func (m *market) mint(t testing.TB, who common.Address, key poolKey, lower, upper int64, liquidity uint64) *big.Int {
	t.Helper()
	tokenID := m.number(t, m.PositionManager, "nextTokenId")
	for _, token := range []common.Address{key.Currency0, key.Currency1} {
		m.must(t, who, token, "transfer", m.PositionManager, min(4*liquidity, 1e17))
	}
	keyType := newType(t, "tuple",
		abi.ArgumentMarshaling{Name: "currency0", Type: "address"}, abi.ArgumentMarshaling{Name: "currency1", Type: "address"},
		abi.ArgumentMarshaling{Name: "fee", Type: "uint24"}, abi.ArgumentMarshaling{Name: "tickSpacing", Type: "int24"},
		abi.ArgumentMarshaling{Name: "hooks", Type: "address"})
	arguments := func(types ...abi.Type) (a abi.Arguments) {
		for _, typ := range types {
			a = append(a, abi.Argument{Type: typ})
		}
		return a
	}
	pack := func(a abi.Arguments, values ...any) []byte {
		packed, err := a.Pack(fitAll(t, a, values)...)
		if err != nil {
			t.Fatal(err)
		}
		return packed
	}
	address, int24, whole, number, flag, raw := newType(t, "address"), newType(t, "int24"), newType(t, "uint256"), newType(t, "uint128"), newType(t, "bool"), newType(t, "bytes")
	params := [][]byte{
		pack(arguments(keyType, int24, int24, whole, number, number, address, raw),
			key, lower, upper, liquidity, uint64(1e18), uint64(1e18), who, []byte{}),
		pack(arguments(address, whole, flag), key.Currency0, 0, false),
		pack(arguments(address, whole, flag), key.Currency1, 0, false),
		pack(arguments(address, address), key.Currency0, who),
		pack(arguments(address, address), key.Currency1, who),
	}
	actions := []byte{0x02, 0x0b, 0x0b, 0x14, 0x14} // mint, settle twice, sweep twice
	unlock := pack(arguments(raw, newType(t, "bytes[]")), actions, params)
	m.must(t, who, m.PositionManager, "modifyLiquidities", unlock, m.now+1)
	return tokenID
}

// swapParams is Uniswap's SwapParams.
type swapParams struct {
	ZeroForOne        bool
	AmountSpecified   *big.Int
	SqrtPriceLimitX96 *big.Int
}

// trade sells an exact amount of one token of a pool for the other.
func (m *market) trade(t testing.TB, who common.Address, key poolKey, tokenIn common.Address, amount int64) error {
	t.Helper()
	zeroForOne := tokenIn == key.Currency0
	limit := new(big.Int).SetUint64(4295128739 + 1)
	if !zeroForOne {
		limit, _ = new(big.Int).SetString("1461446703485210103287273052203988822378723970341", 10)
	}
	type settings struct{ TakeClaims, SettleUsingBurn bool }
	_, _, err := m.call(t, who, m.swap, "swap", key, swapParams{zeroForOne, big.NewInt(-amount), limit}, settings{}, []byte{})
	return err
}

// must runs a transaction that has to succeed, and returns the events of ours in it.
func (m *market) must(t testing.TB, from, to common.Address, method string, args ...any) []Event {
	t.Helper()
	_, logs, err := m.call(t, from, to, method, args...)
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	return m.events(t, logs)
}

// events are the logs that mean something; one of our contracts' that does not is a fault but for its housekeeping.
func (m *market) events(t testing.TB, logs []*types.Log) []Event {
	t.Helper()
	if m.decoder == nil {
		return nil // still being deployed
	}
	var events []Event
	for _, l := range logs {
		event := m.decoder.Decode(l.Address, l.Topics, l.Data)
		if u, ok := event.(*Unknown); ok {
			if u.Reason != ReasonForeign && u.Reason != ReasonSignature {
				t.Fatalf("%+v: %+v", u, l)
			}
			continue
		}
		if _, of := event.(*TokenTransferred); of {
			continue // any token's, and none of ours
		}
		events = append(events, event)
	}
	return events
}

// refused runs a transaction that has to revert, with an error that begins so.
func (m *market) refused(t testing.TB, want string, from, to common.Address, method string, args ...any) {
	t.Helper()
	_, _, err := m.call(t, from, to, method, args...)
	if err == nil {
		t.Fatalf("%s was let through, want %s", method, want)
	}
	if !strings.HasPrefix(err.Error(), want) {
		t.Fatalf("%s: %v, want %s", method, err, want)
	}
}

// emitted compares the events of a transaction.
func emitted(t testing.TB, got []Event, want ...Event) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("events (-want +got):\n%s", diff)
	}
}

// The vault's structs, as its ABI has them.
type (
	dealTuple struct {
		Borrower          common.Address
		ListedAt          *big.Int
		Term              uint32
		Kind, State, Lane uint8
		FeeBps            uint16
		Token             common.Address
		ListingExpiry     *big.Int
		FundedAt          *big.Int
		AmountOrTokenId   *big.Int //nolint:revive // named as the ABI names it
		Cap, MinPrice     *big.Int
		Lender            common.Address
		Price, Fee        *big.Int
	}
	bidTuple struct {
		DealId           *big.Int //nolint:revive // named as the ABI names it
		Lender           common.Address
		Expiry, PlacedAt *big.Int
		State            uint8
		Price            *big.Int
		TermsHash        [32]byte
	}
)

func (m *market) deal(t testing.TB, id uint64) dealTuple {
	t.Helper()
	return viewInto[dealTuple](t, m.evm, m.DealVault, "deals", id)
}

func (m *market) terms(t testing.TB, id uint64) common.Hash {
	t.Helper()
	return common.Hash(m.view(t, m.DealVault, "termsHash", id).([32]byte))
}

// bidding is what names a bid: its number, the terms that it was made on, and its price.
func (m *market) bidding(t testing.TB, id uint64) []any {
	t.Helper()
	b := viewInto[bidTuple](t, m.evm, m.DealVault, "bids", id)
	return []any{id, b.TermsHash, b.Price}
}

// list lists 100 AAPL of alice's, for 7 days, cap 1100, asking 1000, open-ended.
func (m *market) list(t testing.TB) uint64 {
	t.Helper()
	id := m.number(t, m.DealVault, "nextDealId").Uint64()
	m.must(t, alice, m.DealVault, "list", KindERC20, m.stock, 100, 1100, 1000, term7, 0, m.view(t, m.DealVault, "feeBps"))
	return id
}

func (m *market) fund(t testing.TB, id uint64) {
	t.Helper()
	m.must(t, bob, m.DealVault, "fund", id, m.terms(t, id))
}

// bid is carol's, of 1050 for a day.
func (m *market) bid(t testing.TB, deal uint64) {
	t.Helper()
	m.must(t, carol, m.DealVault, "bid", deal, 1050, m.now+day, m.terms(t, deal))
}

func (m *market) credit(t testing.TB, account, asset common.Address) uint64 {
	t.Helper()
	return m.number(t, m.DealVault, "credits", account, asset).Uint64()
}

func u256(n uint64) uint256.Int { return *uint256.NewInt(n) }
