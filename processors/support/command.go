package support

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/go-json-experiment/json"
)

// Kind is the kind of a command.
type Kind string

// The kinds.
const (
	Reserve         Kind = "reserve"          // a payment, before anything is charged
	Sent            Kind = "sent"             // a transaction of ours is about to be sent
	Paid            Kind = "paid"             // the payment is on the chain
	Reorganised     Kind = "reorganised"      // the block with the payment was reverted
	Released        Kind = "released"         // the chain refused the payment, which may still be charged later
	Void            Kind = "void"             // the payment can never be charged
	Reply           Kind = "reply"            // staff reply
	Decide          Kind = "decide"           // staff decide
	Close           Kind = "close"            // staff close the ticket
	RefundSent      Kind = "refund-sent"      // the float signed a refund, or a transaction with it is about to be sent
	RefundConfirmed Kind = "refund-confirmed" // the refund is on the chain
	RefundFailed    Kind = "refund-failed"    // the signed refund can no longer be executed
	RefundByHand    Kind = "refund-by-hand"   // a member of staff will send it from another account: the float no longer may
	RefundNotSent   Kind = "refund-not-sent"  // the member of staff has not sent it, and will not
	FloatTake       Kind = "float-take"       // of the float: an amount within the day's ceiling
	TakeNonce       Kind = "take-nonce"       // of the relayer: the nonce of its next transaction
)

// Outcome is the outcome of a command.
type Outcome string

// The outcomes.
const (
	Done      Outcome = "done"
	Exists    Outcome = "exists"    // the same payment exists
	Conflict  Outcome = "conflict"  // the same nonce or transaction, for something else
	Limited   Outcome = "limited"   // the wallet has its payment for the day, an undecided one, or too many that failed
	Unknown   Outcome = "unknown"   // no such payment
	Refused   Outcome = "refused"   // not in this state
	Malformed Outcome = "malformed" // it lacks what its kind needs
	Stranger  Outcome = "stranger"  // not signed by a key of the member of staff that it names
	Stale     Outcome = "stale"     // signed for a ticket that has changed since, or for another day
)

