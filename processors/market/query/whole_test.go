package query_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// Answers are whole: however partitions are shared out, and however much a wallet has.

// A deal's drips are in the partitions of its parties. Each of them may be alone on a node.
func TestARewardIsTheSameHoweverPartitionsAreSharedOut(t *testing.T) {
	drip := func(id uint64, account byte, total uint64) *contracts.DripCreated {
		return &contracts.DripCreated{
			Account: address(account), DripID: word(id), DealID: word(1), Epoch: 4, Total: word(total),
			Start: 1_000_001, Length: 700, Cliff: 1_000_001,
		}
	}
	home := func(account byte) int32 { return topics.Partition(drip(1, account, 1).Entity().Key(), partitions) }
	dealHome := topics.Partition(listing(1).Entity().Key(), partitions)
	apart := func(taken ...int32) byte {
		for a := byte(1); ; a++ {
			if !slices.Contains(taken, home(a)) {
				return a
			}
		}
	}
	lender := apart(dealHome)
	borrower := apart(dealHome, home(lender))
	list := listing(1)
	list.Borrower = address(borrower)
	events := []contracts.Event{
		list,
		&contracts.DealFunded{DealID: word(1), Lender: address(lender), Price: word(950), Fee: word(5), FundedAt: 1_000_001},
		&contracts.RewardReserved{DealID: word(1), N: 4, Granted: word(1000), LenderAmount: word(700), BorrowerAmount: word(300)},
		drip(1, lender, 700), drip(2, borrower, 300),
	}
	answer := func(shares ...[]int32) query.DealWithReward {
		holders := map[string]*holder{}
		for i, share := range shares {
			n := newNode(t, topics.RoleOwner, 1, share...)
			n.land(t, partitions, block(1), events...)
			holders[fmt.Sprint(i)] = serve(t, n)
		}
		a, err := remoteRouter(t, partitions, holders).DealWithReward(t.Context(), uint256.NewInt(1))
		return must(t, a, err)
	}
	without := func(gone ...int32) []int32 {
		return slices.DeleteFunc(span(partitions), func(p int32) bool { return slices.Contains(gone, p) })
	}
	one := answer(span(partitions))
	if len(one.Reward.Drips) != 2 {
		t.Fatalf("%d drips on one node", len(one.Reward.Drips))
	}
	for name, shares := range map[string][][]int32{
		"the borrower alone":    {without(home(borrower)), {home(borrower)}},
		"the lender alone":      {without(home(lender)), {home(lender)}},
		"each of them alone":    {without(home(borrower), home(lender)), {home(lender)}, {home(borrower)}},
		"the deal alone":        {{dealHome}, without(dealHome)},
		"a node each partition": {{0}, {1}, {2}, {3}},
	} {
		if diff := cmp.Diff(one, answer(shares...)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A list is cut to its newest and says so; a sum is over all.
func TestSumsAreOverAllAndListsSayWhereTheyEnd(t *testing.T) {
	const all = query.MaxPortfolio + 500
	m := newMarketNode(t, deployment)
	var events []contracts.Event
	for id := uint64(1); id <= all; id++ {
		events = append(events, &contracts.DripCreated{
			Account: address(2), DripID: word(id), DealID: word(id), Total: word(700), Start: 1_000_001, Length: 700, Cliff: 1_000_001,
		})
	}
	m.mine(t, 1, events[:query.MaxPortfolio]...)
	m.mine(t, 100)
	check := func(n, first uint64, truncated bool) {
		t.Helper()
		a, err := m.router.Rewards(t.Context(), address(2))
		r := must(t, a, err)
		if want := word(n * 100); r.ClaimableNow != want {
			t.Errorf("%s claimable, want %s", r.ClaimableNow.Dec(), want.Dec())
		}
		if want := word(n * 600); r.StillDripping != want {
			t.Errorf("%s dripping, want %s", r.StillDripping.Dec(), want.Dec())
		}
		b, err := m.router.Portfolio(t.Context(), address(2))
		p := must(t, b, err)
		if r.MoreDrips != truncated || p.Truncated != truncated {
			t.Errorf("of %d drips: truncated %t and %t", n, r.MoreDrips, p.Truncated)
		}
		for _, list := range [][]query.Drip{r.Drips, p.Drips} {
			if len(list) != query.MaxPortfolio || list[0].ID != word(first) || list[len(list)-1].ID != word(n) {
				t.Errorf("%d drips from %s to %s", len(list), list[0].ID.Dec(), list[len(list)-1].ID.Dec())
			}
		}
	}
	check(query.MaxPortfolio, 1, false)
	at := block(m.number + 1)
	m.number++
	at.Timestamp = m.time // the drips unlock as much as those before
	m.land(t, marketPartitions, at, events[query.MaxPortfolio:]...)
	check(all, all-query.MaxPortfolio+1, true)
}

// Each role of a wallet has a bound of its own: who funds much keeps the deals that it borrowed on.
func TestRolesDoNotShareABound(t *testing.T) {
	m := newMarketNode(t, deployment)
	own := listing(1)
	own.Borrower = address(2)
	fund := func(id uint64, lender byte) *contracts.DealFunded {
		return &contracts.DealFunded{DealID: word(id), Lender: address(lender), Price: word(950), Fee: word(5), FundedAt: 1}
	}
	m.mine(t, 1, own, fund(1, 3))
	const last = query.MaxPortfolio + 5
	var events []contracts.Event
	for id := uint64(2); id <= last; id++ {
		events = append(events, listing(id), fund(id, 2))
	}
	m.mine(t, 1, events...)
	for name, r := range map[string]*query.Client{"one node": m.router, "two nodes": inTwoHalves(t, m.node)} {
		a, err := r.Portfolio(t.Context(), address(2))
		p := must(t, a, err)
		if len(p.AsBorrower) != 1 || len(p.AsLender) != query.MaxPortfolio || !p.Truncated {
			t.Fatalf("%s: %d as borrower, %d as lender, truncated %t", name, len(p.AsBorrower), len(p.AsLender), p.Truncated)
		}
		if first, oldest := p.AsLender[0].Deal.ID, p.AsLender[query.MaxPortfolio-1].Deal.ID; first != word(last) || oldest != word(last-query.MaxPortfolio+1) {
			t.Errorf("%s: from deal %s to %s", name, first.Dec(), oldest.Dec())
		}
		if p.Summary.AwaitingExpiry != word(1_000*(last-1)) {
			t.Errorf("%s: %s awaited", name, p.Summary.AwaitingExpiry.Dec())
		}
	}
}
