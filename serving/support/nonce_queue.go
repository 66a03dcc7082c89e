package support

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"

	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/x402"
)

// NonceQueue assigns the relayer's nonces on a chain. The desk keeps them: all processes with the relayer's key share
// it.
type NonceQueue struct {
	Desk  *desk.Client
	Chain uint64 // ID of the payment chain
}

// Take implements x402.Nonces.
func (q NonceQueue) Take(ctx context.Context, relayer common.Address, a *x402.Authorization, mined, deep uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	outcome, found, err := q.Desk.Do(ctx, relayer, &desk.Command{
		Kind: desk.TakeNonce, Nonce: a.Nonce, Take: &desk.NonceRequest{Chain: q.Chain, From: a.From, To: a.To, Mined: mined, Deep: min(deep, mined)},
	})
	if found.Desk != nil { // the row has it, if the outcome was evicted
		if nonce, has := found.Desk.Queue(q.Chain, mined).Slot(a.From, a.Nonce, mined); has {
			return nonce, nil
		}
	}
	switch {
	case err != nil:
		return 0, err
	case outcome == desk.Limited:
		return 0, x402.ErrBusy
	}
	return 0, fmt.Errorf("take a nonce of %s on chain %d: %s", relayer, q.Chain, outcome)
}

// Next implements x402.Nonces.
func (q NonceQueue) Next(ctx context.Context, relayer common.Address, mined uint64) (uint64, error) {
	found, err := q.Desk.Find(ctx, relayer, common.Hash{})
	if err != nil {
		return 0, err
	}
	return found.Desk.Queue(q.Chain, mined).Next, nil
}

// Recorded implements x402.Nonces.
func (q NonceQueue) Recorded(ctx context.Context, relayer common.Address, nonce uint64) (*x402.Attempt, x402.Record, error) {
	found, err := q.Desk.Find(ctx, relayer, common.Hash{})
	if err != nil {
		return nil, nil, err
	}
	slots := found.Desk.Queue(q.Chain, nonce).Slots // for the caller no nonce from this one on is mined
	i := slices.IndexFunc(slots, func(s desk.Slot) bool { return s.Nonce == nonce })
	if i < 0 {
		return nil, nil, nil
	}
	slot := &slots[i]
	if found, err = q.Desk.Find(ctx, slot.From, slot.Authorization); err != nil {
		return nil, nil, err
	}
	if p := found.Payment; p != nil {
		wanted := p.Status == desk.StatusReserved || p.Status == desk.StatusSent
		return q.attempt(p, p.Attempt, nonce, desk.Sent, &p.Authorization, wanted)
	}
	p, err := q.refund(ctx, slot)
	if err != nil || p == nil {
		return nil, nil, err
	}
	return q.attempt(p, p.Ticket.RefundAttempt, nonce, desk.RefundSent, p.Ticket.Return, true)
}

func (q NonceQueue) attempt(p *desk.Payment, a *desk.Attempt, nonce uint64, kind desk.Kind, of *desk.Authorization, wanted bool) (*x402.Attempt, x402.Record, error) {
	if a == nil || a.Nonce != nonce {
		return nil, nil, nil
	}
	attempt := &x402.Attempt{Hash: a.Hash, Raw: a.Raw, Nonce: a.Nonce}
	if !wanted {
		return attempt, nil, nil
	}
	return attempt, func(ctx context.Context, a x402.Attempt) error {
		ctx, cancel := context.WithTimeout(ctx, commandTimeout)
		defer cancel()
		outcome, _, err := q.Desk.Do(ctx, p.Authorization.From, &desk.Command{
			Kind: kind, Nonce: p.Authorization.Nonce, Reserved: p.Reserved, Attempt: attemptOf(a, of),
		})
		if err == nil && outcome != desk.Done {
			err = x402.ErrDecided
		}
		return err
	}, nil
}

// refund is the payment whose refund has the slot; nil: it is decided.
func (q NonceQueue) refund(ctx context.Context, slot *desk.Slot) (*desk.Payment, error) {
	open, _, err := q.Desk.List(ctx, q.Desk.Partition(slot.To), true, desk.BeforeWallet(slot.To), sweepLimit)
	if err != nil {
		return nil, err
	}
	for _, p := range open {
		if !bytes.Equal(p.Authorization.From[:], slot.To[:]) {
			break
		}
		if p.Ticket != nil && p.Ticket.Return != nil && p.Ticket.Return.Nonce == slot.Authorization {
			return p, nil
		}
	}
	return nil, nil
}