// Command is a record of the command topic, keyed by the paying wallet; FloatTake and TakeNonce are keyed by
// the float's and the relayer's address.
type Command struct {
	ID    string      `json:"id"` // chosen by the sender; the same command sent twice is applied once
	Kind  Kind        `json:"kind"`
	Nonce common.Hash `json:"nonce"` // of the payment

	Reserved uint64 `json:"reserved,omitempty"` // number of the payment's reservation that it is about, from 1 on

	Reservation   *Reservation   `json:"reservation,omitempty"`
	Attempt       *Attempt       `json:"attempt,omitempty"`       // the one to be sent, or the one that the chain refused
	Authorization *Authorization `json:"authorization,omitempty"` // the one of the payment's nonce that is void
	ByPayer       bool           `json:"byPayer,omitempty"`       // the payer caused that: our transaction with it cost gas
	Return        *Authorization `json:"return,omitempty"`        // of the float: a refund, or the one that failed
	Proof         *Proof         `json:"proof,omitempty"`
	Reason        string         `json:"reason,omitempty"`    // a code of ours, never free text
	By            string         `json:"by,omitempty"`        // staff member
	Signature     hexutil.Bytes  `json:"signature,omitempty"` // of the member of staff
	Seq           uint64         `json:"seq,omitempty"`       // of a ticket's signed commands, from 1 on, so that a signed command is applied once
	Head          uint64         `json:"head,omitempty"`      // of the payment chain when a refund by hand was announced
	Sealed        []byte         `json:"sealed,omitempty"`    // an encrypted reply
	Verdict       Verdict        `json:"verdict,omitempty"`
	Valid         bool           `json:"valid,omitempty"` // a rejected report whose deposit is returned all the same
	Float         *FloatAmount   `json:"float,omitempty"`
	Take          *NonceRequest  `json:"take,omitempty"`
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

// Reservation has everything needed to settle a payment and open its ticket, by any node.
type Reservation struct {
	Authorization Authorization  `json:"authorization"`
	Asset         common.Address `json:"asset"`
	BodyDigest    common.Hash    `json:"bodyDigest"` // SHA-256 of the request's body
	FromBlock     uint64         `json:"fromBlock"`  // of the payment chain: it was not charged before
	Report        []byte         `json:"report"`     // encrypted
}

// Attempt is a transaction that we sent.
type Attempt struct {
	Hash          common.Hash   `json:"hash"`
	Raw           hexutil.Bytes `json:"raw"`
	Nonce         uint64        `json:"nonce"`
	Authorization common.Hash   `json:"authorization,omitzero"` // Authorization.Hash of its authorization; zero: unknown
}

// Proof is where on the chain the payment is.
type Proof struct {
	Transaction common.Hash `json:"transaction"`
	Block       uint64      `json:"block"`
	BlockHash   common.Hash `json:"blockHash"`
	Final       bool        `json:"final"`
}

// FloatAmount is an amount taken from the float's daily ceiling.
type FloatAmount struct {
	Payer   common.Address `json:"payer"`
	Amount  *hexutil.Big   `json:"amount"`
	Ceiling *hexutil.Big   `json:"ceiling"` // per day
	Day     string         `json:"day"`     // the day (UTC) of the amount
}

// NonceRequest asks for a nonce of the relayer on a chain, for the authorization with the command's nonce.
type NonceRequest struct {
	Chain uint64         `json:"chain,omitempty"` // its ID; 0, which older processes write, is refused
	From  common.Address `json:"from"`            // of the authorization
	To    common.Address `json:"to"`
	Mined uint64         `json:"mined"` // the relayer's nonce on the chain
	Deep  uint64         `json:"deep"`  // the same, below the reach of reorganisations
}

// Verdict is the decision on a report.
type Verdict string

// The verdicts.
const (
	Pending   Verdict = "PENDING"
	Accepted  Verdict = "ACCEPTED"
	Duplicate Verdict = "DUPLICATE"
	Rejected  Verdict = "REJECTED"
)

// Bounds of a command.
const (
	maxCommandBytes = 256 << 10
	maxIDBytes      = 64
	maxNameBytes    = 64
	maxReasonBytes  = 128
	maxSealedBytes  = 128 << 10
	maxRawBytes     = 16 << 10
	maxNonce        = 1 << 62
)

// EncodeCommand encodes the value of a command's record.
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

// DecodeCommand decodes the value of a record.
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

// Validate returns an error for every field that is missing or out of bounds.
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
	if c.Authorization != nil {
		c.Authorization.validate(fault)
	}
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
		fault(c.Valid && c.Verdict != Rejected, "valid: only what is %s is marked so", Rejected)
	case FloatTake:
		fault(c.Float == nil || !amount(c.Float.Amount) || !amount(c.Float.Ceiling), "float: amounts must be positive")
	case TakeNonce:
		fault(c.Take == nil || c.Take.Deep > c.Take.Mined || c.Take.Mined > maxNonce, "take: missing, or out of order")
	case RefundFailed:
		fault(c.Return == nil, "return: required")
	case Close, Reorganised, Released, Void, RefundByHand, RefundNotSent:
	default:
		fault(true, "kind: unknown")
	}
	return errors.Join(faults...)
}

// Hash identifies what is authorized, without the signature, which has many valid forms.
func (a *Authorization) Hash() common.Hash {
	value := common.BigToHash(bigOf(a.Value))
	text := binary.BigEndian.AppendUint64(slices.Concat(a.From[:], a.To[:], value[:], a.Nonce[:]), a.ValidAfter)
	return crypto.Keccak256Hash(binary.BigEndian.AppendUint64(text, a.ValidBefore))
}

// sameAs reports whether both authorize the same; b may be nil.
func (a *Authorization) sameAs(b *Authorization) bool { return b != nil && a.Hash() == b.Hash() }

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
