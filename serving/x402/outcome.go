package x402

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
)

// State is the outcome of an authorization.
type State uint8

// The states. Unused may still change; Expired cannot.
const (
	Unused    State = iota
	Paid            // used, and the amount went to whom it names
	Cancelled       // by its payer: it can no longer be used
	Elsewhere       // used, and whom it names did not get the amount: another of the same nonce was used
	Expired         // it expired unused, at a block that is deep enough
)

// AuthorizationState is the state of an authorization in the chain's logs.
type AuthorizationState struct {
	State       State
	Transaction common.Hash // the transaction that used or cancelled it
	Block       uint64      // where it is; of one that is unused, the head
	BlockHash   common.Hash
	// Final: it has the required confirmations, so a reorg cannot change it.
	Final bool
}

// Scope says where to search, and how many confirmations are required.
type Scope struct {
	FromBlock     uint64 // before it the authorization was not used
	Confirmations uint64 // blocks: 1 is a block without a successor
	LogRange      uint64 // maximum block range of a log query; fewer where the node refuses them
}

var errMoved = errors.New("the chain changed during the read")

// AuthorizationState reads what came of an authorization, by what it names itself and not by what is asked for today.
// It costs a call while the authorization is unused, and a search of the logs once it is not.
func (t *Token) AuthorizationState(ctx context.Context, a *Authorization, scope Scope) (AuthorizationState, error) {
	head, err := t.chain.HeaderByNumber(ctx, nil)
	if err != nil {
		return AuthorizationState{}, fmt.Errorf("read the payment chain's head: %w", err)
	}
	used, err := t.used(ctx, a, head.Number)
	if err != nil {
		return AuthorizationState{}, err
	}
	if !used {
		return t.unused(ctx, a, head, scope)
	}
	return t.search(ctx, a, head, scope)
}

// unused checks whether the authorization can still be used: only a block that is deep enough proves that it
// cannot.
func (t *Token) unused(ctx context.Context, a *Authorization, head *types.Header, scope Scope) (AuthorizationState, error) {
	still := AuthorizationState{Block: head.Number.Uint64()}
	depth := max(scope.Confirmations, 1) - 1
	if head.Time < a.ValidBefore || still.Block < depth {
		return still, nil
	}
	number := new(big.Int).SetUint64(head.Number.Uint64() - depth)
	deep, err := t.chain.HeaderByNumber(ctx, number)
	if err != nil {
		return AuthorizationState{}, fmt.Errorf("read block %s of the payment chain: %w", number, err)
	}
	if deep.Time < a.ValidBefore {
		return still, nil
	}
	used, err := t.used(ctx, a, number)
	if err == nil && used { // there, and not at the head
		err = errMoved
	}
	if err != nil {
		return AuthorizationState{}, err
	}
	return AuthorizationState{State: Expired, Block: deep.Number.Uint64(), BlockHash: deep.Hash(), Final: true}, nil
}

// Reverted reports whether a transaction with an authorization was mined and reverted, and whether that is
// final: then the authorization was not used, and can still be, by another transaction.
func (t *Token) Reverted(ctx context.Context, a *Authorization, transaction common.Hash, scope Scope) (reverted, final bool, err error) {
	receipt, err := t.chain.TransactionReceipt(ctx, transaction)
	if errors.Is(err, ethereum.NotFound) {
		return false, false, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("read the receipt of %s: %w", transaction, err)
	}
	if receipt.Status != types.ReceiptStatusFailed {
		return false, false, nil
	}
	head, err := t.chain.HeaderByNumber(ctx, nil)
	if err != nil {
		return false, false, fmt.Errorf("read the payment chain's head: %w", err)
	}
	if head.Number.Uint64()+1 < receipt.BlockNumber.Uint64()+max(scope.Confirmations, 1) {
		return true, false, nil
	}
	// Who found it unused may have asked a node that was behind: it may have reverted because it was paid before.
	used, err := t.used(ctx, a, head.Number)
	if err == nil && used {
		err = fmt.Errorf("transaction %s with authorization %s: %w", transaction, a.Nonce, errMoved)
	}
	return true, err == nil, err
}

