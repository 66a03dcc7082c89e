package x402

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
)

// maxFill bounds the gaps that one Bump fills.
const maxFill = 64

// Bump resends transactions that the node has lost, fills gaps, and raises the fee of the one that the chain waits
// for, at the same nonce. Call it every few seconds.
func (r *Relayer) Bump(ctx context.Context) error {
	mined, err := r.mined(ctx)
	if err != nil {
		return err
	}
	next, err := r.end(ctx, mined)
	if err != nil || next <= mined {
		return err
	}
	gap, err := r.restore(ctx, next)
	errs := []error{err}
	if err == nil && r.cfg.Nonces != nil {
		errs = append(errs, r.fill(ctx, max(gap, mined), next))
	}
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
func (r *Relayer) end(ctx context.Context, mined uint64) (uint64, error) {
	if r.cfg.Nonces != nil {
		return r.cfg.Nonces.Next(ctx, r.from, mined)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var next uint64
	for nonce := range r.open {
		next = max(next, nonce+1)
	}
	return next, nil
}

// restore resends transactions that the node does not know, in order, up to one that was not recorded, and returns its
// nonce.
func (r *Relayer) restore(ctx context.Context, next uint64) (gap uint64, err error) {
	nonce, err := r.chain.PendingNonceAt(ctx, r.from)
	if err != nil {
		return 0, fmt.Errorf("read the relayer's pending nonce: %w", err)
	}
	for end := min(next, nonce+maxOpen); nonce < end; nonce++ {
		tx, _, err := r.at(ctx, nonce)
		if err != nil || tx == nil {
			return nonce, err
		}
		if err := r.broadcast(ctx, tx); err != nil {
			return nonce, err
		}
	}
	return nonce, nil
}

// fill sends an empty transfer at each nonce, from one on, for which nothing was recorded since BumpAfter: the process
// that took it has died. It fills them together, because each delays all later ones.
func (r *Relayer) fill(ctx context.Context, from, next uint64) error {
	due, err := r.gapsIn(ctx, from, next)
	if err != nil || len(due) == 0 {
		return err
	}
	tip, fee, err := r.fees(ctx)
	if err != nil {
		return err
	}
	for _, nonce := range due[:min(len(due), maxFill)] {
		if err := r.empty(ctx, nonce, tip, fee); err != nil {
			return err
		}
	}
	return nil
}

// gapsIn returns the nonces that were gaps for long, and keeps since when the others are.
func (r *Relayer) gapsIn(ctx context.Context, from, next uint64) (due []uint64, err error) {
	now, gaps := r.cfg.Now(), map[uint64]time.Time{}
	for nonce := from; nonce < min(next, from+maxOpen); nonce++ {
		tx, _, err := r.at(ctx, nonce)
		if err != nil {
			return nil, err
		}
		if tx != nil {
			continue
		}
		r.mu.Lock()
		since, known := r.gaps[nonce]
		r.mu.Unlock()
		if !known {
			since = now
		}
		gaps[nonce] = since
		if now.Sub(since) >= r.cfg.BumpAfter {
			due = append(due, nonce)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gaps = gaps
	return due, nil
}

// empty sends a transfer of nothing to ourselves.
func (r *Relayer) empty(ctx context.Context, nonce uint64, tip, fee *big.Int) error {
	return r.send(ctx, &types.DynamicFeeTx{
		ChainID: new(big.Int).SetUint64(r.terms.ChainID), Nonce: nonce, GasTipCap: tip, GasFeeCap: fee, Gas: plainGas, To: &r.from,
	}, func(context.Context, Attempt) error { return nil })
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

// raise replaces the transaction that the chain waits for. If there is none, or it is not needed any more, it
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
	if before != nil {
		tip, fee = higher(tip, before.GasTipCap()), higher(fee, before.GasFeeCap())
		if fee.Cmp(r.cfg.MaxFeeGas) > 0 {
			return errors.Join(r.broadcast(ctx, before), fmt.Errorf("%w: nonce %d waits", ErrFeeCeiling, nonce))
		}
	}
	if before != nil && record != nil {
		err := r.send(ctx, &types.DynamicFeeTx{
			ChainID: new(big.Int).SetUint64(r.terms.ChainID), Nonce: nonce, GasTipCap: tip, GasFeeCap: fee,
			Gas: before.Gas(), To: before.To(), Data: before.Data(),
		}, record)
		if !errors.Is(err, ErrDecided) {
			return err
		}
	}
	return r.empty(ctx, nonce, tip, fee)
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
