package contracts

import (
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
)

// openEpoch switches rewards on and opens an epoch: budgets 5000, 3000 and 2000 of a weekly 10000, a tenth of the
// price as reward for 7 days and a fifth for 21, an sTKN worth a raw USDG per 1e12, six tenths to the lender.
func (m *market) openEpoch(t testing.TB) {
	t.Helper()
	m.must(t, owner, m.DealVault, "setRewards", m.EpochController)
	m.must(t, owner, m.EpochController, "openEpoch", 10_000, 5_000, 3_000, 2_000)
	price := new(big.Int).Exp(big.NewInt(10), big.NewInt(30), nil) // 1e12 USDG a whole sTKN: one raw USDG a raw sTKN
	m.must(t, owner, m.EpochController, "setRates", uint64(1e17), uint64(2e17), price, 6_000)
}

// The token layer's structs, as their ABIs have them.
type (
	epochTuple struct {
		StartsAt, EndsAt                           *big.Int
		Closed                                     bool
		LenderShareBps                             uint16
		Weekly, RolledOver                         *big.Int
		DealBudget7, DealBudget21, LiquidityBudget *big.Int
		Reserved7, Reserved21, Released            *big.Int
		Rate7, Rate21, PriceUSDGPerSTKN            *big.Int
	}
	dripTuple struct {
		Account                     common.Address
		Start, Length, Cliff, CutAt *big.Int
		Total, Claimed              *big.Int
	}
)

func (m *market) epoch(t testing.TB, n uint64) epochTuple {
	t.Helper()
	return viewInto[epochTuple](t, m.evm, m.EpochController, "epochs", n)
}

func (m *market) drip(t testing.TB, id uint64) dripTuple {
	t.Helper()
	return viewInto[dripTuple](t, m.evm, m.RewardDistributor, "drips", id)
}

func TestEpochs(t *testing.T) {
	m := newMarket(t)
	controller := m.EpochController
	emitted(t, m.must(t, owner, controller, "openEpoch", 10_000, 5_000, 3_000, 1_500), &EpochOpened{
		N: 1, StartsAt: m.now, EndsAt: m.now + week, Weekly: u256(10_000),
		DealBudget7: u256(5_000), DealBudget21: u256(3_000), LiquidityBudget: u256(1_500),
	})
	emitted(t, m.must(t, owner, controller, "setRates", 1, 2, 3, 4), &EpochRatesSet{
		N: 1, Rate7: u256(1), Rate21: u256(2), PriceUSDGPerSTKN: u256(3), LenderShareBps: 4,
	})
	events := m.must(t, owner, controller, "releaseLiquidity", 1_000)
	emitted(t, events,
		&LiquidityReleased{N: 1, Amount: u256(1_000), ReleasedAfter: u256(1_000)},
		&EmissionsNotified{PoolID: m.PoolID, Epoch: 1, Amount: u256(1_000), PeriodFinish: m.now + week})

	m.refused(t, "EpochNotOver(", owner, controller, "openEpoch", 1, 0, 0, 0)
	m.now += week
	m.refused(t, "NoOpenEpoch()", owner, controller, "setRates", 1, 2, 3, 4)
	m.refused(t, "NoOpenEpoch()", owner, controller, "releaseLiquidity", 1)
	emitted(t, m.must(t, owner, controller, "openEpoch", 100, 9_100, 0, 0),
		&EpochClosed{N: 1, Released: u256(1_000), RolledOver: u256(9_000)},
		&EpochOpened{N: 2, StartsAt: m.now, EndsAt: m.now + week, Weekly: u256(100), DealBudget7: u256(9_100), RolledOver: u256(9_000)})
	m.now += week
	emitted(t, m.must(t, alice, controller, "closeEpoch"), &EpochClosed{N: 2, RolledOver: u256(9_100)})
	m.refused(t, "NoOpenEpoch()", alice, controller, "closeEpoch")
	emitted(t, m.must(t, owner, controller, "openEpoch", 0, 0, 0, 9_100), // a week later or more
		&EpochOpened{N: 3, StartsAt: m.now, EndsAt: m.now + week, LiquidityBudget: u256(9_100), RolledOver: u256(9_100)})
}

