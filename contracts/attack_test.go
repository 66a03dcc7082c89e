package contracts

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/ethereum/go-ethereum/common"
)

// sandwich swaps the price out of every narrow range, has every position checkpointed there, and swaps back, all at one
// time: what a flash loan pays for.
func (m *market) sandwich(t testing.TB, who common.Address, positions ...*big.Int) {
	t.Helper()
	before := m.number(t, m.TKN, "balanceOf", who)
	if err := m.trade(t, who, m.stknPool, m.STKN, 3e13); err != nil {
		t.Fatal(err)
	}
	for _, id := range positions {
		m.must(t, who, m.LiquidityStaking, "checkpoint", id)
	}
	got := m.number(t, m.TKN, "balanceOf", who)
	if err := m.trade(t, who, m.stknPool, m.TKN, got.Sub(got, before).Int64()); err != nil {
		t.Fatal(err)
	}
}

// TestPriceMovedForAMoment: nobody takes a rival's emissions by moving the price away for the length of a transaction.
func TestPriceMovedForAMoment(t *testing.T) {
	m := newMarket(t)
	m.must(t, owner, m.EpochController, "openEpoch", week*100, 0, 0, week*100)
	victim := m.mint(t, alice, m.stknPool, -60, 60, 3e9)
	rival := m.mint(t, carol, m.stknPool, -6000, 6000, 1e9)
	m.must(t, owner, m.EpochController, "releaseLiquidity", week*40)
	m.must(t, alice, m.LiquidityStaking, "stake", victim)
	m.must(t, carol, m.LiquidityStaking, "stake", rival)
	m.sandwich(t, carol, victim)
	m.now += week / 2
	m.sandwich(t, carol, victim)
	m.must(t, carol, m.LiquidityStaking, "checkpoint", rival)
	if a, b := m.stakeOf(t, victim).EmissionsEarned.Uint64(), m.stakeOf(t, rival).EmissionsEarned.Uint64(); a != week/2*30-1 || b != week/2*10-1 {
		t.Errorf("the victim earned %d, the rival %d: want three parts and one of %d", a, b, week/2*40)
	}
}

// TestJustInTimePosition: who stakes for the moment in which creator fees come gets none of them.
func TestJustInTimePosition(t *testing.T) {
	m := newMarket(t)
	staking := m.LiquidityStaking
	loyal := m.mint(t, alice, m.stknPool, -6000, 6000, 1e9)
	m.must(t, alice, staking, "stake", loyal)
	m.now += week
	guest := m.mint(t, bob, m.stknPool, -60, 60, 99e9)
	m.must(t, bob, staking, "stake", guest)
	m.must(t, carol, staking, "notifyCreatorFees", 1_000_000)
	m.must(t, bob, staking, "unstake", guest)
	m.now += week
	m.must(t, alice, staking, "checkpoint", loyal)
	if a, b := m.stakeOf(t, loyal).FeesEarned.Uint64(), m.number(t, staking, "feeCredits", bob).Uint64(); a != 999_999 || b != 0 {
		t.Errorf("who stayed got %d, who came for a moment %d of a million", a, b)
	}
}

