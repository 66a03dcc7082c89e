package contracts

import (
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

// stakeTuple is LiquidityStaking's Stake.
type stakeTuple struct {
	Owner                           common.Address
	TickLower, TickUpper            *big.Int
	IsSeed                          bool
	Liquidity, Weight               *big.Int
	EmissionsPaidX128, FeesPaidX128 *big.Int
	EmissionsEarned, FeesEarned     *big.Int
}

func (m *market) stakeOf(t testing.TB, tokenID *big.Int) stakeTuple {
	t.Helper()
	return viewInto[stakeTuple](t, m.evm, m.LiquidityStaking, "stakes", tokenID)
}

func uint256From(n *big.Int) *uint256.Int { return uint256.MustFromBig(n) }

// withoutUniswap leaves out the events of the pool and the position manager.
func withoutUniswap(events []Event) (kept []Event) {
	for _, event := range events {
		switch event.(type) {
		case *Swapped, *LiquidityModified, *PoolInitialized, *PositionTransferred:
		default:
			kept = append(kept, event)
		}
	}
	return kept
}

func TestStaking(t *testing.T) {
	m := newMarket(t)
	m.openEpoch(t)
	staking := m.LiquidityStaking
	wide, narrow := m.mint(t, alice, m.stknPool, -6000, 6000, 1e9), m.mint(t, bob, m.stknPool, -60, 60, 3e9)
	emitted(t, withoutUniswap(m.must(t, alice, staking, "stake", wide)), &PositionStaked{
		PoolID: m.PoolID, TokenID: *uint256From(wide), Owner: alice, TickLower: -6000, TickUpper: 6000,
		Liquidity: u256(1e9), Weight: u256(1e9), TotalWeight: u256(1e9), InRange: true, At: m.now,
	})
	m.must(t, bob, staking, "stake", narrow)

	// 2000 sTKN over a week, to weights of 1 and 3; and 400 USDG of creator fees.
	m.must(t, owner, m.EpochController, "releaseLiquidity", 2_000)
	if rate := m.number(t, staking, "ratePerSecond").Uint64(); rate != 0 { // raw units: less than one a second, which flow all the same
		t.Fatalf("rate %d", rate)
	}
	emitted(t, m.must(t, carol, staking, "notifyCreatorFees", 400), &CreatorFeesNotified{
		PoolID: m.PoolID, From: carol, Amount: u256(400),
	})
	m.now += week
	events := m.must(t, alice, staking, "claim", wide)
	emitted(t, events,
		&PositionCheckpointed{
			PoolID: m.PoolID, TokenID: *uint256From(wide), Liquidity: u256(1e9), Weight: u256(1e9), TotalWeight: u256(4e9),
			InRange: true, EmissionsEarned: u256(499), CreatorFeeEarned: u256(99), At: m.now, // a quarter, rounded down
		},
		&CreatorFeeClaimed{PoolID: m.PoolID, TokenID: *uint256From(wide), Owner: alice, Amount: u256(99)},
		&DripCreated{Account: alice, DripID: u256(1), Source: DripLP, TokenID: *uint256From(wide), Epoch: 1, Total: u256(499), Start: m.now, Length: week, Cliff: m.now},
		&EmissionsClaimed{PoolID: m.PoolID, TokenID: *uint256From(wide), Owner: alice, Amount: u256(499), DripID: u256(1)})
	before := m.number(t, m.USDG, "balanceOf", alice)
	emitted(t, m.must(t, alice, staking, "withdrawFees", alice), &FeesWithdrawn{Staking: staking, Account: alice, To: alice, Amount: u256(99)})
	if after := m.number(t, m.USDG, "balanceOf", alice); after.Sub(after, before).Uint64() != 99 {
		t.Errorf("paid out %s", after)
	}
	m.refused(t, "NoFees()", alice, staking, "withdrawFees", alice)

	emitted(t, withoutUniswap(m.must(t, alice, staking, "unstake", wide)),
		&PositionCheckpointed{
			PoolID: m.PoolID, TokenID: *uint256From(wide), Liquidity: u256(1e9), Weight: u256(1e9), TotalWeight: u256(4e9),
			InRange: true, At: m.now,
		},
		&PositionUnstaked{PoolID: m.PoolID, TokenID: *uint256From(wide), Owner: alice, TotalWeight: u256(3e9), At: m.now})
	if got := m.view(t, m.PositionManager, "ownerOf", wide); got != alice {
		t.Errorf("the position is %s's", got)
	}
}

func TestEmissions(t *testing.T) {
	m := newMarket(t)
	m.must(t, owner, m.EpochController, "openEpoch", week*100, 0, 0, week*100)
	staking := m.LiquidityStaking
	wide, narrow := m.mint(t, alice, m.stknPool, -6000, 6000, 1e9), m.mint(t, bob, m.stknPool, -60, 60, 3e9)
	emitted(t, m.must(t, owner, m.EpochController, "releaseLiquidity", week*40)[1:],
		&EmissionsNotified{PoolID: m.PoolID, Epoch: 1, Amount: u256(week * 40), RatePerSecond: u256(40), PeriodFinish: m.now + week})
	m.now += 100 // nobody staked: 4000 are carried
	m.must(t, alice, staking, "stake", wide)
	m.must(t, bob, staking, "stake", narrow)
	if got := m.number(t, staking, "undistributed").Uint64(); got != 4_000 {
		t.Errorf("%d carried, want 4000", got)
	}
	m.now += 100 // 4000, to 1 and 3 parts
	earned := func(tokenID *big.Int) uint64 {
		t.Helper()
		events := m.must(t, carol, staking, "checkpoint", tokenID)
		return events[0].(*PositionCheckpointed).EmissionsEarned.Uint64()
	}
	if a, b := earned(wide), earned(narrow); a != 1_000-1 || b != 3_000-1 { // rounded down twice
		t.Errorf("earned %d and %d, want 999 and 2999", a, b)
	}

	// The price leaves the narrow range: from then on the wide one earns it all.
	if err := m.trade(t, carol, m.stknPool, m.STKN, 3e13); err != nil {
		t.Fatal(err)
	}
	events := m.must(t, carol, staking, "checkpoint", narrow)
	if c := events[0].(*PositionCheckpointed); c.InRange || c.Weight != u256(3e9) || c.TotalWeight != u256(4e9) {
		t.Errorf("out of range: %+v", c)
	}
	m.now += 100
	if a, b := earned(wide), earned(narrow); a != 4_999-1 || b != 2_999 {
		t.Errorf("earned %d and %d, want 4998 and 2999", a, b)
	}
	claimed := m.must(t, bob, staking, "claim", narrow)
	emitted(t, claimed[1:],
		&DripCreated{Account: bob, DripID: u256(1), Source: DripLP, TokenID: *uint256From(narrow), Epoch: 1, Total: u256(2_999), Start: m.now, Length: week, Cliff: m.now},
		&EmissionsClaimed{PoolID: m.PoolID, TokenID: *uint256From(narrow), Owner: bob, Amount: u256(2_999), DripID: u256(1)})

	// A second release takes up what is left of the first and what nobody earned.
	left := (week - 300) * 40
	events = m.must(t, owner, m.EpochController, "releaseLiquidity", 1_000)
	total := uint64(left + 4_000 + 1_000)
	if n := events[1].(*EmissionsNotified); n.RatePerSecond != u256(total/(week-300)) {
		t.Errorf("rate %s, want %d", &n.RatePerSecond, total/(week-300))
	}
	m.now += 2 * week // after the period nothing more is earned
	first := earned(wide)
	m.now += week
	if second := earned(wide); first != second {
		t.Errorf("earned %d after the period, %d at its end", second, first)
	}
}

func TestSeed(t *testing.T) {
	m := newMarket(t)
	tokenID := m.mint(t, seed, m.stknPool, -6000, 6000, 1e9)
	events := withoutUniswap(m.must(t, seed, m.LiquidityStaking, "stake", tokenID))
	if staked := events[0].(*PositionStaked); !staked.IsSeed || !staked.InRange || !staked.TotalWeight.IsZero() {
		t.Errorf("seed: %+v", staked)
	}
	m.refused(t, "SeedStays("+tokenID.String()+")", seed, m.LiquidityStaking, "unstake", tokenID)
}

func TestStakingRefusals(t *testing.T) {
	m := newMarket(t)
	staking := m.LiquidityStaking
	foreign := m.mint(t, alice, m.wethPool, -600, 600, 1e6)
	empty := m.fork()
	out := m.mint(t, alice, m.stknPool, 600, 1200, 1e6) // above the price
	m.must(t, alice, staking, "stake", out)
	mine := m.mint(t, alice, m.stknPool, -600, 600, 1e6)
	for _, test := range []struct {
		name   string
		from   common.Address
		method string
		args   []any
		want   string
	}{
		{"another pool's", alice, "stake", []any{foreign}, "WrongPool("},
		{"another's", bob, "stake", []any{mine}, "WRONG_FROM"},
		{"not staked", alice, "checkpoint", []any{mine}, "NotStaked("},
		{"not staked", alice, "claim", []any{mine}, "NotStaked("},
		{"another's", bob, "claim", []any{out}, "NotStakeOwner("},
		{"not staked", alice, "unstake", []any{mine}, "NotStaked("},
		{"another's", bob, "unstake", []any{out}, "NotStakeOwner("},
		{"no", alice, "notifyCreatorFees", []any{0}, "NoFees()"},
		{"too large", alice, "notifyCreatorFees", []any{new(big.Int).Lsh(big.NewInt(1), 128)}, "ERC20InsufficientBalance("},
		{"nothing", alice, "collectOwed", []any{out}, "NothingOwed("},
		{"not the pool manager", alice, "afterSwap", []any{alice, m.stknPool, swapParams{true, big.NewInt(1), big.NewInt(1)}, 0, []byte{}}, "NotPoolManager()"},
		{"nothing", alice, "withdrawFees", []any{alice}, "NoFees()"},
		{"not the controller", alice, "notifyEmissions", []any{1, 1, m.now + 1}, "NotController()"},
		{"past period", m.EpochController, "notifyEmissions", []any{1, 1, m.now}, "InvalidPeriod()"},
		{"not the owner", alice, "setController", []any{alice}, "OwnableUnauthorizedAccount("},
	} {
		t.Run(test.method+" "+test.name, func(t *testing.T) {
			m.fork().refused(t, test.want, test.from, staking, test.method, test.args...)
		})
	}

	empty.refused(t, "NoWeight()", alice, staking, "notifyCreatorFees", 1)
	artifact := mustArtifact(t, "LiquidityStaking")
	packed, err := artifact.ABI.Pack("", owner, m.PoolManager, m.PositionManager, m.wethPool, m.RewardDistributor, m.USDG, seed)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := m.transact(owner, nil, append(artifact.Bytecode, packed...), 0); err == nil || err.Error() != "NotHook()" {
		t.Errorf("staking at an address that is no hook's: %v", err)
	}
}

// TestUnstakeWhilePaused: a dollar that does not move keeps no position.
func TestUnstakeWhilePaused(t *testing.T) {
	m := newMarket(t)
	tokenID := m.mint(t, alice, m.stknPool, -600, 600, 1e6)
	m.must(t, alice, m.LiquidityStaking, "stake", tokenID)
	m.must(t, bob, m.LiquidityStaking, "notifyCreatorFees", 1_000)
	m.now += week
	m.must(t, owner, m.USDG, "pause")
	m.must(t, alice, m.LiquidityStaking, "unstake", tokenID)
	m.refused(t, "EnforcedPause()", alice, m.LiquidityStaking, "withdrawFees", alice)
	m.must(t, owner, m.USDG, "unpause")
	m.must(t, alice, m.LiquidityStaking, "withdrawFees", alice)
}

func TestBurn(t *testing.T) {
	m := newMarket(t)
	supply := m.number(t, m.STKN, "totalSupply")
	events := withoutUniswap(m.must(t, alice, m.Burner, "burn", 1_000_000_000, 1, 1))
	burned := events[0].(*Burned)
	after := m.number(t, m.STKN, "totalSupply")
	if destroyed := supply.Sub(supply, after); destroyed.Cmp(burned.STKNBurned.ToBig()) != 0 || destroyed.Sign() == 0 {
		t.Errorf("the supply fell by %s, the event says %s", destroyed, &burned.STKNBurned)
	}
	if burned.Caller != alice || burned.USDGSpent != u256(1e9) || burned.At != m.now || burned.TKNBought.Lt(&burned.STKNBurned) {
		t.Errorf("burned %+v", burned)
	}
	for _, token := range []common.Address{m.USDG, m.TKN, m.STKN} {
		if left := m.number(t, token, "balanceOf", m.Burner); left.Sign() != 0 {
			t.Errorf("the burner keeps %s of %s", left, token)
		}
	}

	// The market's fees, collected and burned by the owner.
	m.must(t, owner, m.DealVault, "setFee", 1000, m.Burner)
	m.fund(t, m.list(t))
	emitted(t, m.must(t, carol, m.Burner, "collect"),
		&Withdrawn{Account: m.Burner, Asset: m.USDG, To: m.Burner, AmountOrTokenID: u256(100)})
	m.refused(t, "OwnableUnauthorizedAccount(", alice, m.Burner, "burnFees", 100, 0, 0)
	events = withoutUniswap(m.must(t, owner, m.Burner, "burnFees", 100, 0, 0))
	if burned := events[0].(*Burned); burned.Caller != owner || burned.USDGSpent != u256(100) {
		t.Errorf("burned %+v", burned)
	}
}

func TestBurnerRefusals(t *testing.T) {
	m := newMarket(t)
	m.refused(t, "SlippageExceeded(", alice, m.Burner, "burn", 1_000_000_000, uint64(1e10), 1)
	m.refused(t, "SlippageExceeded(", alice, m.Burner, "burn", 1_000_000_000, 1, uint64(1e10))
	m.refused(t, "InvalidAmount()", alice, m.Burner, "burn", 0, 0, 0)
	m.refused(t, "ERC20InsufficientAllowance", fees, m.Burner, "burn", 1, 0, 0)
	m.refused(t, "NothingToWithdraw()", alice, m.Burner, "collect")
	m.refused(t, "NotPoolManager()", alice, m.Burner, "unlockCallback", []byte{})
	artifact := mustArtifact(t, "Burner")
	packed, err := artifact.ABI.Pack("", owner, m.PoolManager, m.DealVault, m.TKN, m.STKN, m.wethPool, m.stknPool)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := m.transact(owner, nil, append(artifact.Bytecode, packed...), 0); err == nil || err.Error() != "WrongPools()" {
		t.Errorf("a burner of other pools: %v", err)
	}
}
