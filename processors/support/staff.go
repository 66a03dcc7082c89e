package support

import (
	"encoding/json"
	"math/big"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/lienstream/lienstream/topics"
)

// maxReplies bounds a ticket.
const maxReplies = 100

// staff answers, decides and returns deposits. Only what was charged can be answered.
func (t *turn) staff() (Outcome, error) {
	p, err := t.payment(t.cmd.Nonce)
	if err != nil {
		return "", err
	}
	if p == nil || !p.Charged() {
		return Unknown, nil
	}
	k := p.Ticket
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
		if k.Refund == RefundOut {
			return Refused, nil // it is gone
		}
		k.Verdict, k.Status = t.cmd.Verdict, TicketClosed
		k.Refund = RefundKept
		if t.cmd.Verdict == Accepted || t.cmd.Verdict == Rejected && t.cmd.Valid {
			k.Refund = RefundOwed
		}
	case Close:
		k.Status = TicketClosed
	case RefundSent:
		// A second attempt replaces the first only at the same nonce of its sender: one of them can be mined.
		again := k.Refund == RefundOut && k.RefundProof == nil && k.RefundAttempt.Nonce == t.cmd.Attempt.Nonce && k.RefundAttempt.By == t.cmd.Attempt.By
		if k.Refund != RefundOwed && !again {
			return Refused, nil
		}
		k.Refund, k.RefundAttempt = RefundOut, t.cmd.Attempt
	case RefundConfirmed:
		if k.Refund != RefundOut && k.Refund != RefundOwed {
			return Refused, nil
		}
		k.Refund, k.RefundProof = RefundOut, t.cmd.Proof
	case RefundFailed:
		if k.Refund != RefundOut || k.RefundProof != nil && k.RefundProof.Final {
			return Refused, nil
		}
		k.Refund, k.RefundAttempt, k.RefundProof = RefundOwed, nil, nil
	default:
		return Malformed, nil
	}
	k.UpdatedAt = t.at.Unix()
	return Done, t.save(p)
}

// floatTake takes an amount of the float's day, once for a ticket, and refuses what would exceed its ceiling.
func (t *turn) floatTake() (Outcome, error) {
	f, d := t.cmd.Float, t.desk
	if day := DayOf(t.at); d.Day != day {
		d.Day, d.Taken = day, nil
	}
	ticket := TicketID(f.Payer, t.cmd.Nonce)
	if d.Taken[ticket] != nil {
		return Exists, nil
	}
	if new(big.Int).Add(d.taken(), bigOf(f.Amount)).Cmp(bigOf(f.Ceiling)) > 0 {
		return Limited, nil
	}
	if d.Taken == nil {
		d.Taken = map[string]*hexutil.Big{}
	}
	d.Taken[ticket] = f.Amount
	return Done, nil
}

// AuditEvent is a line of the audit: what was done, by whom, to which ticket; and nothing that anybody wrote.
type AuditEvent struct {
	At          int64   `json:"at"`
	Kind        Kind    `json:"kind"`
	Ticket      string  `json:"ticket,omitempty"`
	Wallet      string  `json:"wallet"`
	By          string  `json:"by,omitempty"`
	Verdict     Verdict `json:"verdict,omitempty"`
	Transaction string  `json:"transaction,omitempty"`
	Reason      string  `json:"reason,omitempty"`
}

// audit tells what was done. A command is at one place in its topic, so its line is told once.
func (t *turn) audit() {
	if t.w.Silent() {
		return
	}
	e := AuditEvent{At: t.at.Unix(), Kind: t.cmd.Kind, Wallet: lower(t.key), By: t.cmd.By, Verdict: t.cmd.Verdict, Reason: t.cmd.Reason}
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
		panic(err) // strings and numbers
	}
	t.w.Emit(topics.FamilySupport, []byte(e.Ticket), value)
}
