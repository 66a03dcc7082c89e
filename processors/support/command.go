package support

import (
	"errors"
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/go-json-experiment/json"
)

// Kind is what a command asks for.
type Kind string

// The kinds.
const (
	Reserve         Kind = "reserve"          // a place for a payment, before anything is charged
	Sent            Kind = "sent"             // a transaction of ours is about to leave
	Paid            Kind = "paid"             // the chain says so
	Reorganised     Kind = "reorganised"      // the block that said so is gone
	Released        Kind = "released"         // refused by the chain, but not yet beyond being charged
	Void            Kind = "void"             // it can never be charged
	Reply           Kind = "reply"            // staff answer
	Decide          Kind = "decide"           // staff decide
	Close           Kind = "close"            // staff close
	RefundSent      Kind = "refund-sent"      // the float signed it, or a transaction with it is about to leave
	RefundConfirmed Kind = "refund-confirmed" // the chain says so
	RefundFailed    Kind = "refund-failed"    // the chain says that what was signed can move nothing any more
	FloatTake       Kind = "float-take"       // the float's own: an amount of the day's
	TakeNonce       Kind = "take-nonce"       // the relayer's own: the nonce of its next transaction
)

// Outcome is what a command came to.
type Outcome string

// The outcomes.
const (
	Done      Outcome = "done"
	Exists    Outcome = "exists"    // the same payment is there
	Conflict  Outcome = "conflict"  // the same nonce, for something else
	Limited   Outcome = "limited"   // the wallet has its payment for the day, or an undecided one
	Unknown   Outcome = "unknown"   // no such payment
	Refused   Outcome = "refused"   // not in this state
	Malformed Outcome = "malformed" // it lacks what its kind needs
	Stranger  Outcome = "stranger"  // not signed by the key of who it names
)

// Command is a record of the command topic, keyed by the wallet that pays; FloatTake and TakeNonce by the float's and the
// relayer's own.
type Command struct {
	ID    string      `json:"id"` // chosen by the sender; the same command sent twice is applied once
	Kind  Kind        `json:"kind"`
	Nonce common.Hash `json:"nonce"` // of the payment

	Reservation *Reservation   `json:"reservation,omitempty"`
	Attempt     *Attempt       `json:"attempt,omitempty"`
	Return      *Authorization `json:"return,omitempty"` // of the float: a refund, or which of them failed
	Proof       *Proof         `json:"proof,omitempty"`
	Reason      string         `json:"reason,omitempty"`    // one of ours, never a person's words
	By          string         `json:"by,omitempty"`        // the member of staff
	Signature   hexutil.Bytes  `json:"signature,omitempty"` // and that it was him
	Sealed      []byte         `json:"sealed,omitempty"`    // a reply
	Verdict     Verdict        `json:"verdict,omitempty"`
	Valid       bool           `json:"valid,omitempty"` // a rejected report whose deposit is returned all the same
	Float       *FloatAmount   `json:"float,omitempty"`
	Lane        *LaneRequest   `json:"lane,omitempty"`
}

// Authorization is the EIP-3009 authorization of a payment.
type Authorization struct {
	From        common.Address `json:"from"`
	To          common.Address `json:"to"`
	Value       *hexutil.Big   `json:"value"`
	ValidAfter  uint64         `json:"validAfter"`
	ValidBefore uint64         `json:"validBefore"`
	Nonce       common.Hash    `json:"nonce"`
	Signature   hexutil.Bytes  `json:"signature"`
	Contract    bool           `json:"contract,omitempty"`
}

// Reservation is all that it takes to settle a payment and to open its ticket, whoever goes on with it.
type Reservation struct {
	Authorization Authorization  `json:"authorization"`
	Asset         common.Address `json:"asset"`
	BodyDigest    common.Hash    `json:"bodyDigest"` // SHA-256 of the request's body
	FromBlock     uint64         `json:"fromBlock"`  // of the payment chain: it was not charged before
	Report        []byte         `json:"report"`     // sealed
}

// Attempt is a transaction of ours.
type Attempt struct {
	Hash  common.Hash   `json:"hash"`
	Raw   hexutil.Bytes `json:"raw"`
	Nonce uint64        `json:"nonce"`
	By    string        `json:"by,omitempty"` // the process that sends it
}

// Proof is where the chain says it.
type Proof struct {
	Transaction common.Hash `json:"transaction"`
	Block       uint64      `json:"block"`
	BlockHash   common.Hash `json:"blockHash"`
	Final       bool        `json:"final"`
}

// FloatAmount is what is taken of the float's day.
type FloatAmount struct {
	Payer   common.Address `json:"payer"`
	Amount  *hexutil.Big   `json:"amount"`
	Ceiling *hexutil.Big   `json:"ceiling"` // of a day
}

