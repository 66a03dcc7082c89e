package devchain

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
	"github.com/holiman/uint256"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lienstream/lienstream/contracts"
)

func TestScenarioConfigNamesEveryFault(t *testing.T) {
	err := ScenarioConfig{
		Rate: -1, TxsPerBlock: 1_000_000, TimePerBlock: time.Second, MaxDeals: -1, ReorgEvery: -1, MaxReorgDepth: -1,
	}.Validate()
	for _, key := range []string{"rate", "txsPerBlock", "timePerBlock", "maxDeals", "reorgEvery", "maxReorgDepth"} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%v does not name %q", err, key)
		}
	}
	if err := (ScenarioConfig{}).Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}

func TestDeployNamesTheCommandForWhatIsMissing(t *testing.T) {
	_, err := Deploy(t.Context(), newChain(t, Config{}), MarketConfig{NodeModules: t.TempDir()})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "make deps") {
		t.Errorf("%v does not name `make deps`", err)
	}
}

// The same seed gives the same chain, reorgs included; another seed gives another.
func TestDeterminism(t *testing.T) {
	hashes := func(seed uint64) []common.Hash {
		m := deploy(t, newChain(t, Config{Seed: seed}), MarketConfig{Seed: seed})
		s := newScenario(t, m, ScenarioConfig{Seed: seed, Reorgs: true, ReorgEvery: 10, TimePerBlock: 3 * time.Hour})
		all := []common.Hash{m.head.Hash}
		for range 40 {
			all = append(all, steps(t, s, 1).Hash)
		}
		return all
	}
	first := hashes(1)
	if diff := cmp.Diff(first, hashes(1)); diff != "" {
		t.Errorf("the same seed gave another chain:\n%s", diff)
	}
	if hashes(2)[0] == first[0] {
		t.Error("another seed gave the same chain")
	}
}

