package x402

import (
	"context"
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
)

// Searchable is nil if the node answers searches from the head back to where a scope begins: on one that does not, a
// payment could be made and never be seen.
func (t *Token) Searchable(ctx context.Context, scope Scope) error {
	head, err := t.chain.HeaderByNumber(ctx, nil)
	if err != nil {
		return fmt.Errorf("read the payment chain's head: %w", err)
	}
	last, span := head.Number.Uint64(), t.nextSpan(scope)
	for _, to := range []uint64{last, min(last, scope.FromBlock)} {
		if _, _, err := t.uses(ctx, &Authorization{}, to, &span, scope); err != nil {
			return err
		}
	}
	return nil
}

// search finds the log of the authorization, newest range first.
func (t *Token) search(ctx context.Context, a *Authorization, head *types.Header, scope Scope) (AuthorizationState, error) {
	span := t.nextSpan(scope)
	for to := head.Number.Uint64(); ; {
		logs, from, err := t.uses(ctx, a, to, &span, scope)
		if err != nil {
			return AuthorizationState{}, err
		}
		for i := range logs {
			if t.concerns(&logs[i], a) {
				return t.judge(ctx, a, &logs[i], head, scope)
			}
		}
		if from <= scope.FromBlock {
			break
		}
		to = from - 1
	}
	// The token says used, and its logs do not: used before the scope, or reorganised between the two reads.
	still, err := t.used(ctx, a, nil)
	if err != nil {
		return AuthorizationState{}, err
	}
	if !still {
		return AuthorizationState{}, fmt.Errorf("search for authorization %s: %w", a.Nonce, errMoved)
	}
	if scope.FromBlock > 0 {
		before, err := t.used(ctx, a, new(big.Int).SetUint64(scope.FromBlock-1))
		if err == nil && before {
			return AuthorizationState{State: Elsewhere, Final: true}, nil // settled for something else, before
		}
	}
	return AuthorizationState{}, fmt.Errorf("search for authorization %s from block %d: it is used, but no log was found", a.Nonce, scope.FromBlock)
}

// uses are the logs of an authorization in the last blocks up to one, at most span of them, and the first of these
// blocks. Of a node that fails half as many are asked, down to one, and no more from then on: nodes search few blocks
// at a time, or few logs, and agree on no error that says so.
func (t *Token) uses(ctx context.Context, a *Authorization, to uint64, span *uint64, scope Scope) (logs []types.Log, from uint64, err error) {
	if to < scope.FromBlock {
		return nil, 0, fmt.Errorf("search block %d for authorization %s: block %d was there before: %w", to, a.Nonce, scope.FromBlock, errMoved)
	}
	for {
		from = max(scope.FromBlock, to-min(to, *span-1))
		logs, err = t.chain.FilterLogs(ctx, ethereum.FilterQuery{
			FromBlock: new(big.Int).SetUint64(from), ToBlock: new(big.Int).SetUint64(to), Addresses: []common.Address{t.terms.Token},
			Topics: [][]common.Hash{{TopicUsed, topicCanceled}, {addressTopic(a.From)}, {a.Nonce}},
		})
		asked := to - from + 1
		switch {
		case err == nil && asked < *span:
			return logs, from, nil // there were no more to ask of
		case err == nil:
			t.span.Store(asked)
			return logs, from, nil
		case asked == 1 || ctx.Err() != nil:
			return nil, 0, fmt.Errorf("search blocks %d to %d for authorization %s: %w", from, to, a.Nonce, err)
		}
		*span = asked / 2
	}
}

// nextSpan is how many blocks a search begins with: twice what was last answered, as that was perhaps another node, or
// a bad moment.
func (t *Token) nextSpan(scope Scope) uint64 {
	most := max(scope.LogRange, 1)
	if span := t.span.Load(); span > 0 {
		return min(2*span, most)
	}
	return most
}
