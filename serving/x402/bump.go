package x402

import (
	"context"
	"errors"
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
)

// Bump resends transactions that the node has lost, and raises the fee of the one that the chain waits for, at
// the same nonce. Call it every few seconds.
func (r *Relayer) Bump(ctx context.Context) error {
	mined, err := r.mined(ctx)
	if err != nil {
		return err
	}
	next, err := r.end(ctx)
	if err != nil || next <= mined {
		return err
	}
	errs := []error{r.restore(ctx, next)}
	now := r.cfg.Now()
	r.mu.Lock()
	if r.first != mined || r.since.IsZero() {
		r.first, r.since = mined, now
	}
	waits := now.Sub(r.since)
	if own := r.open[mined]; own != nil {
		waits = now.Sub(own.at)
	}
	r.mu.Unlock()
	// The others wait for the first one: raising their fees would not help.
	if waits < r.cfg.BumpAfter {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, r.raise(ctx, mined))...)
}

// end is the first unused nonce.
func (r *Relayer) end(ctx context.Context) (uint64, error) {
	if r.cfg.Nonces != nil {
		return r.cfg.Nonces.Next(ctx, r.from)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var next uint64
	for nonce := range r.open {
		next = max(next, nonce+1)
	}
	return next, nil
}

// restore resends transactions that the node does not know, in order, up to one that was not recorded.
func (r *Relayer) restore(ctx context.Context, next uint64) error {
	nonce, err := r.chain.PendingNonceAt(ctx, r.from)
	if err != nil {
		return fmt.Errorf("read the relayer's pending nonce: %w", err)
	}
	for end := min(next, nonce+maxOpen); nonce < end; nonce++ {
		tx, _, err := r.at(ctx, nonce)
		if err != nil || tx == nil {
			return err
		}
		if err := r.broadcast(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// at returns the recorded transaction at a nonce, and how to record a replacement; nil: none is wanted.
func (r *Relayer) at(ctx context.Context, nonce uint64) (*types.Transaction, Record, error) {
	if own := r.waiting(nonce); own != nil {
		return own.tx, own.record, nil
	}
	if r.cfg.Nonces == nil {
		return nil, nil, nil
	}
	a, record, err := r.cfg.Nonces.Recorded(ctx, r.from, nonce)
	if err != nil || a == nil {
		return nil, nil, err
	}
	tx, err := r.own(*a)
	return tx, record, err
}

// raise replaces the transaction that the chain waits for. If there is none, or nobody needs it any more, it
// sends an empty transfer to ourselves.
func (r *Relayer) raise(ctx context.Context, nonce uint64) error {
	r.mu.Lock()
	r.since = r.cfg.Now() // whatever the result, it is retried after the same time
	if own := r.open[nonce]; own != nil {
		own.at = r.since
	}
	r.mu.Unlock()
	before, record, err := r.at(ctx, nonce)
	if err != nil || before == nil && r.cfg.Nonces == nil {
		return err
	}
	tip, fee, err := r.fees(ctx)
	if err != nil {
		return err
	}
	body := &types.DynamicFeeTx{ChainID: new(big.Int).SetUint64(r.terms.ChainID), Nonce: nonce, Gas: plainGas, To: &r.from}
	if before != nil {
		tip, fee = higher(tip, before.GasTipCap()), higher(fee, before.GasFeeCap())
		if fee.Cmp(r.cfg.MaxFeeGas) > 0 {
			return errors.Join(r.broadcast(ctx, before), fmt.Errorf("%w: nonce %d waits", ErrFeeCeiling, nonce))
		}
	}
	body.GasTipCap, body.GasFeeCap = tip, fee
	if before != nil && record != nil {
		same := *body
		same.Gas, same.To, same.Data = before.Gas(), before.To(), before.Data()
		if err := r.send(ctx, &same, record); !errors.Is(err, ErrDecided) {
			return err
		}
	}
	return r.send(ctx, body, func(context.Context, Attempt) error { return nil })
}

// higher is the greater of the suggested fee and the minimum for a replacement.
func higher(suggested, before *big.Int) *big.Int {
	least := new(big.Int).Mul(before, big.NewInt(bumpPercent))
	least.Div(least, big.NewInt(100)).Add(least, common.Big1)
	if least.Cmp(suggested) > 0 {
		return least
	}
	return suggested
}