func TestEpochRefusals(t *testing.T) {
	m := newMarket(t)
	m.refused(t, "NoOpenEpoch()", owner, m.EpochController, "closeEpoch")
	m.refused(t, "NoOpenEpoch()", owner, m.EpochController, "setRates", 1, 2, 3, 4)
	m.refused(t, "NoOpenEpoch()", owner, m.EpochController, "releaseLiquidity", 1)
	m.refused(t, "BudgetExceeded()", owner, m.EpochController, "openEpoch", 10, 5, 5, 1)
	m.openEpoch(t)
	for _, test := range []struct {
		name   string
		from   common.Address
		method string
		args   []any
		want   string
	}{
		{"not the owner", alice, "openEpoch", []any{1, 0, 0, 0}, "OwnableUnauthorizedAccount("},
		{"not the owner", alice, "setRates", []any{1, 1, 1, 1}, "OwnableUnauthorizedAccount("},
		{"not the owner", alice, "releaseLiquidity", []any{1}, "OwnableUnauthorizedAccount("},
		{"no price", owner, "setRates", []any{1, 1, 0, 1}, "InvalidRates()"},
		{"share above all", owner, "setRates", []any{1, 1, 1, 10_001}, "InvalidRates()"},
		{"nothing", owner, "releaseLiquidity", []any{0}, "BudgetExceeded()"},
		{"above the budget", owner, "releaseLiquidity", []any{2_001}, "BudgetExceeded()"},
		{"too early", alice, "closeEpoch", nil, "EpochNotOver("},
		{"not the vault", alice, "onFunded", []any{1, alice, bob, 1, term7}, "NotRewardSource()"},
		{"not the vault", alice, "onSettled", []any{1}, "NotRewardSource()"},
	} {
		t.Run(test.method+" "+test.name, func(t *testing.T) {
			m.fork().refused(t, test.want, test.from, m.EpochController, test.method, test.args...)
		})
	}
}

// rewards are the events of the token layer among others.
func rewards(events []Event) (found []Event) {
	for _, event := range events {
		switch event.(type) {
		case *EpochReserved, *EpochReturned, *RewardReserved, *RewardReturned, *DripCreated, *DripCut, *DripClaimed:
			found = append(found, event)
		}
	}
	return found
}

