package query_test

import (
	"context"
	"errors"
	"math/big"
	"slices"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// Where an answer has only the newest of a list, another has all of it, page by page, each once, however the
// partitions are shared out.
func TestWhatIsTruncatedIsPaged(t *testing.T) {
	const (
		drips = query.MaxDrips + 30
		bids  = query.MaxPortfolio + 30
		burns = 50
	)
	m := newMarketNode(t, deployment)
	var events []contracts.Event
	for id := uint64(1); id <= drips; id++ {
		events = append(events, &contracts.DripCreated{
			Account: address(2 + byte(id%2)), DripID: word(id), DealID: word(1), Total: word(700), Start: 1_000_001, Length: 700, Cliff: 1_000_001,
		})
	}
	own := listing(1)
	own.Borrower = address(2)
	events = append(events, own, listing(2), &contracts.DealFunded{DealID: word(1), Lender: address(3), Price: word(950), Fee: word(5), FundedAt: 1},
		&contracts.DripCreated{Account: address(2), DripID: word(9000), DealID: word(2), Total: word(1), Length: 1},
		&contracts.RewardReserved{DealID: word(1), Granted: word(1000), LenderAmount: word(1000)})
	for id := uint64(1); id <= bids; id++ {
		deal := listing(10 + id%7)
		if id <= 7 {
			events = append(events, deal)
		}
		events = append(events, &contracts.BidPlaced{DealID: deal.DealID, BidID: word(id), Lender: address(4), Price: word(1), Expiry: 1 << 39, TermsHash: deal.TermsHash})
		events = append(events, &contracts.Credited{Account: address(5), Asset: common.BigToAddress(new(big.Int).SetUint64(id)), AmountOrTokenID: word(1), Kind: contracts.BalanceERC20})
	}
	for n := uint64(1); n <= burns; n++ {
		events = append(events, &contracts.Burned{Caller: address(6), USDGSpent: word(n), STKNBurned: word(n), At: 1_000_000 + n})
	}
	m.mine(t, 100, events...)

	for name, r := range map[string]*query.Client{"one node": m.router, "two nodes": inTwoHalves(t, m.node)} {
		deal, err := r.DealWithReward(t.Context(), uint256.NewInt(1))
		reward := must(t, deal, err).Reward
		slices.Reverse(reward.Drips)
		of := func(d query.Drip) uint256.Int { return d.ID }
		continues(t, name+", drips of a deal", ids(reward.Drips, of), reward.Truncated, drips, func(ctx context.Context, after []byte, limit int) ([]uint256.Int, []byte, error) {
			return paged(of)(r.DealDrips(ctx, query.DealListQuery{Deal: word(1), After: after, Limit: limit}))
		})
		bid := func(b topics.Bid) uint256.Int { return b.ID }
		a, err := r.Portfolio(t.Context(), address(4))
		lender := must(t, a, err)
		continues(t, name+", bids", ids(lender.Bids, bid), lender.Truncated, bids, func(ctx context.Context, after []byte, limit int) ([]uint256.Int, []byte, error) {
			return paged(bid)(r.WalletBids(ctx, query.WalletListQuery{Wallet: address(4), After: after, Limit: limit}))
		})
		balance := func(b topics.Balance) uint256.Int { // the first asset is the newest, so that the list descends like the others
			return *new(uint256.Int).Sub(uint256.NewInt(1<<40), new(uint256.Int).SetBytes(b.Asset[:]))
		}
		a, err = r.Portfolio(t.Context(), address(5))
		owner := must(t, a, err)
		continues(t, name+", balances", ids(owner.Balances, balance), owner.Truncated, bids, func(ctx context.Context, after []byte, limit int) ([]uint256.Int, []byte, error) {
			return paged(balance)(r.WalletBalances(ctx, query.WalletListQuery{Wallet: address(5), After: after, Limit: limit}))
		})
		burn := func(b topics.Burn) uint256.Int { return b.STKNBurned }
		p, err := r.Pool(t.Context())
		pool := must(t, p, err)
		continues(t, name+", burns", ids(pool.Burns, burn), pool.Truncated, burns, func(ctx context.Context, after []byte, limit int) ([]uint256.Int, []byte, error) {
			return paged(burn)(query.Burns.Page(ctx, r, query.PageQuery{After: after, Limit: limit}))
		})
		if a, err := r.DealDrips(t.Context(), query.DealListQuery{Deal: word(8), Limit: 1}); !errors.Is(err, query.ErrNotFound) || a.At.Number != m.number {
			t.Errorf("%s: drips of no deal: %v as of %v", name, err, a.At)
		}
	}
}

// A wallet's drips come the newest first, of any number, and none of another's.
func TestDripsOfAWalletComeInPages(t *testing.T) {
	const drips = query.MaxPortfolio + 30
	m := newMarketNode(t, deployment)
	var events []contracts.Event
	for id := uint64(1); id <= drips; id++ {
		events = append(events,
			&contracts.DripCreated{Account: address(2), DripID: word(2 * id), DealID: word(id), Total: word(700), Length: 700},
			&contracts.DripCreated{Account: address(3), DripID: word(2*id + 1), DealID: word(id), Total: word(700), Length: 700})
	}
	m.mine(t, 100, events...)
	half := func(d query.Drip) uint256.Int { return *new(uint256.Int).Rsh(&d.ID, 1) }
	for name, r := range map[string]*query.Client{"one node": m.router, "two nodes": inTwoHalves(t, m.node)} {
		a, err := r.Rewards(t.Context(), address(2))
		rewards := must(t, a, err)
		slices.Reverse(rewards.Drips)
		continues(t, name, ids(rewards.Drips, half), rewards.MoreDrips, drips, func(ctx context.Context, after []byte, limit int) ([]uint256.Int, []byte, error) {
			return paged(half)(r.WalletDrips(ctx, query.WalletListQuery{Wallet: address(2), After: after, Limit: limit}))
		})
	}
}

// continues fails unless a truncated list is where its pages begin, and these count down to 1.
func continues(t *testing.T, name string, shown []uint256.Int, truncated bool, all int, page func(context.Context, []byte, int) ([]uint256.Int, []byte, error)) {
	t.Helper()
	if !truncated {
		t.Errorf("%s: %d of %d, and not truncated", name, len(shown), all)
	}
	for _, limit := range []int{7, query.MaxLimit} {
		var listed []uint256.Int
		for after := []byte(nil); ; {
			part, next, err := page(t.Context(), after, limit)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			listed = append(listed, part...)
			if after = next; after == nil {
				break
			}
		}
		if len(listed) != all || !slices.Equal(listed[:len(shown)], shown) {
			t.Errorf("%s, %d a page: %d listed of %d, or not those of the answer first", name, limit, len(listed), all)
			continue
		}
		step := new(uint256.Int)
		for i := range listed[1:] {
			if step.Sub(&listed[i], &listed[i+1]); !step.Eq(uint256.NewInt(1)) {
				t.Fatalf("%s, %d a page: %s after %s", name, limit, listed[i+1].Dec(), listed[i].Dec())
			}
		}
	}
}

func ids[T any](all []T, id func(T) uint256.Int) (found []uint256.Int) {
	for _, v := range all {
		found = append(found, id(v))
	}
	return found
}

func paged[T any](id func(T) uint256.Int) func(query.Answer[query.Page[T]], error) ([]uint256.Int, []byte, error) {
	return func(a query.Answer[query.Page[T]], err error) ([]uint256.Int, []byte, error) {
		return ids(a.Value.Items, id), a.Value.Next, err
	}
}
