// Package support is the desk for paid bug reports, as an application of the engine: payments, tickets, staff
// replies, and refunds. It must not talk to a chain or a client, and must depend on nothing but the given
// command and state.
//
//	command.go      the commands
//	rows.go         the state
//	payments.go     the life cycle of a payment
//	staff.go        replies, decisions, refunds
//	signer.go       staff signatures
//	nonce_queue.go  the relayer's nonces
//
// Non-obvious:
//   - A payment is reserved before it can be charged, and dropped only when it can no longer be charged. So every
//     charged payment has a row here, and a paid row is a ticket.
//   - User text is encrypted: commands, changelog and audit log contain nothing readable without the key.
//   - The outcome of a command is stored under its ID, where its sender reads it.
package support

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/state"
)

// App implements engine.CommandApp.
//
// Invariants:
//  1. A wallet has at most one payment per day (UTC) that is not void, and at most one that is undecided; and none
//     once the chain has refused MaxRefused of that day.
//  2. A payment that may still be charged is in the table of open payments, whatever command led to that.
//  3. A ticket exists from the paid command on, never before, and forever.
//  4. No transaction is recorded by hand as the refund of two payments.
//  5. A late command about an attempt, an authorization or a reservation does not change the next one of the same
//     nonce.
//  6. A command that staff have signed is applied once, however often or late it is sent, and to the reservation that
//     they saw.
//  7. The same commands result in the same rows: a replay affects nothing else but metrics and the log.
type App struct {
	staff    Roster
	commands *prometheus.CounterVec
	log      *zap.Logger
}

// New makes the application. All nodes must have the same staff.
func New(staff Roster, log *zap.Logger, reg prometheus.Registerer) *App {
	a := &App{staff: staff, log: log, commands: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lienstream_support_commands_total", Help: "Commands applied, by kind and result.",
	}, []string{"kind", "outcome"})}
	reg.MustRegister(a.commands)
	return a
}

// Tables lists every table.
func (*App) Tables() []*state.Table { return []*state.Table{payments, reports, open, desks, refunds} }

// Version implements engine.Versioned.
//
//	1  refunds by their transactions, and the relayer's nonces under their name. Older rows are continued; some of the
//	   relayer's last transactions are sent once more, at no cost
//	2  released and void name their attempt and authorization, and signed commands have a ticket's sequence
//	3  sent and refund-sent name the attempt's authorization. Those of an older process are refused, so that it does not
//	   send them, and a current process makes another
//	4  reservations of a payment are numbered, and commands name theirs. Older ones have no number on either side
//	5  a relayer's nonces are kept for each chain. Older ones are continued for the first chain that asks
func (*App) Version() (version, since uint32) { return 5, 0 }

// ApplyCommand applies a command. One that cannot be decoded is skipped: no process of ours wrote it.
func (a *App) ApplyCommand(w state.Writer, c engine.Command) error {
	cmd, err := DecodeCommand(c.Value)
	if err != nil || len(c.Key) != common.AddressLength {
		a.commands.WithLabelValues("malformed", "").Inc()
		a.log.Warn("skipped a command that cannot be decoded", zap.Uint64("offset", c.At.Number-1), zap.Error(err))
		return nil
	}
	outcome, err := Apply(w, a.staff, common.Address(c.Key), cmd, c.Time)
	if err != nil {
		return fmt.Errorf("apply %s: %w", cmd.Kind, err)
	}
	a.commands.WithLabelValues(string(cmd.Kind), string(outcome)).Inc()
	return nil
}

// Apply applies a command to the desk of a wallet, and records the outcome.
func Apply(w state.Writer, staff Roster, key common.Address, cmd *Command, at time.Time) (Outcome, error) {
	d, err := readDesk(w, key)
	if err != nil {
		return "", err
	}
	if done, known := d.outcome(cmd.ID); known {
		return done, nil // sent twice
	}
	t := &execution{w: w, key: key, desk: d, at: at.UTC(), cmd: cmd}
	outcome, admitted := Stranger, true
	if cmd.By != "" {
		t.by, admitted = staff.signed(cmd, key)
	}
	if admitted {
		if outcome, err = t.apply(); err != nil {
			return "", err
		}
	}
	d.note(cmd.ID, outcome)
	if err := t.put(desks, key[:], d); err != nil {
		return "", err
	}
	if outcome == Done && cmd.Kind != TakeNonce { // no audit: it is automatic
		t.audit()
	}
	return outcome, nil
}

// execution is a command being applied.
type execution struct {
	w    state.Writer
	key  common.Address
	desk *Desk
	at   time.Time
	cmd  *Command
	by   common.Address // address of the staff member's key
}

func (t *execution) apply() (Outcome, error) {
	switch t.cmd.Kind {
	case Reserve:
		return t.reserve()
	case Sent, Paid, Reorganised, Released, Void:
		return t.settle()
	case Reply, Decide, Close, RefundSent, RefundConfirmed, RefundFailed, RefundByHand, RefundNotSent:
		return t.staff()
	case FloatTake:
		return t.floatTake()
	case TakeNonce:
		return t.takeNonce(), nil
	}
	return Malformed, nil
}

func (t *execution) put(table *state.Table, key []byte, v any) error {
	row, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode row of %s: %w", table.Name, err)
	}
	t.w.Put(table, key, row)
	return nil
}

// payment reads a payment of the wallet; nil: there is none.
func (t *execution) payment(nonce common.Hash) (*Payment, error) {
	row, err := t.w.Get(payments, paymentKey(t.key, nonce))
	if err != nil || row == nil {
		return nil, err
	}
	return DecodePayment(row)
}

// save writes a payment, and keeps it in the table of open payments while it may be charged or a refund is
// pending.
func (t *execution) save(p *Payment) error {
	p.UpdatedAt = t.at.Unix()
	key := paymentKey(t.key, p.Authorization.Nonce)
	if p.Undecided() {
		t.w.Put(open, key, []byte{1})
	} else {
		t.w.Delete(open, key)
	}
	return t.put(payments, key, p)
}
