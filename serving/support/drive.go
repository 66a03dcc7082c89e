package support

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"go.uber.org/zap"

	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/x402"
)

type driveKey struct {
	payer common.Address
	nonce common.Hash
}

// drive is a payment that this process is settling.
type drive struct {
	key      driveKey
	settling chan struct{} // holds a token while the settler works on it
	handed   time.Time     // when it was last passed to the settler
	reserved uint64        // the reservation that was passed
	failures atomic.Int32  // consecutive failures of the settler since
	moved    chan struct{} // closed once this process has changed its row, and replaced; guarded by Service.mu
	unpaid   netip.Addr    // the client whose budget counts it as unpaid, until it is charged; guarded by Service.mu
}

// drive starts following a payment, unless it is already followed here. It returns at once.
func (s *Service) drive(p *desk.Payment) {
	d := &drive{
		key:      driveKey{p.Authorization.From, p.Authorization.Nonce},
		settling: make(chan struct{}, 1), moved: make(chan struct{}),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drives[d.key] != nil || len(s.drives) >= s.cfg.MaxDriven {
		return // the reconciler retries
	}
	s.drives[d.key] = d
	s.metrics.driven.Set(float64(len(s.drives)))
	s.work <- d // never full: it has room for all drives
	s.head.hurry()
}

// moved is closed when this process changes the payment; nil: this process does not follow it.
func (s *Service) moved(key driveKey) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.drives[key]; d != nil {
		return d.moved
	}
	return nil
}

func (s *Service) tellWaiting(d *drive) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(d.moved)
	d.moved = make(chan struct{})
}

// busy reports whether this process follows any payment.
func (s *Service) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.drives) > 0
}

// startDrives follows each payment in the queue, until ctx is done and all of them have ended.
func (s *Service) startDrives(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			_ = s.group.Wait() // the goroutines return no errors
			return
		case d := <-s.work:
			s.group.Go(func() error {
				s.follow(ctx, d)
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.drives, d.key)
				s.metrics.driven.Set(float64(len(s.drives)))
				return nil
			})
		}
	}
}

// follow advances a payment with the chain until it is final.
func (s *Service) follow(ctx context.Context, d *drive) {
	log := s.log.With(zap.Stringer("payer", d.key.payer), zap.Stringer("authorization", d.key.nonce))
	for {
		_, moved := s.head.now()
		again := s.cfg.Resend
		done, err := s.step(ctx, d, log)
		switch {
		case ctx.Err() != nil || done:
			return
		case err != nil:
			log.Warn("cannot advance a payment", zap.Error(err))
			s.metrics.driveErrors.Inc()
			again = idlePolls * s.cfg.Poll
		}
		t := time.NewTimer(again)
		if err != nil {
			moved = nil // a failed step is not retried at every block
		}
		select {
		case <-ctx.Done():
		case <-moved:
		case <-t.C:
		}
		t.Stop()
	}
}

// step compares a payment with the chain once. done means that it is final.
func (s *Service) step(ctx context.Context, d *drive, log *zap.Logger) (done bool, err error) {
	found, err := s.deps.Desk.Find(ctx, d.key.payer, d.key.nonce)
	if err != nil {
		return false, err
	}
	p := found.Payment
	if p != nil && p.Charged() {
		s.chargedLater(d.key)
	}
	switch {
	case p == nil || p.Status == desk.StatusVoid:
		return true, nil
	case p.Status == desk.StatusFinal:
		return s.stepRefund(ctx, d, p, log)
	}
	if p.Asset != s.terms.Token {
		return false, errAsset
	}
	signed := signedOf(&p.Authorization)
	o, err := s.token.AuthorizationState(ctx, &signed.Authorization, s.scope(p.FromBlock))
	if err != nil {
		s.metrics.chainErrors.Inc()
		return false, err
	}
	switch o.State {
	case x402.Paid:
		if p.Charged() && p.Proof.BlockHash == o.BlockHash && !o.Final {
			return false, nil
		}
		told, err := s.tell(ctx, d, p, &desk.Command{Kind: desk.Paid, Proof: &desk.Proof{
			Transaction: o.Transaction, Block: o.Block, BlockHash: o.BlockHash, Final: o.Final,
		}}, log)
		return o.Final && told, err
	case x402.Cancelled, x402.Elsewhere, x402.Expired:
		if !o.Final {
			return false, nil
		}
		if p.Charged() { // the block with the payment was reverted, and the authorization cancelled
			if _, err := s.tell(ctx, d, p, &desk.Command{Kind: desk.Reorganised}, log); err != nil {
				return false, err
			}
		}
		return s.void(ctx, d, p, o.State, log)
	case x402.Unused:
		if p.Charged() && o.Block < p.Proof.Block {
			return false, nil // this node is behind the one that has the payment
		}
		return false, s.stepUnused(ctx, d, p, signed, log)
	}
	return false, nil
}