// LaneRequest asks for a nonce of the relayer's, for the authorization of the command's nonce.
type LaneRequest struct {
	From  common.Address `json:"from"` // of the authorization
	To    common.Address `json:"to"`
	Mined uint64         `json:"mined"` // the relayer's nonce on the chain
	Deep  uint64         `json:"deep"`  // and where no reorganisation reaches
}

// Verdict is the outcome of a report.
type Verdict string

// The verdicts.
const (
	Pending   Verdict = "PENDING"
	Accepted  Verdict = "ACCEPTED"
	Duplicate Verdict = "DUPLICATE"
	Rejected  Verdict = "REJECTED"
)

// The bounds of a command.
const (
	maxCommandBytes = 256 << 10
	maxIDBytes      = 64
	maxNameBytes    = 64
	maxReasonBytes  = 128
	maxSealedBytes  = 128 << 10
	maxRawBytes     = 16 << 10
	maxNonce        = 1 << 62
)

// EncodeCommand renders a command as the value of its record.
func EncodeCommand(c *Command) ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	value, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode command: %w", err)
	}
	return value, nil
}

// DecodeCommand reads the value of a record.
func DecodeCommand(value []byte) (*Command, error) {
	if len(value) > maxCommandBytes {
		return nil, fmt.Errorf("command: %d bytes are too many", len(value))
	}
	var c Command
	if err := json.Unmarshal(value, &c, json.RejectUnknownMembers(true)); err != nil {
		return nil, errors.New("command: malformed") // the detail would quote it
	}
	return &c, c.Validate()
}

// Validate names every field that its kind lacks, or that is out of bounds.
func (c *Command) Validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("command %.32q: "+format, append([]any{string(c.Kind)}, args...)...))
		}
	}
	fault(c.ID == "" || len(c.ID) > maxIDBytes, "id: %d bytes", len(c.ID))
	fault(len(c.By) > maxNameBytes, "by: %d bytes", len(c.By))
	fault(c.byStaff() && c.By == "", "by: required")
	fault((c.By == "") != (len(c.Signature) == 0) || len(c.Signature) > crypto.SignatureLength, "signature: %d bytes", len(c.Signature))
	fault(len(c.Reason) > maxReasonBytes, "reason: %d bytes", len(c.Reason))
	fault(len(c.Sealed) > maxSealedBytes, "sealed: %d bytes", len(c.Sealed))
	fault(c.Attempt != nil && len(c.Attempt.Raw) > maxRawBytes, "raw: too long")
	switch c.Kind {
	case Reserve:
		r := c.Reservation
		fault(r == nil, "reservation: required")
		if r == nil {
			break
		}
		r.Authorization.validate(fault)
		fault(r.Authorization.Nonce != c.Nonce, "nonce: does not match the authorization")
		fault(len(r.Report) == 0 || len(r.Report) > maxSealedBytes, "report: %d bytes", len(r.Report))
	case RefundSent:
		fault((c.Return == nil) == (c.Attempt == nil), "return, attempt: exactly one is required")
		if c.Return != nil {
			c.Return.validate(fault)
		}
	case Sent:
		fault(c.Attempt == nil, "attempt: required")
	case Paid, RefundConfirmed:
		fault(c.Proof == nil, "proof: required")
	case Reply:
		fault(len(c.Sealed) == 0, "sealed: required")
	case Decide:
		fault(c.Verdict != Accepted && c.Verdict != Duplicate && c.Verdict != Rejected, "verdict: %.16q", string(c.Verdict))
	case FloatTake:
		fault(c.Float == nil || !amount(c.Float.Amount) || !amount(c.Float.Ceiling), "float: amounts must be positive")
	case TakeNonce:
		fault(c.Lane == nil || c.Lane.Deep > c.Lane.Mined || c.Lane.Mined > maxNonce, "lane: none, or not in order")
	case RefundFailed:
		fault(c.Return == nil, "return: none")
	case Close, Reorganised, Released, Void:
	default:
		fault(true, "kind: unknown")
	}
	return errors.Join(faults...)
}

// sameAs says whether both authorize the same. One key signs the same in many ways.
func (a *Authorization) sameAs(b *Authorization) bool {
	return a.From == b.From && a.To == b.To && bigOf(a.Value).Cmp(bigOf(b.Value)) == 0 &&
		a.ValidAfter == b.ValidAfter && a.ValidBefore == b.ValidBefore && a.Nonce == b.Nonce
}

func (a *Authorization) validate(fault func(bad bool, format string, args ...any)) {
	fault(!amount(a.Value), "value: not positive")
	fault(len(a.Signature) == 0 || len(a.Signature) > maxRawBytes, "signature: %d bytes", len(a.Signature))
}

func amount(n *hexutil.Big) bool {
	return n != nil && n.ToInt().Sign() > 0 && n.ToInt().BitLen() <= 256
}

func bigOf(n *hexutil.Big) *big.Int {
	if n == nil {
		return new(big.Int)
	}
	return n.ToInt()
}