func TestRewards(t *testing.T) {
	m := newMarket(t)
	m.openEpoch(t)
	id := m.list(t)
	events := m.must(t, bob, m.DealVault, "fund", id, m.terms(t, id)) // at 1000: a reward of 100, 60 and 40
	drip := DripCreated{
		Account: bob, DripID: u256(1), DealID: u256(1), Epoch: 1, Total: u256(60), Start: m.now, Length: week, Cliff: m.now + day,
	}
	other := drip
	other.Account, other.DripID, other.Total = alice, u256(2), u256(40)
	emitted(t, rewards(events),
		&EpochReserved{N: 1, Term: term7, Granted: u256(100), ReservedAfter: u256(100)},
		&RewardReserved{DealID: u256(1), N: 1, Term: term7, Wanted: u256(100), Granted: u256(100), LenderAmount: u256(60), BorrowerAmount: u256(40)},
		&drip, &other)

	start := m.now
	unlocked := func(after, want uint64) {
		t.Helper()
		m.now = start + after
		if got := m.number(t, m.RewardDistributor, "unlocked", 1).Uint64(); got != want {
			t.Errorf("%d s after the start %d is unlocked, want %d", after, got, want)
		}
	}
	unlocked(0, 0)
	unlocked(day-1, 0)
	unlocked(day, 8) // 60/7, rounded down
	m.refused(t, "NotDripOwner(1)", alice, m.RewardDistributor, "claim", []*big.Int{big.NewInt(1)}, alice)
	emitted(t, m.must(t, bob, m.RewardDistributor, "claim", []*big.Int{big.NewInt(1)}, carol),
		&DripClaimed{Account: bob, DripID: u256(1), To: carol, Amount: u256(8), ClaimedAfter: u256(8)})
	m.refused(t, "NothingToClaim(1)", bob, m.RewardDistributor, "claim", []*big.Int{big.NewInt(1)}, bob)

	// Half way, the borrower buys back: half of each drip returns to the budget.
	m.now = start + week/2
	events = m.must(t, alice, m.DealVault, "reclaim", id, m.terms(t, id))
	emitted(t, rewards(events),
		&DripCut{Account: bob, DripID: u256(1), At: m.now, TotalAfter: u256(30), Returned: u256(30)},
		&DripCut{Account: alice, DripID: u256(2), At: m.now, TotalAfter: u256(20), Returned: u256(20)},
		&RewardReturned{DealID: u256(1), N: 1, Amount: u256(50)},
		&EpochReturned{N: 1, Term: term7, Amount: u256(50), ReservedAfter: u256(50)})
	unlocked(week/2, 30)
	unlocked(10*week, 30)
	emitted(t, m.must(t, bob, m.RewardDistributor, "claim", []*big.Int{big.NewInt(1)}, bob),
		&DripClaimed{Account: bob, DripID: u256(1), To: bob, Amount: u256(22), ClaimedAfter: u256(30)})

	// What came back while the epoch was open rolls over with the rest of it, once.
	events = m.must(t, owner, m.EpochController, "openEpoch", 0, 0, 0, 0)
	if opened := events[1].(*EpochOpened); opened.RolledOver != u256(10_000-50) {
		t.Errorf("rolled over %s, want %d", &opened.RolledOver, 10_000-50)
	}
}

// TestRewardReturnedLate: what a deal gives back after its epoch closed is in the next one's budget, once.
func TestRewardReturnedLate(t *testing.T) {
	m := newMarket(t)
	m.openEpoch(t)
	m.must(t, alice, m.DealVault, "list", KindERC20, m.stock, 100, 1100, 1000, term21, 0, feeBps)
	m.fund(t, 1) // 200 of 21 days, from epoch 1
	m.now += week
	m.must(t, owner, m.EpochController, "openEpoch", 0, 0, 0, 0)
	events := m.must(t, alice, m.DealVault, "reclaim", 1, m.terms(t, 1)) // a third of the term: 2/3 of 120 and of 80
	got := rewards(events)
	emitted(t, got[len(got)-1:], &EpochReturned{N: 1, Term: term21, Amount: u256(134), ReservedAfter: u256(66)})
	m.now += week
	events = m.must(t, owner, m.EpochController, "openEpoch", 0, 0, 0, 0)
	if opened := events[1].(*EpochOpened); opened.RolledOver != u256(10_000-66) {
		t.Errorf("rolled over %s, want %d", &opened.RolledOver, 10_000-66)
	}
}

func TestBudgetExhausted(t *testing.T) {
	m := newMarket(t)
	m.openEpoch(t)
	m.must(t, alice, m.DealVault, "list", KindERC20, m.stock, 100, 90_000, 49_500, term7, 0, feeBps)
	m.fund(t, 1) // 4950 of 5000
	id := m.list(t)
	events := rewards(m.must(t, bob, m.DealVault, "fund", id, m.terms(t, id))) // 100 wanted
	emitted(t, events[:2],
		&EpochReserved{N: 1, Term: term7, Granted: u256(50), ReservedAfter: u256(5_000), BudgetExhausted: true},
		&RewardReserved{
			DealID: u256(2), N: 1, Term: term7, Wanted: u256(100), Granted: u256(50),
			LenderAmount: u256(30), BorrowerAmount: u256(20), BudgetExhausted: true,
		})
	id = m.list(t)
	events = rewards(m.must(t, bob, m.DealVault, "fund", id, m.terms(t, id)))
	emitted(t, events,
		&EpochReserved{N: 1, Term: term7, ReservedAfter: u256(5_000), BudgetExhausted: true},
		&RewardReserved{DealID: u256(3), N: 1, Term: term7, Wanted: u256(100), BudgetExhausted: true})
	m.now += term7 / 2
	emitted(t, rewards(m.must(t, alice, m.DealVault, "reclaim", id, m.terms(t, id)))) // nothing was granted, nothing returns
}