// TestKeptFees: fees that flowed while nobody was in range go on as slowly as any. Who comes for the last seconds before the
// stream's end, and gives a unit so that it goes on, gets what flows in these seconds.
func TestKeptFees(t *testing.T) {
	m := newMarket(t)
	staking := m.LiquidityStaking
	loyal := m.mint(t, alice, m.stknPool, -60, 60, 1e9)
	m.must(t, alice, staking, "stake", loyal)
	const given = 1_000_000_000
	m.must(t, carol, staking, "notifyCreatorFees", given)
	before := m.number(t, m.TKN, "balanceOf", carol)
	if err := m.trade(t, carol, m.stknPool, m.STKN, 3e13); err != nil { // the price leaves the range
		t.Fatal(err)
	}
	m.now += week - 2
	got := m.number(t, m.TKN, "balanceOf", carol)
	if err := m.trade(t, carol, m.stknPool, m.TKN, got.Sub(got, before).Int64()); err != nil { // and comes back
		t.Fatal(err)
	}

	guest := m.mint(t, bob, m.stknPool, -60, 60, 99e9)
	m.must(t, bob, staking, "stake", guest)
	m.must(t, bob, staking, "notifyCreatorFees", 1)
	m.now += 3
	m.must(t, bob, staking, "unstake", guest)
	if b := m.number(t, staking, "feeCredits", bob).Uint64(); b == 0 || b > 3*given/week {
		t.Errorf("who came for three seconds got %d, in which %d flow", b, 3*given/week)
	}
	m.now += week
	m.must(t, alice, staking, "checkpoint", loyal)
	if a := m.stakeOf(t, loyal).FeesEarned.Uint64(); a < given-given/1000 {
		t.Errorf("who stayed got %d of %d", a, given)
	}
}

// TestRewardOfAFlashLoan: a price is what two parties say, and both may be one, with money that was lent for the length of
// a transaction. A deal that is funded and bought back at once earns nothing, keeps no reward from others, and costs its fee.
func TestRewardOfAFlashLoan(t *testing.T) {
	m := newMarket(t)
	m.openEpoch(t)
	const price = 90_000 // more than all of the budget
	m.must(t, alice, m.DealVault, "list", KindERC20, m.stock, 100, price+5_000, price, term7, 0, feeBps)
	terms := m.terms(t, 1)
	events := rewards(m.must(t, bob, m.DealVault, "fund", 1, terms))
	if got := events[0].(*EpochReserved); !got.BudgetExhausted || got.Granted != u256(5_000) {
		t.Fatalf("granted %s of 5000", &got.Granted)
	}
	events = rewards(m.must(t, alice, m.DealVault, "reclaim", 1, m.terms(t, 1)))
	emitted(t, events[len(events)-1:], &EpochReturned{N: 1, Term: term7, Amount: u256(5_000)})
	m.now += week
	for drip, account := range map[int64]common.Address{1: bob, 2: alice} {
		m.refused(t, "NothingToClaim(", account, m.RewardDistributor, "claim", []*big.Int{big.NewInt(drip)}, account)
	}
	if fee, want := m.credit(t, fees, m.USDG), uint64(price*feeBps/10_000); fee != want {
		t.Errorf("the fee was %d, want %d", fee, want)
	}
}

// TestRewardOfAWashDeal: one person is both parties of a deal, and has his money back in the second in which it is funded. Nothing is
// bought back, so the reward stays. It costs the fee: where the rate is no more than that, he gains nothing.
func TestRewardOfAWashDeal(t *testing.T) {
	const price, budget = 50_000, 5_000
	stknUSDG := new(big.Int).Exp(big.NewInt(10), big.NewInt(30), nil) // one raw USDG a raw sTKN
	for _, test := range []struct {
		name       string
		rate       uint64
		paid, gets uint64
	}{
		{"a rate of twenty fees", 1e17, 250, budget},
		{"a rate of the fee", 5e15, 250, 250},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMarket(t)
			m.openEpoch(t)
			m.must(t, owner, m.EpochController, "setRates", test.rate, test.rate, stknUSDG, 6_000)
			had := func(token common.Address) *big.Int {
				return new(big.Int).Add(m.number(t, token, "balanceOf", alice), m.number(t, token, "balanceOf", bob))
			}
			dollars, stkn, stock := had(m.USDG), had(m.STKN), had(m.stock)
			m.must(t, alice, m.DealVault, "list", KindERC20, m.stock, 100, price, price, term7, 0, feeBps)
			m.must(t, bob, m.DealVault, "fund", 1, m.terms(t, 1))
			m.must(t, alice, m.DealVault, "withdraw", m.USDG, bob, m.credit(t, alice, m.USDG))
			if paid := dollars.Sub(dollars, had(m.USDG)).Uint64(); paid != test.paid {
				t.Errorf("at the same second the two have %d USDG less, want %d", paid, test.paid)
			}
			m.now += term7 + grace + 1
			m.must(t, bob, m.DealVault, "claim", 1, m.terms(t, 1))
			m.must(t, bob, m.DealVault, "withdraw", m.stock, bob, m.credit(t, bob, m.stock))
			m.must(t, bob, m.RewardDistributor, "claim", []*big.Int{big.NewInt(1)}, bob)
			m.must(t, alice, m.RewardDistributor, "claim", []*big.Int{big.NewInt(2)}, alice)
			if got := stkn.Sub(had(m.STKN), stkn).Uint64(); got != test.gets || had(m.stock).Cmp(stock) != 0 {
				t.Errorf("a term later they have %d sTKN more, want %d, and %s of the collateral, before %s", got, test.gets, had(m.stock), stock)
			}
		})
	}
}

