package valuation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/topics"
)

// topHolders is how many of the largest holders are summed up.
const topHolders = 10

// held fills in what the token's transfers say of its holders. Nothing is known where they contradict each other or the
// supply that the token's contract claims at the same block.
func (s *Service) held(ctx context.Context, st *state, token common.Address, supply *big.Int, b *factsBody) error {
	if supply == nil || supply.Sign() == 0 {
		return nil
	}
	nobody := s.nobody()
	q := query.HoldersQuery{Token: token, Largest: topHolders + len(nobody)}
	known := s.chain.creationOf(token)
	if known.tx != (common.Hash{}) {
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
	if h.Faulted || h.Supply.ToBig().Cmp(supply) != 0 {
		return nil
	}
	b.Holders = &h.Count
	b.TopTenBps = new(shareBps(topOf(h.Largest, nobody), supply))
	if known.tx == (common.Hash{}) || known.tx != h.First {
		creator, err := s.chain.creator(ctx, token, h.First)
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

// creation is the transaction of a token's first transfer, and who sent it.
type creation struct {
	tx   common.Hash
	from common.Address
}

// creationOf is a token's creation, if it was asked for before.
func (c *chainReader) creationOf(token common.Address) creation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.creations[token]
}

// creator is who sent the transaction of the token's first transfer, which minted it: whose signature it has, whatever a
// node says. Zero: unknown, because there was no transfer, no node has a transaction of that hash, it is of another chain,
// or it wrote no transfer of the token: nothing proves the hash itself.
func (c *chainReader) creator(ctx context.Context, token common.Address, first common.Hash) (common.Address, error) {
	if first == (common.Hash{}) {
		return common.Address{}, nil
	}
	c.metrics.fees.Inc()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.ReadTimeout)
	defer cancel()
	var raw json.RawMessage
	var wrote receipt
	sent := &chain.Request{Method: "eth_getTransactionByHash", Params: []any{first}, Result: &raw}
	done := &chain.Request{Method: "eth_getTransactionReceipt", Params: []any{first}, Result: &wrote}
	if err := c.client.Batch(ctx, sent, done); err != nil {
		return common.Address{}, fmt.Errorf("ask who created token %s: %w", token, err)
	}
	var tx types.Transaction
	if sent.Err != nil || len(raw) == 0 || json.Unmarshal(raw, &tx) != nil || tx.Hash() != first {
		return common.Address{}, nil
	}
	ours := new(big.Int).SetUint64(c.cfg.Deployment.ChainID)
	if done.Err != nil || !wrote.moves(token, first) || tx.ChainId().Cmp(ours) != 0 {
		return common.Address{}, nil
	}
	from, err := types.Sender(types.LatestSignerForChainID(ours), &tx)
	if err != nil {
		return common.Address{}, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.creations == nil {
		c.creations = map[common.Address]creation{}
	}
	c.creations[token] = creation{first, from}
	return from, nil
}

// receipt is what a transaction's receipt says of its logs.
type receipt struct {
	TransactionHash common.Hash
	Logs            []struct {
		Address common.Address
		Topics  []common.Hash
	}
}

// moves reports whether the receipt is that of a transaction, which wrote a transfer of the token.
func (r *receipt) moves(token common.Address, tx common.Hash) bool {
	for _, l := range r.Logs {
		if l.Address == token && len(l.Topics) > 0 && l.Topics[0] == contracts.TransferTopic() {
			return r.TransactionHash == tx
		}
	}
	return false
}