func TestDeployment(t *testing.T) {
	onEach(t, func(t *testing.T, b Backend) {
		m := deploy(t, b, MarketConfig{})
		if err := m.Deployment.Validate(); err != nil {
			t.Fatal(err)
		}
		addresses := reflect.ValueOf(m.Deployment)
		for i := range addresses.NumField() {
			address, ok := reflect.TypeAssert[common.Address](addresses.Field(i))
			if !ok {
				continue
			}
			code, err := b.Client().CodeAt(t.Context(), address, nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(code) == 0 {
				t.Errorf("no contract at %s", addresses.Type().Field(i).Name)
			}
		}
	})
}

// allEvents are those that a scenario must make happen: every one that contracts knows.
var allEvents = []contracts.Event{
	&contracts.DealListed{}, &contracts.DealTermsUpdated{}, &contracts.DealFunded{}, &contracts.DealReclaimed{},
	&contracts.DealClaimed{}, &contracts.DealCancelled{}, &contracts.BidPlaced{}, &contracts.BidWithdrawn{},
	&contracts.BidAccepted{}, &contracts.Credited{}, &contracts.Withdrawn{}, &contracts.FeeSet{},
	&contracts.AssetSet{}, &contracts.OpenRawChanged{}, &contracts.PoolSet{},
	&contracts.UIMultiplierUpdated{}, &contracts.TokenPaused{}, &contracts.TokenUnpaused{},
	&contracts.EpochOpened{}, &contracts.EpochRatesSet{}, &contracts.EpochReserved{}, &contracts.EpochReturned{},
	&contracts.LiquidityReleased{}, &contracts.EpochClosed{}, &contracts.RewardReserved{}, &contracts.RewardReturned{},
	&contracts.DripCreated{}, &contracts.DripCut{}, &contracts.DripClaimed{},
	&contracts.PositionStaked{}, &contracts.PositionCheckpointed{}, &contracts.PositionUnstaked{},
	&contracts.EmissionsNotified{}, &contracts.CreatorFeesNotified{}, &contracts.EmissionsClaimed{},
	&contracts.CreatorFeeClaimed{}, &contracts.Burned{},
	&contracts.PoolInitialized{}, &contracts.LiquidityModified{}, &contracts.Swapped{}, &contracts.PositionTransferred{},
	&contracts.VaultPaused{}, &contracts.VaultUnpaused{}, &contracts.TokenTransferred{},
}

// A few hundred blocks have every event, collateral of every lane and every reason of a credit; hardly a
// transaction reverts; and what the actors believe is what the contracts say.
func TestScenarioDoesEverything(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		onEach(t, func(t *testing.T, b Backend) {
			m := deploy(t, b, MarketConfig{})
			s := newScenario(t, m, ScenarioConfig{Seed: seed, TimePerBlock: 3 * time.Hour})
			seen := map[string]int{"PoolInitialized": 1} // by the deployment alone
			for range 500 {
				before := s.head.Timestamp
				block := steps(t, s, 1)
				seen[fmt.Sprint("time repeated ", s.head.Timestamp == before)]++
				funded := make(map[uint256.Int]bool)
				for _, transaction := range s.recent[len(s.recent)-1].sent {
					if strings.Contains(transaction.label, ", ") {
						seen["multicall"]++
					}
				}
				seen[fmt.Sprint("oracle halted ", len(s.model.halted) > 0)]++
				for _, log := range block.Logs() {
					if log.Address == m.stranger.address {
						seen["imitation"]++
					}
					event := m.event(log)
					seen[event.Name()]++
					switch e := event.(type) {
					case *accountFrozen:
						seen[fmt.Sprint("frozen ", e.frozen)]++
					case *contracts.TokenPaused:
						seen[fmt.Sprint("dollar paused ", e.Token == m.usdg.address)]++
					case *contracts.DealFunded:
						funded[e.DealID] = true
					case *contracts.DealReclaimed:
						if funded[e.DealID] {
							seen["funded and reclaimed in a block"]++
						}
						if m.byAddress[e.Borrower].wallet() {
							seen["a contract borrows"]++
						}
					case *contracts.DealListed:
						seen[fmt.Sprint("lane ", e.Lane)]++
					case *contracts.Credited:
						seen[fmt.Sprint("reason ", e.Reason, " of ", e.Kind)]++
					case *contracts.EpochReserved:
						seen[fmt.Sprint("exhausted ", e.BudgetExhausted)]++
					}
				}
			}
			for _, event := range allEvents {
				if seen[event.Name()] == 0 {
					t.Errorf("%s never happened", event.Name())
				}
			}
			for _, what := range []string{
				"multicall", "imitation", "frozen true", "frozen false", "dollar paused true", "dollar paused false",
				"oracle halted true", "oracle halted false",
				"funded and reclaimed in a block", "a contract borrows",
				"lane 0", "lane 1", "lane 2", "lane 3", "exhausted true", "exhausted false",
				"reason 0 of 0", "reason 1 of 0", "reason 2 of 0", "reason 3 of 1", "reason 3 of 2", "reason 4 of 1", "reason 4 of 2", "reason 5 of 0",
			} {
				if seen[what] == 0 {
					t.Errorf("%s never happened", what)
				}
			}
			if seen["time repeated true"] > 0 != b.Traits().EqualTimestamps {
				t.Errorf("%d blocks have their parent's time", seen["time repeated true"])
			}
			reverted, sent := testutil.ToFloat64(s.metrics.reverted), testutil.ToFloat64(s.metrics.transactions)
			if reverted == 0 || reverted > sent/50 {
				t.Errorf("%g of %g transactions reverted", reverted, sent)
			}
			equalsChain(t, s)
		})
	}
}

// With reorgs of every depth the actors still know what the contracts say.
func TestScenarioThroughReorgs(t *testing.T) {
	onEach(t, func(t *testing.T, b Backend) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		m := deploy(t, b, MarketConfig{})
		s := newScenario(t, m, ScenarioConfig{
			Seed: seed, TimePerBlock: 6 * time.Hour, Reorgs: true, ReorgEvery: 8,
		})
		for range 8 {
			steps(t, s, 15)
			equalsChain(t, s)
		}
		reorgs, dropped := testutil.ToFloat64(s.metrics.reorgs), testutil.ToFloat64(s.metrics.dropped)
		if reorgs < 2 || dropped <= reorgs {
			t.Errorf("%g reorgs dropped %g blocks", reorgs, dropped)
		}
		reverted, sent := testutil.ToFloat64(s.metrics.reverted), testutil.ToFloat64(s.metrics.transactions)
		t.Logf("%g reorgs dropped %g blocks, %g of %g transactions reverted", reorgs, dropped, reverted, sent)
		if reverted > sent/3 {
			t.Errorf("%g of %g transactions reverted", reverted, sent)
		}
	})
}