// errAsset: the payment is in a token that is no longer the configured one, so its outcome is on another contract.
var errAsset = errors.New("the payment is in another token than --payment-asset")

// void ends a payment that can never be charged. The payer caused that, unless it expired; and also the expiry, if our
// transaction was mined too late: that has cost gas, and the payer chose the time of expiry.
func (s *Service) void(ctx context.Context, d *drive, p *desk.Payment, state x402.State, log *zap.Logger) (done bool, err error) {
	byPayer := state != x402.Expired
	if !byPayer && p.Status == desk.StatusSent && p.Attempt != nil {
		reverted, final, err := s.token.Reverted(ctx, &signedOf(&p.Authorization).Authorization, p.Attempt.Hash, s.scope(p.FromBlock))
		if err != nil {
			s.metrics.chainErrors.Inc()
			return false, err
		}
		if reverted && !final {
			return false, nil
		}
		byPayer = reverted
	}
	return s.tell(ctx, d, p, &desk.Command{
		Kind: desk.Void, Reason: string(reasonOf(state)), Authorization: &p.Authorization, ByPayer: byPayer,
	}, log)
}

// stepUnused passes a payment to the settler, unless the chain has refused it: then it is only watched, because
// it may still be charged, and its wallet may make another payment.
func (s *Service) stepUnused(ctx context.Context, d *drive, p *desk.Payment, signed *x402.Signed, log *zap.Logger) error {
	if p.Status == desk.StatusReleased {
		return nil
	}
	if p.Charged() {
		if _, err := s.tell(ctx, d, p, &desk.Command{Kind: desk.Reorganised}, log); err != nil {
			return err
		}
		d.handed = time.Time{}
	}
	if d.reserved != p.Reserved { // earlier transactions belong to another reservation
		d.handed, d.reserved = time.Time{}, p.Reserved
	}
	if p.Attempt != nil {
		reverted, final, err := s.token.Reverted(ctx, &signed.Authorization, p.Attempt.Hash, s.scope(p.FromBlock))
		switch {
		case err != nil:
			s.metrics.chainErrors.Inc()
			return err
		case final:
			_, err := s.tell(ctx, d, p, &desk.Command{
				Kind: desk.Released, Reason: string(x402.ReasonTransaction), Attempt: &desk.Attempt{Hash: p.Attempt.Hash, Nonce: p.Attempt.Nonce},
			}, log)
			return err
		case reverted:
			return nil
		}
	}
	s.settle(ctx, d, p, signed, desk.Sent, log)
	return nil
}

// tell sends a command for the payment as it was read. done is false if another process was faster, or the payment was
// reserved anew since: then it must be read again.
func (s *Service) tell(ctx context.Context, d *drive, p *desk.Payment, cmd *desk.Command, log *zap.Logger) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd.Nonce, cmd.Reserved = d.key.nonce, p.Reserved
	outcome, _, err := s.deps.Desk.Do(ctx, d.key.payer, cmd)
	if err != nil {
		return false, err
	}
	if cmd.Kind == desk.Paid && outcome == desk.Done {
		s.chargedLater(d.key)
	}
	s.tellWaiting(d)
	s.metrics.payments.WithLabelValues(string(cmd.Kind)).Inc()
	log.Info("payment advanced", zap.String("to", string(cmd.Kind)), zap.String("outcome", string(outcome)), zap.String("reason", cmd.Reason))
	return outcome == desk.Done, nil
}