// PaidBy is whether a transaction paid an authorization, and is on the chain. Where its receipt and the chain differ it
// is not known: that is an error.
func (t *Token) PaidBy(ctx context.Context, a *Authorization, transaction common.Hash) (bool, error) {
	receipt, err := t.chain.TransactionReceipt(ctx, transaction)
	if errors.Is(err, ethereum.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the receipt of %s: %w", transaction, err)
	}
	for i, use := range receipt.Logs[:max(len(receipt.Logs)-1, 0)] {
		if t.concerns(use, a) && use.Topics[0] == TopicUsed && t.pays(receipt.Logs[i+1], use, a) {
			err := InChain(ctx, t.chain, use)
			return err == nil, err
		}
	}
	return false, nil
}

// LogReader searches logs; ethclient.Client is one.
type LogReader interface {
	FilterLogs(ctx context.Context, q ethereum.FilterQuery) ([]types.Log, error)
}

// InChain is nil if a log of a receipt is in the block that the chain has at its number: nodes may keep receipts of
// blocks that were reorganised away. It compares the hash that the chain's own log names, and not a header's: chains
// have headers whose hash we cannot compute.
func InChain(ctx context.Context, chain LogReader, of *types.Log) error {
	number := new(big.Int).SetUint64(of.BlockNumber)
	q := ethereum.FilterQuery{FromBlock: number, ToBlock: number, Addresses: []common.Address{of.Address}}
	for _, topic := range of.Topics {
		q.Topics = append(q.Topics, []common.Hash{topic})
	}
	logs, err := chain.FilterLogs(ctx, q)
	if err != nil {
		return fmt.Errorf("search block %s for the log of %s: %w", number, of.TxHash, err)
	}
	same := func(l types.Log) bool {
		return !l.Removed && l.BlockHash == of.BlockHash && l.TxHash == of.TxHash && l.Index == of.Index
	}
	if !slices.ContainsFunc(logs, same) {
		return fmt.Errorf("the chain's block %s does not have the log of %s in block %s: %w", number, of.TxHash, of.BlockHash, errMoved)
	}
	return nil
}

// concerns does not rely on the node's filter.
func (t *Token) concerns(l *types.Log, a *Authorization) bool {
	return !l.Removed && l.Address == t.terms.Token && len(l.Topics) == 3 &&
		(l.Topics[0] == TopicUsed || l.Topics[0] == topicCanceled) && l.Topics[1] == addressTopic(a.From) && l.Topics[2] == a.Nonce
}

// judge looks for the transfer that belongs to the use: the token emits it right behind, in the same transaction. Only
// its whole receipt says that there is none: a node that lacks the block, or caps what it answers, shows fewer logs
// than there are.
func (t *Token) judge(ctx context.Context, a *Authorization, l *types.Log, head *types.Header, scope Scope) (AuthorizationState, error) {
	o := AuthorizationState{
		State: Cancelled, Transaction: l.TxHash, Block: l.BlockNumber, BlockHash: l.BlockHash,
		Final: head.Number.Uint64()+1 >= l.BlockNumber+max(scope.Confirmations, 1),
	}
	if l.Topics[0] == topicCanceled {
		return o, nil
	}
	receipt, err := t.chain.TransactionReceipt(ctx, l.TxHash)
	if err != nil {
		return AuthorizationState{}, fmt.Errorf("read the receipt of %s: %w", l.TxHash, err)
	}
	at := slices.IndexFunc(receipt.Logs, func(seen *types.Log) bool {
		return t.concerns(seen, a) && seen.Topics[0] == TopicUsed && seen.Index == l.Index
	})
	if receipt.BlockHash != l.BlockHash || at < 0 {
		return AuthorizationState{}, fmt.Errorf("read the receipt of %s: the use of authorization %s in block %s is missing: %w", l.TxHash, a.Nonce, l.BlockHash, errMoved)
	}
	o.State = Elsewhere
	if slices.ContainsFunc(receipt.Logs, func(transfer *types.Log) bool { return t.pays(transfer, l, a) }) {
		o.State = Paid
	}
	return o, nil
}

func (t *Token) pays(transfer, use *types.Log, a *Authorization) bool {
	return transfer.Address == t.terms.Token && transfer.TxHash == use.TxHash && transfer.Index == use.Index+1 &&
		len(transfer.Topics) == 3 && transfer.Topics[0] == TopicTransfer &&
		transfer.Topics[1] == addressTopic(a.From) && transfer.Topics[2] == addressTopic(a.To) &&
		new(big.Int).SetBytes(transfer.Data).Cmp(a.Value) == 0
}

func addressTopic(a common.Address) common.Hash { return common.BytesToHash(a[:]) }