// TestTinyGifts: gifts of next to nothing do not hold back what flows.
func TestTinyGifts(t *testing.T) {
	m := newMarket(t)
	loyal := m.mint(t, alice, m.stknPool, -6000, 6000, 1e9)
	m.must(t, alice, m.LiquidityStaking, "stake", loyal)
	m.must(t, carol, m.LiquidityStaking, "notifyCreatorFees", 1_000_000)
	for range 50 {
		m.now += week / 50
		m.must(t, bob, m.LiquidityStaking, "notifyCreatorFees", 1)
	}
	m.must(t, alice, m.LiquidityStaking, "checkpoint", loyal)
	if got := m.stakeOf(t, loyal).FeesEarned.Uint64(); got < 990_000 {
		t.Errorf("%d of a million after a week", got)
	}
}

// staked is a market in which alice's position, of this width to each side, is the only stake, and earns.
func staked(t *testing.T, ticks int64) (m *market, staking common.Address, id *big.Int) {
	t.Helper()
	m = newMarket(t)
	m.must(t, owner, m.EpochController, "openEpoch", week*100, 0, 0, week*100)
	m.must(t, owner, m.EpochController, "releaseLiquidity", week*40)
	staking, id = m.LiquidityStaking, m.mint(t, alice, m.stknPool, -ticks, ticks, 1e9)
	m.must(t, alice, staking, "stake", id)
	return m, staking, id
}

