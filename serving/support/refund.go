package support

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"go.uber.org/zap"

	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/x402"
)

// Float is the account that pays refunds. It only signs, and the settler of payments submits: so it needs no
// gas, and its key is with a member of staff, not in the service.
type Float struct {
	Key     *ecdsa.PrivateKey
	Ceiling *big.Int // per day (UTC), in the asset's smallest unit
	Terms   *x402.Terms
	Chain   x402.ChainReader
}

// Address is the float's address.
func (f *Float) Address() common.Address { return crypto.PubkeyToAddress(f.Key.PublicKey) }

// refundValidity is how long a refund's authorization is valid, before it is FAILED and can be signed again.
const refundValidity = time.Hour

// errCeiling: the refund exceeds the float's daily ceiling.
var errCeiling = errors.New("the refund exceeds the float's daily ceiling")

// Refund signs the refund of a deposit with the float's key. Once the desk has it the service submits it. A
// deposit's refunds all have the same nonce, so the token accepts only one of them.
func (s Staff) Refund(ctx context.Context, id string, f *Float) error {
	found, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	p := found.Payment
	if refund := p.Ticket.Refund; refund != desk.RefundStatusOwed && refund != desk.RefundStatusFailed {
		return fmt.Errorf("the refund of ticket %s is %s, neither %s nor %s", id, refund, desk.RefundStatusOwed, desk.RefundStatusFailed)
	}
	if p.Status != desk.StatusFinal {
		return fmt.Errorf("the payment of ticket %s is not final yet", id)
	}
	if p.Asset != f.Terms.Token {
		return fmt.Errorf("ticket %s was paid in another token: return it by hand, and record the transaction", id)
	}
	token := x402.NewToken(f.Terms, f.Chain)
	if err := charged(ctx, token, p); err != nil {
		return err
	}
	signed, err := f.sign(ctx, p)
	if err != nil {
		return err
	}
	if err := token.Simulate(ctx, signed, common.Address{}); err != nil {
		if refusal, ok := errors.AsType[*x402.Refusal](err); ok && refusal.Reason == x402.ReasonNonceUsed {
			err = errUsed
		}
		return fmt.Errorf("refund ticket %s from %s: %w", id, f.Address(), err)
	}
	day := desk.DayOf(time.Now())
	outcome, err := s.command(ctx, f.Address(), &desk.Command{
		Kind: desk.FloatTake, Nonce: p.Authorization.Nonce,
		Float: &desk.FloatAmount{Payer: p.Authorization.From, Amount: p.Authorization.Value, Ceiling: (*hexutil.Big)(f.Ceiling), Day: day},
	})
	switch {
	case err != nil:
		return err
	case outcome == desk.Limited:
		return fmt.Errorf("ticket %s: %w", id, errCeiling)
	case outcome == desk.Stale:
		return fmt.Errorf("refund ticket %s: it is %s (UTC) by this machine's clock, and %w", id, day, errDay)
	case outcome != desk.Done && outcome != desk.Exists:
		return fmt.Errorf("take the refund of ticket %s from the float: %s", id, outcome)
	}
	authorization := authorizationOf(signed)
	return s.do(ctx, id, &desk.Command{Kind: desk.RefundSent, Return: &authorization})
}

var errDay = errors.New("another day at the desk")

// errUsed: the float can sign no more for this ticket.
var errUsed = errors.New("the refund's authorization was used or cancelled: where the float has no transfer to the payer, send it by hand")

// errNotCharged: a reorganisation deeper than --payment-confirmations has reverted the payment.
var errNotCharged = errors.New("the chain does not have the payment any more")

// charged reads once more whether the chain has the payment: a deposit that was reverted is not returned.
func charged(ctx context.Context, token *x402.Token, p *desk.Payment) error {
	paid, err := token.PaidBy(ctx, &signedOf(&p.Authorization).Authorization, p.Proof.Transaction)
	if err == nil && !paid {
		err = errNotCharged
	}
	if err != nil {
		return fmt.Errorf("look for the payment of ticket %s: %w", p.ID(), err)
	}
	return nil
}

func (f *Float) sign(ctx context.Context, p *desk.Payment) (*x402.Signed, error) {
	head, err := f.Chain.HeaderByNumber(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("read the payment chain's head: %w", err)
	}
	a := x402.Authorization{
		From: f.Address(), To: p.Authorization.From, Value: p.Authorization.Value.ToInt(),
		ValidBefore: head.Time + uint64(refundValidity.Seconds()),
		Nonce:       desk.RefundNonce(p.Authorization.From, p.Authorization.Nonce),
	}
	digest := f.Terms.Digest(&a)
	signature, err := crypto.Sign(digest[:], f.Key)
	if err != nil {
		return nil, fmt.Errorf("sign the refund: %w", err)
	}
	signature[64] += 27 // as tokens expect
	return &x402.Signed{Authorization: a, Signature: signature}, nil
}

// stepRefund compares a pending refund with the chain once.
func (s *Service) stepRefund(ctx context.Context, d *drive, p *desk.Payment, log *zap.Logger) (done bool, err error) {
	k := p.Ticket
	if k == nil || k.Refund != desk.RefundStatusSent || k.Return == nil {
		return true, nil
	}
	signed := signedOf(k.Return)
	scope := s.scope(p.FromBlock)
	if p.Asset != s.terms.Token {
		return false, errAsset
	}
	o, err := s.token.AuthorizationState(ctx, &signed.Authorization, scope)
	switch {
	case err != nil:
		s.metrics.chainErrors.Inc()
		return false, err
	case o.State == x402.Unused:
		if k.RefundAttempt != nil {
			// A reverted refund is not sent again: it ends with its validity.
			if reverted, _, err := s.token.Reverted(ctx, &signed.Authorization, k.RefundAttempt.Hash, scope); err != nil || reverted {
				return false, err
			}
		}
		s.settle(ctx, d, p, signed, desk.RefundSent, log)
		return false, nil
	case !o.Final:
		return false, nil
	case o.State == x402.Paid:
		return s.tell(ctx, d, p, &desk.Command{Kind: desk.RefundConfirmed, Proof: &desk.Proof{
			Transaction: o.Transaction, Block: o.Block, BlockHash: o.BlockHash, Final: true,
		}}, log)
	}
	return s.tell(ctx, d, p, &desk.Command{Kind: desk.RefundFailed, Return: k.Return, Reason: string(reasonOf(o.State))}, log)
}

// scope is where to search for the outcome of an authorization.
func (s *Service) scope(from uint64) x402.Scope {
	return x402.Scope{FromBlock: from, Confirmations: s.cfg.Confirmations, LogRange: s.cfg.LogRange}
}