const commandTimeout = 10 * time.Second

// settle passes a payment or refund to the settler in a goroutine: a facilitator responds only after the chain.
func (s *Service) settle(ctx context.Context, d *drive, p *desk.Payment, signed *x402.Signed, kind desk.Kind, log *zap.Logger) {
	if !d.handed.IsZero() && s.deps.Now().Sub(d.handed) < s.again(d) {
		return
	}
	select {
	case d.settling <- struct{}{}:
	default:
		return
	}
	d.handed = s.deps.Now()
	authorized, last := authorizationOf(signed), p.Attempt
	if kind == desk.RefundSent {
		last = p.Ticket.RefundAttempt
	}
	s.group.Go(func() error {
		defer func() { <-d.settling }()
		record := func(ctx context.Context, a x402.Attempt) error {
			done, err := s.tell(ctx, d, p, &desk.Command{Kind: kind, Attempt: attemptOf(a, &authorized)}, log)
			if err == nil && !done {
				err = x402.ErrDecided
			}
			return err
		}
		var err error
		if last != nil && len(last.Raw) > 0 {
			err = s.deps.Settler.Resume(ctx, signed, x402.Attempt{Hash: last.Hash, Raw: last.Raw, Nonce: last.Nonce}, record)
		} else {
			err = s.deps.Settler.Settle(ctx, signed, record)
		}
		if err == nil {
			d.failures.Store(0)
		} else if ctx.Err() == nil {
			d.failures.Add(1)
			s.metrics.settleErrors.WithLabelValues(settleError(err)).Inc()
			log.Warn("payment not settled yet", zap.Error(err))
		}
		return nil
	})
}

// again is the pause before a payment is passed to the settler once more: short after a failure, because an
// authorization expires, and longer after each further failure.
func (s *Service) again(d *drive) time.Duration {
	failures := d.failures.Load()
	if failures == 0 {
		return s.cfg.Resend
	}
	return min(idlePolls*s.cfg.Poll<<min(failures-1, maxDoublings), s.cfg.Resend)
}

// maxDoublings bounds the doublings of the time between two attempts at a payment.
const maxDoublings = 10

func signedOf(a *desk.Authorization) *x402.Signed {
	return &x402.Signed{
		Authorization: x402.Authorization{
			From: a.From, To: a.To, Value: a.Value.ToInt(), ValidAfter: a.ValidAfter, ValidBefore: a.ValidBefore, Nonce: a.Nonce,
		},
		Signature: a.Signature, Contract: a.Contract,
	}
}

func authorizationOf(s *x402.Signed) desk.Authorization {
	return desk.Authorization{
		From: s.From, To: s.To, Value: (*hexutil.Big)(s.Value), ValidAfter: s.ValidAfter, ValidBefore: s.ValidBefore, Nonce: s.Nonce,
		Signature: s.Signature, Contract: s.Contract,
	}
}

// attemptOf is an attempt to submit an authorization, as the desk records it.
func attemptOf(a x402.Attempt, of *desk.Authorization) *desk.Attempt {
	return &desk.Attempt{Hash: a.Hash, Raw: a.Raw, Nonce: a.Nonce, Authorization: of.Hash()}
}

func reasonOf(state x402.State) x402.Reason {
	switch state {
	case x402.Expired:
		return x402.ReasonValidBefore
	case x402.Elsewhere:
		return x402.ReasonTransfer
	case x402.Unused, x402.Paid, x402.Cancelled:
	}
	return x402.ReasonTransaction
}

func settleError(err error) string {
	switch {
	case errors.Is(err, x402.ErrNoGas):
		return "no_gas"
	case errors.Is(err, x402.ErrFeeCeiling):
		return "fee_ceiling"
	case errors.Is(err, x402.ErrFacilitator):
		return "facilitator"
	case errors.Is(err, x402.ErrBusy):
		return "busy"
	case errors.Is(err, x402.ErrDecided):
		return "decided"
	case errors.Is(err, desk.ErrUnavailable):
		return "desk"
	}
	return "chain"
}