// The owner halts the oracle of one stock after the other, on the contract, and it goes on.
func TestScenarioHaltsOracles(t *testing.T) {
	onEach(t, func(t *testing.T, b Backend) {
		m := deploy(t, b, MarketConfig{NoTokenLayer: true})
		s := newScenario(t, m, ScenarioConfig{TxsPerBlock: 1})
		halted := func() (n int) {
			for _, stock := range m.stocks {
				if is := view[bool](t, m, own("StockToken", stock.address), "oraclePaused"); is != s.model.halted[stock.address] {
					t.Fatalf("block %d: that the oracle of %s is paused is %t, the actors believe %t", s.head.Number, stock.address, is, !is)
				} else if is {
					n++
				}
			}
			return n
		}
		for steps(t, s, 1).Number%haltEvery != haltEvery-1 {
			if len(s.model.halted) > 0 {
				t.Fatalf("block %d: an oracle is paused", s.head.Number)
			}
		}
		if n := halted(); n != 1 {
			t.Errorf("block %d: %d oracles are paused", s.head.Number, n)
		}
		if err := s.Rewind(t.Context(), 1); err != nil || halted() != 0 {
			t.Errorf("after a reorg: %d oracles are paused: %v", halted(), err)
		}
		steps(t, s, 2*haltBlocks)
		if n := halted(); n != 0 {
			t.Errorf("block %d: %d oracles are paused", s.head.Number, n)
		}
	})
}

// Some transactions of dropped blocks come again, in other blocks, and some never do.
func TestReorgReplaysSomeTransactions(t *testing.T) {
	s := newScenario(t, deploy(t, newChain(t, Config{}), MarketConfig{}), ScenarioConfig{TxsPerBlock: 10})
	steps(t, s, 30)
	dropped := make(map[common.Hash]bool)
	for _, block := range s.recent[len(s.recent)-8:] {
		for _, transaction := range block.sent {
			dropped[transaction.tx.Hash()] = true
		}
	}
	if err := s.Rewind(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	steps(t, s, 8)
	again, fresh := 0, 0
	for _, block := range s.recent[len(s.recent)-8:] {
		for _, transaction := range block.sent {
			if dropped[transaction.tx.Hash()] {
				again++
			} else {
				fresh++
			}
		}
	}
	if again == 0 || again == len(dropped) || fresh == 0 {
		t.Errorf("of %d dropped transactions %d came again, with %d others", len(dropped), again, fresh)
	}
}

func TestScenarioWithoutTokenLayer(t *testing.T) {
	m := deploy(t, newChain(t, Config{}), MarketConfig{NoTokenLayer: true})
	if err := m.Deployment.Validate(); err != nil || m.Deployment.HasTokenLayer() {
		t.Fatalf("deployment with token layer %t: %v", m.Deployment.HasTokenLayer(), err)
	}
	s := newScenario(t, m, ScenarioConfig{TimePerBlock: 3 * time.Hour})
	steps(t, s, 80)
	equalsChain(t, s)
}

// 250 transactions a block are 500 logs of the market.
func TestBulk(t *testing.T) {
	m := deploy(t, newChain(t, Config{}), MarketConfig{Actors: 60})
	s := newScenario(t, m, ScenarioConfig{TxsPerBlock: 250})
	logs := 0
	steps(t, s, 4)
	for range 4 {
		for _, log := range steps(t, s, 1).Logs() {
			switch m.event(log).(type) {
			case *contracts.Unknown, *contracts.TokenTransferred:
			default:
				logs++
			}
		}
	}
	if logs < 4*400 {
		t.Errorf("%d logs in 4 blocks", logs)
	}
}

func TestScenarioRunEndsWithContext(t *testing.T) {
	m := deploy(t, newChain(t, Config{}), MarketConfig{})
	s := newScenario(t, m, ScenarioConfig{Rate: 500})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	heads := m.head.Number
	for heads < m.Deployment.StartBlock+10 {
		var err error
		if heads, err = m.backend.Client().BlockNumber(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
