package support

import (
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// The tables. All keys begin with the wallet, which selects the partition.
var (
	payments = &state.Table{ID: 1, Name: "payments"} // wallet and nonce
	reports  = &state.Table{ID: 2, Name: "reports"}  // wallet and nonce: sealed, written once
	open     = &state.Table{ID: 3, Name: "open"}     // wallet and nonce of undecided payments
	desks    = &state.Table{ID: 4, Name: "desks"}    // wallet
	refunds  = &state.Table{ID: 5, Name: "refunds"}  // wallet and transaction: the nonce of the payment that it refunded
)

// Status is the status of a payment.
type Status string

// The statuses. StatusFinal never changes, and StatusVoid only when the payment is reserved anew.
const (
	StatusReserved Status = "reserved" // not submitted yet
	StatusSent     Status = "sent"     // submitted to the chain, or to the facilitator
	StatusPaid     Status = "paid"     // on the chain; a reorg may revert it
	StatusFinal    Status = "final"    // final on the chain
	StatusReleased Status = "released" // the chain refused it; anyone can still submit it
	StatusVoid     Status = "void"     // it can never be charged
)

// RefundStatus is the status of a refund.
type RefundStatus string

// The statuses of a refund.
const (
	RefundStatusNone      RefundStatus = "NONE"
	RefundStatusOwed      RefundStatus = "OWED"
	RefundStatusSent      RefundStatus = "SENT"
	RefundStatusConfirmed RefundStatus = "CONFIRMED"
	RefundStatusFailed    RefundStatus = "FAILED" // it is still owed
	RefundStatusKept      RefundStatus = "KEPT"
)

// TicketStatus is whether the staff or the reporter acts next.
type TicketStatus string

// The statuses of a ticket.
const (
	TicketOpen     TicketStatus = "OPEN"
	TicketAnswered TicketStatus = "ANSWERED"
	TicketClosed   TicketStatus = "CLOSED"
)

// Payment is a payment and, once paid, its ticket.
type Payment struct {
	Status        Status         `json:"status"`
	Authorization Authorization  `json:"authorization"`
	Asset         common.Address `json:"asset"`
	BodyDigest    common.Hash    `json:"bodyDigest"`
	FromBlock     uint64         `json:"fromBlock"`
	Day           string         `json:"day"`
	Attempt       *Attempt       `json:"attempt,omitempty"` // the last of ours
	Proof         *Proof         `json:"proof,omitempty"`
	Reason        string         `json:"reason,omitempty"`   // why it is released or void
	Reserved      uint64         `json:"reserved,omitempty"` // number of this reservation; 0: from before they were counted
	ReservedAt    int64          `json:"reservedAt"`
	UpdatedAt     int64          `json:"updatedAt"`
	Ticket        *Ticket        `json:"ticket,omitempty"`
}

// is reports whether b is this attempt.
func (a *Attempt) is(b *Attempt) bool { return a != nil && b != nil && a.Hash == b.Hash }

// has reports whether the attempt is known to submit an authorization. It is not known of attempts that were recorded
// before they named theirs. The attempt may be nil.
func (a *Attempt) has(authorized *Authorization) bool {
	return authorized != nil && a.Authorization == authorized.Hash()
}

// Ticket is the ticket of a payment.
type Ticket struct {
	Status        TicketStatus   `json:"status"`
	Verdict       Verdict        `json:"verdict"`
	Replies       []Note         `json:"replies,omitempty"`
	Refund        RefundStatus   `json:"refund"`
	Return        *Authorization `json:"return,omitempty"`     // the refund, signed by the float
	ByHand        string         `json:"byHand,omitempty"`     // the member of staff that sends it by hand
	ByHandFrom    uint64         `json:"byHandFrom,omitempty"` // its transaction is after this block
	ReturnedAt    int64          `json:"returnedAt,omitempty"`
	RefundAttempt *Attempt       `json:"refundAttempt,omitempty"`
	RefundProof   *Proof         `json:"refundProof,omitempty"`
	Seq           uint64         `json:"seq,omitempty"` // of the last signed command
	CreatedAt     int64          `json:"createdAt"`
	UpdatedAt     int64          `json:"updatedAt"`
}

// sentByHand reports whether a member of staff sends the refund by hand.
func (k *Ticket) sentByHand() bool { return k.Refund == RefundStatusSent && k.ByHand != "" }

// RefundNonce is the nonce of the authorization that refunds a deposit. The token accepts it once, so a refund
// that is signed or submitted twice is paid once.
func RefundNonce(payer common.Address, nonce common.Hash) common.Hash {
	return crypto.Keccak256Hash([]byte("lienstream refund"), payer[:], nonce[:])
}

// Note is a reply of the staff.
type Note struct {
	At     int64  `json:"at"`
	By     string `json:"by"` // for the audit; the reporter is not told
	Sealed []byte `json:"sealed"`
}

// Undecided reports whether a payment, or its refund by the float, is not final on the chain.
func (p *Payment) Undecided() bool {
	return p.Status != StatusFinal && p.Status != StatusVoid || p.Ticket != nil && p.Ticket.Refund == RefundStatusSent && p.Ticket.Return != nil
}

// Charged reports whether there is a ticket to show.
func (p *Payment) Charged() bool { return p.Status == StatusPaid || p.Status == StatusFinal }

// ID is the ticket's ID. It identifies the payment, and does not open the ticket.
func (p *Payment) ID() string { return TicketID(p.Authorization.From, p.Authorization.Nonce) }

var idEncoding = base32.NewEncoding("abcdefghijkmnpqrstuvwxyz23456789").WithPadding(base32.NoPadding)

// TicketID is the ticket ID of a payment.
func TicketID(payer common.Address, nonce common.Hash) string {
	return idEncoding.EncodeToString(paymentKey(payer, nonce))
}

var errTicketID = errors.New("not a ticket ID")

// ParseTicketID is the inverse of TicketID.
func ParseTicketID(id string) (payer common.Address, nonce common.Hash, err error) {
	raw, err := idEncoding.DecodeString(id)
	if err != nil || len(raw) != common.AddressLength+common.HashLength || idEncoding.EncodeToString(raw) != id {
		return payer, nonce, errTicketID
	}
	return common.Address(raw[:common.AddressLength]), common.Hash(raw[common.AddressLength:]), nil
}

func paymentKey(payer common.Address, nonce common.Hash) []byte {
	return append(append(make([]byte, 0, 52), payer[:]...), nonce[:]...)
}

// DecodePayment decodes a row.
func DecodePayment(row []byte) (*Payment, error) {
	var p Payment
	if err := json.Unmarshal(row, &p); err != nil {
		return nil, fmt.Errorf("row of a payment: %w", err)
	}
	return &p, nil
}

// Desk is the state of a wallet besides its payments. A new day begins with the first counted command of a later day.
// dayAt defines when it goes back.
type Desk struct {
	Day      string      `json:"day,omitempty"` // of its last payment
	Nonce    common.Hash `json:"nonce"`         // its nonce
	Outcomes []outcome   `json:"outcomes,omitempty"`

	RefusedDay string `json:"refusedDay,omitempty"` // day on which the chain last refused a payment of the wallet
	Refused    int    `json:"refused,omitempty"`    // payments refused on that day: each has cost the relayer gas

	// If the wallet is the float:
	FloatDay string                  `json:"floatDay,omitempty"`
	Taken    map[string]*hexutil.Big `json:"taken,omitempty"` // on that day, by ticket

	// If it is a relayer:
	Queues     []Queue `json:"queues,omitempty"`
	NextNonce  uint64  `json:"nextNonce,omitempty"` // from before there was a queue for each chain
	NonceQueue []Slot  `json:"nonceQueue,omitempty"`
}

// Queue has the nonces of a relayer on a chain.
type Queue struct {
	Chain uint64 `json:"chain"`
	Next  uint64 `json:"next"`
	Slots []Slot `json:"slots,omitempty"` // the nonces that are not final, in order
}

// Queue returns the queue of a chain on which `mined` is the relayer's next nonce.
func (d *Desk) Queue(chain, mined uint64) *Queue {
	for i := range d.Queues {
		if d.Queues[i].Chain == chain {
			return &d.Queues[i]
		}
	}
	q := &Queue{Chain: chain}
	// A queue from before chains had their own is continued, unless its nonces are too high for this chain: then the
	// key was used on another.
	if len(d.Queues) == 0 && d.NextNonce <= mined+maxQueued {
		q.Next, q.Slots = d.NextNonce, d.NonceQueue
	}
	return q
}

// Slot is a nonce of the relayer and the authorization that has it.
type Slot struct {
	Nonce         uint64         `json:"nonce"`
	From          common.Address `json:"from"`
	To            common.Address `json:"to"`
	Authorization common.Hash    `json:"authorization"`
}

// Slot returns the nonce of an authorization, unless it is below mined.
func (q *Queue) Slot(from common.Address, authorization common.Hash, mined uint64) (nonce uint64, found bool) {
	for _, s := range q.Slots {
		if s.From == from && s.Authorization == authorization && s.Nonce >= mined {
			return s.Nonce, true
		}
	}
	return 0, false
}

type outcome struct {
	ID      string  `json:"id"`
	Outcome Outcome `json:"outcome"`
}

// maxOutcomes is how many outcomes are kept per wallet, and so how many commands can be in flight.
const maxOutcomes = 64

func readDesk(w state.Writer, wallet common.Address) (*Desk, error) {
	row, err := w.Get(desks, wallet[:])
	if err != nil {
		return nil, fmt.Errorf("read desk: %w", err)
	}
	if row == nil {
		return &Desk{}, nil
	}
	return DecodeDesk(row)
}

// DecodeDesk decodes a row.
func DecodeDesk(row []byte) (*Desk, error) {
	var d Desk
	if err := json.Unmarshal(row, &d); err != nil {
		return nil, fmt.Errorf("row of a desk: %w", err)
	}
	return &d, nil
}

// MaxRefused is how many payments of a wallet may fail on the chain per day (UTC). The wallet can make them fail, and
// the relayer pays for the gas.
const MaxRefused = 3

// Free reports whether the wallet may make another payment on a day: it has none of that day and none that is
// undecided, and the chain has not refused too many. The holder is the payment with the desk's nonce; nil: none.
func (d *Desk) Free(nonce common.Hash, day string, holder *Payment) bool {
	switch {
	case d.RefusedDay >= day && !wrongDay(d.RefusedDay, day) && d.Refused >= MaxRefused:
		return false
	case holder == nil || d.Nonce == nonce:
		return true
	}
	switch holder.Status {
	case StatusReleased, StatusVoid:
		return true
	case StatusReserved, StatusSent:
		return false
	case StatusPaid, StatusFinal:
	}
	return d.Day < day || wrongDay(d.Day, day)
}

// refuse counts a payment that the chain refused.
func (d *Desk) refuse(day string) {
	if d.RefusedDay < day || wrongDay(d.RefusedDay, day) {
		d.RefusedDay, d.Refused = day, 0
	}
	d.Refused++
}

func (d *Desk) outcome(id string) (Outcome, bool) {
	for _, o := range d.Outcomes {
		if o.ID == id {
			return o.Outcome, true
		}
	}
	return "", false
}

func (d *Desk) note(id string, o Outcome) {
	d.Outcomes = append(d.Outcomes, outcome{id, o})
	if n := len(d.Outcomes); n > maxOutcomes {
		d.Outcomes = d.Outcomes[n-maxOutcomes:]
	}
}

// sumOf is the sum of the float's refunds of a day.
func sumOf(taken map[string]*hexutil.Big) *big.Int {
	sum := new(big.Int)
	for _, amount := range taken {
		sum.Add(sum, bigOf(amount))
	}
	return sum
}

// DayOf is the UTC day of a time.
func DayOf(at time.Time) string { return at.UTC().Format(time.DateOnly) }

// dayAt is the day of a command. It does not go back to the day before the stored one, as it could around midnight when
// brokers' clocks differ. A stored day that is further ahead comes from a wrong clock, and ends.
func dayAt(at time.Time, stored string) string {
	day := DayOf(at)
	if stored > day && !wrongDay(stored, day) {
		return stored
	}
	return day
}

// wrongDay reports whether a stored day is more than one day ahead.
func wrongDay(stored, day string) bool {
	at, err := time.Parse(time.DateOnly, day)
	return err == nil && stored > DayOf(at.AddDate(0, 0, 1))
}

func lower(a common.Address) string { return strings.ToLower(a.Hex()) }
