package valuation

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// topHolders is how many of the largest holders are summed up.
const topHolders = 10

// maxLockers bounds the lockers: all of them may be among the largest holders, as may the PoolManager and deadAddress.
const maxLockers = query.MaxHolders - topHolders - 2

// held fills in what the token's transfers say of its holders. Nothing is known where they contradict each other or the
// supply that the token's contract claims at the same block.
func (s *Service) held(ctx context.Context, st *state, token common.Address, supply *big.Int, b *factsBody) error {
	if supply == nil || supply.Sign() == 0 {
		return nil
	}
	nobody := s.nobody()
	q := query.HoldersQuery{Token: token, Largest: topHolders + len(nobody)}
	known := s.chain.creationOf(token)
	if known.from != (common.Address{}) {
		q.Accounts = []common.Address{known.from}
	}
	answer, err := s.reader.HoldersOf(ctx, st.at, q)
	if errors.Is(err, query.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	h := &answer.Value
	switch {
	case h.Faulted:
		b.unheld = fmt.Sprintf("its transfers contradict each other, or it had more than %d holders when it was listed", topics.MaxHolders)
		return nil
	case h.Supply.ToBig().Cmp(supply) != 0:
		b.unheld = "its supply is not the sum of its transfers"
		return nil
	}
	b.Holders = &h.Count
	b.TopTenBps = new(shareBps(topOf(h.Largest, nobody), supply))
	if known.from == (common.Address{}) || known.tx != h.First {
		creator, err := s.chain.creator(ctx, token, h.First, s.now())
		if err != nil || creator == (common.Address{}) {
			return err
		}
		if answer, err = s.reader.HoldersOf(ctx, st.at, query.HoldersQuery{Token: token, Accounts: []common.Address{creator}}); err != nil {
			return err
		}
		h = &answer.Value
	}
	b.CreatorBps = new(shareBps(h.Of, supply))
	return nil
}

// nobody are the accounts that are no holder of their own: the pools' contract, whose tokens belong to positions, and
// those from which nothing comes back.
func (s *Service) nobody() []common.Address {
	all := []common.Address{s.cfg.Deployment.PoolManager, deadAddress}
	for _, locker := range s.cfg.Lockers {
		all = append(all, common.HexToAddress(locker))
	}
	return all
}

// topOf are the largest holdings of somebody.
func topOf(largest []topics.Holding, nobody []common.Address) []topics.Holding {
	largest = slices.DeleteFunc(largest, func(h topics.Holding) bool { return slices.Contains(nobody, h.Account) })
	return largest[:min(len(largest), topHolders)]
}

// shareBps is the part of the supply that is held.
func shareBps(held []topics.Holding, supply *big.Int) int64 {
	var sum uint256.Int
	for i := range held {
		sum.Add(&sum, &held[i].Amount)
	}
	part := sum.ToBig()
	return part.Mul(part, big.NewInt(bpsOfAll)).Quo(part, supply).Int64()
}