// TestNoRewards: outside an epoch, before its rates and after a deal's term the token layer is silent.
func TestNoRewards(t *testing.T) {
	m := newMarket(t)
	m.must(t, owner, m.DealVault, "setRewards", m.EpochController)
	fundNew := func() []Event {
		id := m.list(t)
		return rewards(m.must(t, bob, m.DealVault, "fund", id, m.terms(t, id)))
	}
	emitted(t, fundNew())
	m.must(t, owner, m.EpochController, "openEpoch", 100, 100, 0, 0)
	emitted(t, fundNew())
	m.must(t, owner, m.EpochController, "setRates", uint64(1e17), 0, uint64(1e18), 0)
	granted := fundNew()
	if len(granted) != 3 || granted[2].(*DripCreated).Account != alice {
		t.Errorf("with no share for the lender: %+v", granted)
	}
	m.now += week
	emitted(t, fundNew())                                                           // the epoch is over
	emitted(t, rewards(m.must(t, alice, m.DealVault, "reclaim", 3, m.terms(t, 3)))) // at its term a deal has earned it all
}

func TestDistributorRefusals(t *testing.T) {
	m := newMarket(t)
	d := m.RewardDistributor
	m.must(t, owner, d, "setSource", carol, true)
	m.must(t, carol, d, "create", alice, 0, DripLP, 5, 1, 100, 1000, 0)
	for _, test := range []struct {
		name   string
		from   common.Address
		method string
		args   []any
		want   string
	}{
		{"not the owner", alice, "setSource", []any{alice, true}, "OwnableUnauthorizedAccount("},
		{"not a source", alice, "create", []any{alice, 0, DripLP, 0, 1, 100, 1000, 0}, "NotSource()"},
		{"for nobody", carol, "create", []any{common.Address{}, 0, DripLP, 0, 1, 100, 1000, 0}, "InvalidDrip()"},
		{"of nothing", carol, "create", []any{alice, 0, DripLP, 0, 1, 0, 1000, 0}, "InvalidDrip()"},
		{"in no time", carol, "create", []any{alice, 0, DripLP, 0, 1, 100, 0, 0}, "InvalidDrip()"},
		{"cliff after the end", carol, "create", []any{alice, 0, DripLP, 0, 1, 100, 1000, 1001}, "InvalidDrip()"},
		{"not a source", alice, "cut", []any{1}, "NotSource()"},
		{"no such drip", carol, "cut", []any{2}, "InvalidDrip()"},
		{"another's", bob, "claim", []any{[]*big.Int{big.NewInt(1)}, bob}, "NotDripOwner(1)"},
		{"no such drip", bob, "claim", []any{[]*big.Int{big.NewInt(0)}, bob}, "NotDripOwner(0)"},
		{"nothing yet", alice, "claim", []any{[]*big.Int{big.NewInt(1)}, bob}, "NothingToClaim(1)"},
	} {
		t.Run(test.method+" "+test.name, func(t *testing.T) {
			m.fork().refused(t, test.want, test.from, d, test.method, test.args...)
		})
	}
	m.now += 500
	emitted(t, m.must(t, carol, d, "cut", 1), &DripCut{Account: alice, DripID: u256(1), At: m.now, TotalAfter: u256(50), Returned: u256(50)})
	m.refused(t, "InvalidDrip()", carol, d, "cut", 1)
}