// TestUnstakeWithoutDistributor: a distributor that makes no drips keeps no position, and loses nobody's emissions.
func TestUnstakeWithoutDistributor(t *testing.T) {
	m, staking, id := staked(t, 60)
	m.now += 100
	for name, broken := range map[string]func(*market){
		"refuses": func(m *market) { m.must(t, owner, m.RewardDistributor, "setSource", staking, false) },
		"burns all gas": func(m *market) {
			m.setCode(m.RewardDistributor, common.FromHex("5b600056"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			fork := m.fork()
			code := fork.state.GetCode(m.RewardDistributor)
			broken(fork)
			events := withoutUniswap(fork.must(t, alice, staking, "unstake", id))
			emitted(t, events[1:],
				&EmissionsOwed{Staking: staking, Account: alice, TokenID: *uint256From(id), Owed: u256(3_999)},
				&PositionUnstaked{PoolID: m.PoolID, TokenID: *uint256From(id), Owner: alice, At: m.now})
			if got := fork.view(t, m.PositionManager, "ownerOf", id); got != alice {
				t.Fatalf("the position is %s's", got)
			}
			fork.setCode(m.RewardDistributor, code)
			fork.must(t, owner, m.RewardDistributor, "setSource", staking, true)
			emitted(t, fork.must(t, alice, staking, "collectOwed", id),
				&DripCreated{Account: alice, DripID: u256(1), Source: DripLP, TokenID: *uint256From(id), Epoch: 1, Total: u256(3_999), Start: m.now, Length: week, Cliff: m.now},
				&EmissionsOwed{Staking: staking, Account: alice, TokenID: *uint256From(id)})
			fork.refused(t, "NothingOwed("+id.String()+")", alice, staking, "collectOwed", id)
		})
	}
}

// TestClaimWithoutDistributor: creator fees are paid while the distributor makes no drip, and the emissions stay earned until
// it does.
func TestClaimWithoutDistributor(t *testing.T) {
	m, staking, id := staked(t, 600)
	m.must(t, carol, staking, "notifyCreatorFees", 1_000_000)
	m.now += 100
	m.must(t, owner, m.RewardDistributor, "setSource", staking, false)
	events := m.must(t, alice, staking, "claim", id)
	checkpointed := events[0].(*PositionCheckpointed)
	emissions, paid := checkpointed.EmissionsEarned, checkpointed.CreatorFeeEarned
	if emissions.IsZero() || paid.IsZero() {
		t.Fatalf("earned nothing: %+v", checkpointed)
	}
	emitted(t, events[1:], &CreatorFeeClaimed{PoolID: m.PoolID, TokenID: *uint256From(id), Owner: alice, Amount: paid})
	emitted(t, m.must(t, alice, staking, "withdrawFees", alice), &FeesWithdrawn{Staking: staking, Account: alice, To: alice, Amount: paid})
	if s := m.stakeOf(t, id); s.EmissionsEarned.Cmp(emissions.ToBig()) != 0 || s.FeesEarned.Sign() != 0 {
		t.Fatalf("the stake has earned %s and fees of %s, want %s and none", s.EmissionsEarned, s.FeesEarned, &emissions)
	}

	m.must(t, owner, m.RewardDistributor, "setSource", staking, true)
	events = m.must(t, alice, staking, "claim", id)
	emitted(t, events[1:],
		&DripCreated{Account: alice, DripID: u256(1), Source: DripLP, TokenID: *uint256From(id), Epoch: 1, Total: emissions, Start: m.now, Length: week, Cliff: m.now},
		&EmissionsClaimed{PoolID: m.PoolID, TokenID: *uint256From(id), Owner: alice, Amount: emissions, DripID: u256(1)})
	if s := m.stakeOf(t, id); s.EmissionsEarned.Sign() != 0 {
		t.Errorf("%s are claimed and still earned", s.EmissionsEarned)
	}
}

// TestClaimWithLittleGas: a claim with less gas than a drip needs is refused. Did it pass without one, wallets would send just
// so much, because they look for the least gas that passes.
func TestClaimWithLittleGas(t *testing.T) {
	m, staking, id := staked(t, 600)
	m.now += 100
	m.must(t, bob, staking, "checkpoint", id) // what is written after the drip is cheap
	m.now += 100
	dear := m.fork()
	impl := common.Address{0xee, 2}
	dear.setCode(impl, m.state.GetCode(m.RewardDistributor))
	code := common.FromHex("6127105b600190038060035750") // counts down from 10,000, for 260,000 gas
	code = append(code, common.FromHex("365f5f375f5f365f73")...)
	code = append(code, impl[:]...)
	dear.setCode(m.RewardDistributor, append(code, common.FromHex("5af43d5f5f3e6036573d5ffd5b3d5ff3")...)) // delegates
	for name, m := range map[string]*market{"distributor": m, "dear distributor": dear} {
		passed, refused := 0, 0
		for gas := uint64(50_000); gas < 800_000; gas += 500 {
			fork := m.fork()
			fork.gas = gas
			_, logs, err := fork.call(t, alice, staking, "claim", id)
			if err != nil {
				refused++
				continue
			}
			passed++
			events := fork.events(t, logs)
			if _, claimed := events[len(events)-1].(*EmissionsClaimed); !claimed {
				t.Fatalf("%s: with %d gas a claim passes without a drip", name, gas)
			}
		}
		if passed == 0 || refused == 0 {
			t.Errorf("%s: %d passed and %d were refused", name, passed, refused)
		}
	}
}

// TestReclaimPaidByAnother: anybody may pay, and the collateral is the borrower's all the same.
func TestReclaimPaidByAnother(t *testing.T) {
	m := newMarket(t)
	id := m.list(t)
	m.fund(t, id)
	m.must(t, owner, m.USDG, "freeze", alice)
	m.refused(t, "AddressFrozen(", alice, m.DealVault, "reclaim", id, m.terms(t, id))
	before := m.number(t, m.USDG, "balanceOf", carol)
	m.must(t, carol, m.DealVault, "reclaim", id, m.terms(t, id))
	if paid := before.Sub(before, m.number(t, m.USDG, "balanceOf", carol)).Uint64(); paid != 1100 {
		t.Errorf("carol paid %d", paid)
	}
	if got := m.credit(t, alice, m.stock); got != 100 {
		t.Errorf("alice may withdraw %d of the collateral", got)
	}
}

// TestAdministrationIsTold: what an owner changes is an event that is decoded.
func TestAdministrationIsTold(t *testing.T) {
	m := newMarket(t)
	v := m.DealVault
	emitted(t, m.must(t, owner, v, "setRewards", m.EpochController), &RewardsSet{Vault: v, Rewards: m.EpochController})
	emitted(t, m.must(t, owner, v, "pause"), &VaultPaused{Vault: v, Account: owner})
	emitted(t, m.must(t, owner, v, "unpause"), &VaultUnpaused{Vault: v, Account: owner})
	emitted(t, m.must(t, owner, m.RewardDistributor, "setSource", bob, true), &SourceSet{Distributor: m.RewardDistributor, Source: bob, Allowed: true})
	emitted(t, m.must(t, owner, m.LiquidityStaking, "setController", bob), &ControllerSet{Staking: m.LiquidityStaking, Controller: bob})
	for _, contract := range []common.Address{v, m.AssetRegistry, m.EpochController, m.RewardDistributor, m.LiquidityStaking, m.Burner} {
		emitted(t, m.must(t, owner, contract, "transferOwnership", bob), &OwnershipTransferStarted{Contract: contract, PreviousOwner: owner, NewOwner: bob})
		emitted(t, m.must(t, bob, contract, "acceptOwnership"), &OwnershipTransferred{Contract: contract, PreviousOwner: owner, NewOwner: bob})
	}
	registry := ours(t, m, "AssetRegistry", owner, m.PositionManager)
	m.decoder = NewDecoder(Deployment{AssetRegistry: registry})
	emitted(t, m.must(t, owner, registry, "setVault", v), &VaultSet{Registry: registry, Vault: v})
}

func ours(t testing.TB, m *market, name string, args ...any) common.Address {
	t.Helper()
	return m.deploy(t, owner, mustArtifact(t, name), args...)
}

// TestRegisteredTokens: the registry lists what it knows, page by page, each once.
func TestRegisteredTokens(t *testing.T) {
	m := newMarket(t)
	all := m.view(t, m.AssetRegistry, "tokens", 0, 100).([]common.Address)
	if n := m.number(t, m.AssetRegistry, "tokenCount").Uint64(); n == 0 || n != uint64(len(all)) {
		t.Fatalf("%d tokens, the count is %d", len(all), n)
	}
	seen := map[common.Address]bool{}
	for from := range len(all) + 2 {
		page := m.view(t, m.AssetRegistry, "tokens", from, 1).([]common.Address)
		switch {
		case from >= len(all) && len(page) > 0:
			t.Errorf("beyond the end: %v", page)
		case from < len(all) && (len(page) != 1 || page[0] != all[from] || seen[page[0]]):
			t.Errorf("page %d: %v of %v", from, page, all)
		case from < len(all):
			seen[page[0]] = true
		}
	}
	if got := m.view(t, m.AssetRegistry, "tokens", 1, new(big.Int).Lsh(big.NewInt(1), 255)).([]common.Address); len(got) != len(all)-1 {
		t.Errorf("all from 1 on: %v", got)
	}
}

// TestTimeInRange holds what positions earn against each second's price: swaps across ranges, stakes and exits, and a
// sandwich now and then.
func TestTimeInRange(t *testing.T) {
	seeded := rand.Uint64()
	t.Logf("seed %d", seeded)
	random := rand.New(rand.NewPCG(seeded, 0))
	m := newMarket(t)
	m.must(t, owner, m.EpochController, "openEpoch", week*1_000_000, 0, 0, week*1_000_000)
	m.must(t, owner, m.EpochController, "releaseLiquidity", week*1_000_000)
	const rate = 1_000_000
	type staked struct {
		id           *big.Int
		lower, upper int32
		weight       int64
		earned       float64
	}
	var stakes []*staked
	tick := int32(0)
	for range 120 {
		switch random.IntN(8) {
		case 0, 1:
			if len(stakes) > 12 {
				break
			}
			lower := int32(random.IntN(20)-10) * 60
			s := &staked{lower: lower, upper: lower + int32(1+random.IntN(8))*60, weight: 1e8 + random.Int64N(1e9)}
			s.id = m.mint(t, alice, m.stknPool, int64(s.lower), int64(s.upper), uint64(s.weight))
			m.must(t, alice, m.LiquidityStaking, "stake", s.id)
			stakes = append(stakes, s)
		case 2:
			if len(stakes) == 0 {
				break
			}
			at := random.IntN(len(stakes))
			if s := stakes[at]; random.IntN(3) == 0 {
				m.must(t, alice, m.LiquidityStaking, "checkpoint", s.id)
				near(t, s.earned, m.stakeOf(t, s.id).EmissionsEarned)
				m.must(t, alice, m.LiquidityStaking, "unstake", s.id)
				stakes = append(stakes[:at], stakes[at+1:]...)
			}
		case 3:
			var ids []*big.Int
			for _, s := range stakes {
				ids = append(ids, s.id)
			}
			m.sandwich(t, carol, ids...)
		default:
			token := m.TKN
			if tick > 0 == (m.stknPool.Currency0 == m.TKN) == (random.IntN(4) > 0) { // back to where the ranges are, mostly
				token = m.STKN
			}
			if err := m.trade(t, carol, m.stknPool, token, 1+random.Int64N(2e13)); err != nil {
				t.Fatal(err)
			}
		}
		tick = m.tickOf(t)
		passed := uint64(random.IntN(2000))
		m.now += passed
		active := int64(0)
		for _, s := range stakes {
			if s.lower <= tick && tick < s.upper {
				active += s.weight
			}
		}
		for _, s := range stakes {
			if s.lower <= tick && tick < s.upper {
				s.earned += float64(passed) * rate * float64(s.weight) / float64(active)
			}
		}
	}
	for _, s := range stakes {
		m.must(t, bob, m.LiquidityStaking, "checkpoint", s.id)
		near(t, s.earned, m.stakeOf(t, s.id).EmissionsEarned)
	}
}

func near(t testing.TB, want float64, got *big.Int) {
	t.Helper()
	if have, _ := new(big.Float).SetInt(got).Float64(); have > want+2 || have < want-200 {
		t.Errorf("earned %.0f, in range for %.0f", have, want)
	}
}

// tickOf is where the market's own pool is.
func (m *market) tickOf(t testing.TB) int32 {
	t.Helper()
	values, _, err := m.call(t, alice, m.StateView, "getSlot0", m.PoolID)
	if err != nil {
		t.Fatal(err)
	}
	return int32(values[1].(*big.Int).Int64())
}
