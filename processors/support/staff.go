package support

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/lienstream/lienstream/topics"
)

// maxReplies bounds the replies of a ticket.
const maxReplies = 100

// staff applies replies, decisions and refunds. Only a charged payment has a ticket to reply to.
func (t *execution) staff() (Outcome, error) {
	p, err := t.payment(t.cmd.Nonce)
	if err != nil {
		return "", err
	}
	if p == nil || !p.Charged() {
		return Unknown, nil
	}
	k := p.Ticket
	switch {
	case t.cmd.By == "" && t.cmd.Reserved != p.Reserved:
		return Refused, nil
	case t.cmd.By == "":
	case t.cmd.Reserved != p.Reserved, t.cmd.Seq != k.Seq+1:
		return Stale, nil
	default:
		k.Seq++
	}
	switch t.cmd.Kind {
	case Reply:
		if len(k.Replies) >= maxReplies {
			return Refused, nil
		}
		k.Replies = append(k.Replies, Note{At: t.at.Unix(), By: t.cmd.By, Sealed: t.cmd.Sealed})
		if k.Status == TicketOpen {
			k.Status = TicketAnswered
		}
	case Decide:
		if k.Refund == RefundStatusSent || k.Refund == RefundStatusConfirmed {
			return Refused, nil // the ticket is gone
		}
		k.Verdict, k.Status = t.cmd.Verdict, TicketClosed
		k.Refund = RefundStatusKept
		if t.cmd.Verdict == Accepted || t.cmd.Verdict == Rejected && t.cmd.Valid {
			k.Refund = RefundStatusOwed
		}
	case Close:
		k.Status = TicketClosed
	case RefundSent:
		if o := t.refundSent(p); o != Done {
			return o, nil
		}
	case RefundConfirmed:
		if o, err := t.refundConfirmed(p); o != Done {
			return o, err
		}
	case RefundFailed, RefundByHand, RefundNotSent:
		if !t.refund(p) {
			return Refused, nil
		}
	default:
		return Malformed, nil
	}
	k.UpdatedAt = t.at.Unix()
	return Done, t.save(p)
}

// refund applies the state of a refund. A refund by hand is announced first, so that no other is sent.
func (t *execution) refund(p *Payment) bool {
	k := p.Ticket
	switch t.cmd.Kind {
	case RefundByHand:
		if !owed(p) {
			return false
		}
		k.Refund, k.ByHand, k.ByHandFrom, k.ReturnedAt = RefundStatusSent, t.cmd.By, t.cmd.Head, t.at.Unix()
	case RefundNotSent:
		if !k.sentByHand() {
			return false
		}
		k.Refund, k.ByHand, k.ByHandFrom = RefundStatusOwed, "", 0
	default: // RefundFailed; a later one may be pending
		if k.Refund != RefundStatusSent || k.Return == nil || !k.Return.sameAs(t.cmd.Return) {
			return false
		}
		k.Refund, k.Return, k.RefundAttempt = RefundStatusFailed, nil, nil
	}
	return true
}

// refundConfirmed applies that a refund is on the chain. Staff record those sent by hand, announced or not; those of
// the float are read from the chain. A transaction by hand refunds one payment of a wallet, however many members of
// staff record it at once.
func (t *execution) refundConfirmed(p *Payment) (Outcome, error) {
	k := p.Ticket
	admitted := k.Refund == RefundStatusSent && !k.sentByHand()
	if t.cmd.By != "" {
		admitted = k.sentByHand() || owed(p)
	}
	if !admitted {
		return Refused, nil
	}
	key, nonce := paymentKey(t.key, t.cmd.Proof.Transaction), p.Authorization.Nonce
	of, err := t.w.Get(refunds, key)
	if err != nil {
		return "", fmt.Errorf("read refund: %w", err)
	}
	switch {
	case of == nil:
		t.w.Put(refunds, key, nonce[:])
	case t.cmd.By != "" && !bytes.Equal(of, nonce[:]):
		return Conflict, nil
	}
	k.Refund, k.RefundProof = RefundStatusConfirmed, t.cmd.Proof
	return Done, nil
}

