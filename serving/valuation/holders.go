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

// maxIdleBps is the part of the supply that may be idle in the pools' contract, like uncollected fees. Above it, the
// creator's share counts as unknown.
const maxIdleBps = 500

// maxLockers bounds the lockers: all of them may be among the largest holders, as may the PoolManager and deadAddress.
const maxLockers = query.MaxHolders - topHolders - 2

// held fills in the facts about holders, which follow from the token's transfers. They are unknown if the transfers
// contradict each other, or the supply that the token's contract reports at the same block.
func (s *Service) held(ctx context.Context, st *state, token common.Address, q *quoted, supply *big.Int, b *factsBody) error {
	if supply == nil || supply.Sign() == 0 {
		return nil
	}
	nobody := s.noHolders()
	asked := query.HoldersQuery{Token: token, Largest: topHolders + len(nobody), Accounts: []common.Address{s.cfg.Deployment.PoolManager}}
	known := s.chain.creationOf(token)
	if known.from != (common.Address{}) {
		asked.Accounts = append(asked.Accounts, known.from)
	}
	answer, err := s.reader.HoldersOf(ctx, st.at, asked)
	if errors.Is(err, query.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	h := &answer.Value
	switch {
	case h.Faulted:
		b.holdersReason = fmt.Sprintf("of holders nothing is known: its transfers contradict each other, or it had more than %d holders before it was listed", topics.MaxHolders)
		return nil
	case h.Supply.ToBig().Cmp(supply) != 0:
		b.holdersReason = "of holders nothing is known: its supply is not the sum of its transfers"
		return nil
	}
	b.Holders = &h.Count
	idle := q.idle(token, heldBy(h.Of, s.cfg.Deployment.PoolManager))
	b.TopTenBps = new(shareBps(topOf(h.Largest, nobody, idle), supply))
	if share := shareBps(idle, supply); share > maxIdleBps {
		b.holdersReason = fmt.Sprintf("of the supply %d bps are in the pools' contract, away from the price: nobody knows whose they are", share)
		return nil
	}
	creator := known.from
	if creator == (common.Address{}) || known.tx != h.First {
		creator, err = s.chain.creator(ctx, token, h.First, s.now())
		if err != nil || creator == (common.Address{}) {
			return err
		}
		if answer, err = s.reader.HoldersOf(ctx, st.at, query.HoldersQuery{Token: token, Accounts: []common.Address{creator}}); err != nil {
			return err
		}
		h = &answer.Value
	}
	b.CreatorBps = new(shareBps(heldBy(h.Of, creator), supply))
	return nil
}

// heldBy is what an account holds.
func heldBy(held []topics.Holding, account common.Address) (amount uint256.Int) {
	for i := range held {
		if held[i].Account == account {
			amount = held[i].Amount
		}
	}
	return amount
}

// idle is the amount of a token in the pools' contract beyond what the pools that price it trade with. It may belong to
// the creator, and be taken out at any time.
func (q *quoted) idle(token common.Address, all uint256.Int) uint256.Int {
	var counted []*pool
	for _, way := range q.ways {
		for _, p := range way {
			if _, ok := p.other(token); !ok || slices.Contains(counted, p) {
				continue
			}
			counted = append(counted, p)
			if traded := p.traded(token); traded.Lt(&all) {
				all.Sub(&all, traded)
			} else {
				all.Clear()
			}
		}
	}
	return all
}

// noHolders are the accounts that do not count as holders: the pools' contract, whose tokens belong to positions
// (idle), and those from which nothing comes back.
func (s *Service) noHolders() []common.Address {
	all := []common.Address{s.cfg.Deployment.PoolManager, deadAddress}
	for _, locker := range s.cfg.Lockers {
		all = append(all, common.HexToAddress(locker))
	}
	return all
}

// topOf is the sum of the largest holdings. The idle amount counts as one holding.
func topOf(largest []topics.Holding, nobody []common.Address, idle uint256.Int) (sum uint256.Int) {
	largest = slices.DeleteFunc(largest, func(h topics.Holding) bool { return slices.Contains(nobody, h.Account) })
	largest = append(largest, topics.Holding{Amount: idle})
	slices.SortStableFunc(largest, func(a, b topics.Holding) int { return b.Amount.Cmp(&a.Amount) })
	for i := range largest[:min(len(largest), topHolders)] {
		sum.Add(&sum, &largest[i].Amount)
	}
	return sum
}

// shareBps is the part of the supply that is held.
func shareBps(held uint256.Int, supply *big.Int) int64 {
	part := held.ToBig()
	return part.Mul(part, big.NewInt(bpsOfAll)).Quo(part, supply).Int64()
}