// owed reports whether a refund may be sent: no reorganisation can revert the payment, and no other refund is being
// sent.
func owed(p *Payment) bool {
	return p.Status == StatusFinal && (p.Ticket.Refund == RefundStatusOwed || p.Ticket.Refund == RefundStatusFailed)
}

// refundSent records the float's signed refund, once, and then each transaction with it. A payment that a reorg
// may still revert is not refunded.
func (t *execution) refundSent(p *Payment) Outcome {
	k, signed := p.Ticket, t.cmd.Return
	if signed == nil {
		if k.Refund != RefundStatusSent || !t.cmd.Attempt.has(k.Return) {
			return Refused // or it belongs to the refund before, which has failed
		}
		k.RefundAttempt = t.cmd.Attempt
		return Done
	}
	if !owed(p) {
		return Refused
	}
	if signed.To != t.key || signed.Nonce != RefundNonce(t.key, t.cmd.Nonce) || bigOf(signed.Value).Cmp(bigOf(p.Authorization.Value)) != 0 {
		return Malformed
	}
	k.Refund, k.Return, k.ReturnedAt, k.RefundAttempt, k.RefundProof = RefundStatusSent, signed, t.at.Unix(), nil, nil
	return Done
}

// floatTake takes an amount from the float's daily ceiling, once per ticket, and refuses to exceed it.
func (t *execution) floatTake() (Outcome, error) {
	f, d := t.cmd.Float, t.desk
	day := dayAt(t.at, d.FloatDay)
	if f.Day != day {
		return Stale, nil
	}
	taken := d.Taken
	if d.FloatDay < day {
		taken = nil
	}
	ticket := TicketID(f.Payer, t.cmd.Nonce)
	if taken[ticket] != nil {
		return Exists, nil
	}
	if new(big.Int).Add(sumOf(taken), bigOf(f.Amount)).Cmp(bigOf(f.Ceiling)) > 0 {
		return Limited, nil
	}
	if taken == nil {
		taken = map[string]*hexutil.Big{}
	}
	taken[ticket] = f.Amount
	d.FloatDay, d.Taken = day, taken
	return Done, nil
}

// AuditEvent is a record of the audit log: an action, the member of staff, and the ticket. It has no user text.
type AuditEvent struct {
	At          int64   `json:"at"`
	Kind        Kind    `json:"kind"`
	Ticket      string  `json:"ticket,omitempty"`
	Wallet      string  `json:"wallet"`
	By          string  `json:"by,omitempty"`
	Key         string  `json:"key,omitempty"` // address of the key that signed
	Verdict     Verdict `json:"verdict,omitempty"`
	Transaction string  `json:"transaction,omitempty"`
	Reason      string  `json:"reason,omitempty"`
}

// audit emits the audit event. A command has one position in its topic, so it is emitted once.
func (t *execution) audit() {
	if t.w.Silent() {
		return
	}
	e := AuditEvent{At: t.at.Unix(), Kind: t.cmd.Kind, Wallet: lower(t.key), By: t.cmd.By, Verdict: t.cmd.Verdict, Reason: t.cmd.Reason}
	if t.cmd.By != "" {
		e.Key = lower(t.by)
	}
	if t.cmd.Kind != FloatTake {
		e.Ticket = TicketID(t.key, t.cmd.Nonce)
	}
	switch {
	case t.cmd.Proof != nil:
		e.Transaction = t.cmd.Proof.Transaction.Hex()
	case t.cmd.Attempt != nil:
		e.Transaction = t.cmd.Attempt.Hash.Hex()
	}
	value, err := json.Marshal(e)
	if err != nil {
		panic(err) // cannot fail: strings and numbers
	}
	t.w.Emit(topics.FamilySupport, []byte(e.Ticket), value)
}
