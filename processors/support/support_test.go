package support

import (
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// fatal is what tests and rapid both have.
type fatal interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// world is a partition of the desk, and a clock.
type world struct {
	t   fatal
	o   *state.Overlay
	at  time.Time
	ada *ecdsa.PrivateKey
	ids int
}

var (
	wallet = common.Address{1}
	float  = common.Address{2}
	noon   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

func amountOf(n int64) *hexutil.Big { return (*hexutil.Big)(big.NewInt(n)) }

func openDesk(t fatal) (*world, func()) {
	store, err := state.Open(state.Options{Dir: "desk", Tables: (*App)(nil).Tables(), FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	key, err := crypto.ToECDSA(crypto.Keccak256([]byte("ada")))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, o: store.NewOverlay(), at: noon, ada: key}
	w.o.Begin(topics.BlockRef{Number: 1}, false)
	return w, func() { _ = store.Close() }
}

func newWorld(t *testing.T) *world {
	w, done := openDesk(t)
	t.Cleanup(done)
	return w
}

// do applies a command as it would arrive, about the payment's present reservation unless it names another.
func (w *world) do(key common.Address, c Command) Outcome {
	w.t.Helper()
	w.ids++
	c.ID = fmt.Sprint(w.ids)
	if c.Reserved == 0 {
		c.Reserved = w.reserved(key, c.Nonce)
	}
	if c.byStaff() {
		w.sign(key, &c)
	}
	return w.send(key, &c)
}

// sign signs a command as ada would, today, for the ticket as it is.
func (w *world) sign(key common.Address, c *Command) {
	w.t.Helper()
	row, err := w.o.Get(payments, paymentKey(key, c.Nonce))
	if err != nil {
		w.t.Fatal(err)
	}
	c.Seq = 1
	if row != nil {
		p, err := DecodePayment(row)
		if err != nil {
			w.t.Fatal(err)
		}
		if c.Reserved == 0 {
			c.Reserved = p.Reserved
		}
		if p.Ticket != nil {
			c.Seq += p.Ticket.Seq
		}
	}
	if c.Float != nil {
		c.Float.Day = DayOf(w.at)
	}
	if err := c.Sign(key, "ada", w.ada); err != nil {
		w.t.Fatal(err)
	}
}

// reserved is how often a payment was reserved.
func (w *world) reserved(key common.Address, nonce common.Hash) uint64 {
	w.t.Helper()
	row, err := w.o.Get(payments, paymentKey(key, nonce))
	if err != nil {
		w.t.Fatal(err)
	}
	if row == nil {
		return 0
	}
	p, err := DecodePayment(row)
	if err != nil {
		w.t.Fatal(err)
	}
	return p.Reserved
}

func (w *world) send(key common.Address, c *Command) Outcome {
	w.t.Helper()
	value, err := EncodeCommand(c)
	if err != nil {
		w.t.Fatal(err)
	}
	decoded, err := DecodeCommand(value)
	if err != nil {
		w.t.Fatal(err)
	}
	outcome, err := Apply(w.o, Roster{crypto.PubkeyToAddress(w.ada.PublicKey): "ada"}, key, decoded, w.at)
	if err != nil {
		w.t.Fatal(err)
	}
	return outcome
}

func (w *world) want(key common.Address, c Command, want Outcome) {
	w.t.Helper()
	if got := w.do(key, c); got != want {
		w.t.Fatalf("%s %x: %s, want %s", c.Kind, c.Nonce[:1], got, want)
	}
}

func (w *world) payment(nonce byte) *Payment {
	w.t.Helper()
	row, err := w.o.Get(payments, paymentKey(wallet, common.Hash{nonce}))
	if err != nil {
		w.t.Fatal(err)
	}
	if row == nil {
		return nil
	}
	p, err := DecodePayment(row)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func reservation(nonce, digest byte) Command {
	return Command{Kind: Reserve, Nonce: common.Hash{nonce}, Reservation: &Reservation{
		Authorization: Authorization{From: wallet, To: common.Address{9}, Value: amountOf(15), Nonce: common.Hash{nonce}, Signature: []byte{1}},
		BodyDigest:    common.Hash{digest}, Report: []byte("sealed"),
	}}
}

func paid(nonce byte, final bool) Command {
	return Command{Kind: Paid, Nonce: common.Hash{nonce}, Proof: &Proof{Transaction: common.Hash{nonce, 1}, Final: final}}
}

// sent is a transaction with a payment; released means that the chain refused it, and void that it cannot be charged
// any more.
func sent(nonce, attempt byte) Command {
	return Command{Kind: Sent, Nonce: common.Hash{nonce}, Attempt: &Attempt{
		Hash: common.Hash{attempt}, Authorization: reservation(nonce, 1).Reservation.Authorization.Hash(),
	}}
}

func released(nonce, attempt byte) Command {
	return Command{Kind: Released, Nonce: common.Hash{nonce}, Attempt: &Attempt{Hash: common.Hash{attempt}}, Reason: "reverted"}
}

func void(nonce byte) Command {
	return Command{Kind: Void, Nonce: common.Hash{nonce}, Authorization: &reservation(nonce, 1).Reservation.Authorization}
}

func refund(nonce byte) Command {
	return Command{Kind: RefundSent, Nonce: common.Hash{nonce}, Return: &Authorization{
		From: float, To: wallet, Value: amountOf(15), Nonce: RefundNonce(wallet, common.Hash{nonce}), Signature: []byte{1},
	}}
}

// refundAttempt is a transaction with the refund of payment 1.
func refundAttempt() Command {
	return Command{Kind: RefundSent, Nonce: common.Hash{1}, Attempt: &Attempt{Nonce: 4, Authorization: refund(1).Return.Hash()}}
}

func refundFailed(nonce byte) Command {
	return Command{Kind: RefundFailed, Nonce: common.Hash{nonce}, Return: refund(nonce).Return}
}

func decide(nonce byte, v Verdict) Command {
	return Command{Kind: Decide, Nonce: common.Hash{nonce}, Verdict: v}
}

// Only what is rejected is marked valid: marked so, a duplicate's deposit would be kept all the same.
func TestOnlyWhatIsRejectedIsMarkedValid(t *testing.T) {
	for verdict, taken := range map[Verdict]bool{Accepted: false, Duplicate: false, Rejected: true} {
		c := decide(1, verdict)
		c.ID, c.By, c.Signature, c.Valid = "1", "ada", []byte{1}, true
		if err := c.Validate(); (err == nil) != taken || err != nil && !strings.Contains(err.Error(), "valid: ") {
			t.Errorf("%s: %v", verdict, err)
		}
	}
}

// One report a wallet a day, UTC; what was refused for good frees the day, and what is undecided does not.
func TestTheDay(t *testing.T) {
	w := newWorld(t)
	w.at = time.Date(2026, 3, 1, 23, 59, 59, 0, time.UTC)
	w.want(wallet, reservation(1, 1), Done)
	w.want(wallet, reservation(1, 1), Exists)
	w.want(wallet, reservation(1, 2), Conflict)
	longer := reservation(1, 1)
	longer.Reservation.Authorization.ValidBefore = 7
	w.want(wallet, longer, Conflict) // of the same nonce, but it can be charged for longer than is looked
	w.want(wallet, reservation(2, 1), Limited)
	w.at = w.at.Add(time.Second) // another day, but the payment may still be charged
	w.want(wallet, reservation(2, 1), Limited)
	w.want(wallet, paid(1, false), Done)
	w.want(wallet, reservation(2, 1), Done)
	w.want(wallet, reservation(3, 1), Limited)
	w.want(wallet, sent(2, 1), Done)
	w.want(wallet, released(2, 1), Done)
	w.want(wallet, reservation(3, 1), Done)
	w.want(wallet, reservation(2, 1), Limited)
	w.want(wallet, sent(2, 2), Refused) // released: it is not sent
	w.want(wallet, void(3), Done)
	w.want(wallet, reservation(4, 1), Done)
	w.want(wallet, paid(2, true), Done) // charged all the same
	if k := w.payment(2).Ticket; k == nil {
		t.Error("charged, and no ticket")
	}
	// The day's end is that of UTC, wherever the node is.
	w.at = time.Date(2026, 3, 2, 1, 0, 0, 0, time.FixedZone("east", 7200))
	if day := DayOf(w.at); day != "2026-03-01" {
		t.Errorf("the day is %s", day)
	}
}

// A day does not go back, whose clock ever says so: around midnight a wallet has no second payment of a day, nor more
// tries, and the float does not give its ceiling twice.
func TestTheDayDoesNotGoBack(t *testing.T) {
	w := newWorld(t)
	midnight := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	before, after := midnight.Add(-time.Second/2), midnight.Add(time.Second/2)
	w.at = after
	w.want(wallet, reservation(1, 1), Done)
	w.want(wallet, paid(1, true), Done)
	w.at = before
	w.want(wallet, reservation(2, 1), Limited)
	w.at = after
	w.want(wallet, reservation(3, 1), Limited)

	take := func(nonce byte, amount int64) Command {
		return Command{Kind: FloatTake, Nonce: common.Hash{nonce}, Float: &FloatAmount{Payer: wallet, Amount: amountOf(amount), Ceiling: amountOf(40)}}
	}
	w.want(float, take(1, 40), Done)
	w.at = before
	w.want(float, take(2, 1), Stale) // signed for yesterday
	tomorrow := take(2, 1)
	tomorrow.ID, tomorrow.Float.Day = NewID(), DayOf(after)
	if err := tomorrow.Sign(float, "ada", w.ada); err != nil {
		t.Fatal(err)
	}
	if o := w.send(float, &tomorrow); o != Limited {
		t.Errorf("the ceiling was given again: %s", o)
	}
	w.at = after
	w.want(float, take(3, 1), Limited)

	d := &Desk{}
	for range MaxRefused {
		d.refuse("2026-03-02")
	}
	d.refuse("2026-03-01")
	if d.Free(common.Hash{1}, "2026-03-01", nil) || d.Free(common.Hash{1}, "2026-03-02", nil) || !d.Free(common.Hash{1}, "2026-03-03", nil) {
		t.Errorf("%+v", d)
	}
}

// One record of a clock that is far ahead stops neither the float nor a wallet: its day ends with the next command of a
// right clock, and what was refused or stale has begun none.
func TestADayFromTheFuture(t *testing.T) {
	w := newWorld(t)
	take := func(nonce byte, amount int64, day time.Time) Outcome {
		t.Helper()
		c := &Command{ID: NewID(), Kind: FloatTake, Nonce: common.Hash{nonce}, Float: &FloatAmount{
			Payer: wallet, Amount: amountOf(amount), Ceiling: amountOf(40), Day: DayOf(day),
		}}
		if err := c.Sign(float, "ada", w.ada); err != nil {
			t.Fatal(err)
		}
		return w.send(float, c)
	}
	expect := func(got, want Outcome) {
		t.Helper()
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	expect(take(1, 15, noon), Done)
	future := noon.AddDate(1, 0, 0)
	w.at = future
	expect(take(2, 15, noon), Stale)
	expect(take(2, 41, future), Limited)
	w.at = noon.Add(time.Minute)
	expect(take(1, 15, noon), Exists) // the day is still the same one
	expect(take(2, 30, noon), Limited)

	w.at = future
	expect(take(3, 15, future), Done) // the signer has a wrong clock as well
	w.at = noon.Add(time.Minute)
	expect(take(3, 15, noon), Exists)
	expect(take(4, 15, noon), Done)
	expect(take(5, 15, noon), Limited) // what was taken ahead counts
	w.at = noon.Add(24 * time.Hour)
	expect(take(5, 40, w.at), Done)

	w.at = future
	for n := range byte(MaxRefused) {
		w.want(wallet, reservation(n, 1), Done)
		w.want(wallet, sent(n, 1), Done)
		w.want(wallet, released(n, 1), Done)
	}
	w.at = noon
	w.want(wallet, reservation(10, 1), Done) // those were of a day that is not
	w.want(wallet, paid(10, true), Done)
	w.want(wallet, reservation(11, 1), Limited)
	w.at = noon.AddDate(0, 0, 1)
	w.want(wallet, reservation(11, 1), Done)
	w.want(wallet, paid(11, true), Done)

	w.at = future.AddDate(0, 0, 1)
	w.want(wallet, reservation(12, 1), Done)
	w.want(wallet, paid(12, true), Done)
	w.at = noon.AddDate(0, 0, 2)
	w.want(wallet, reservation(13, 1), Done)
	if day := w.payment(13).Day; day != DayOf(w.at) {
		t.Errorf("it is of %s", day)
	}
	w.want(wallet, paid(13, true), Done)
	w.want(wallet, reservation(14, 1), Limited)

	d := &Desk{Refused: MaxRefused, RefusedDay: DayOf(future)}
	if d.refuse("2026-03-01"); d.Refused != 1 || d.RefusedDay != "2026-03-01" {
		t.Errorf("%+v", d)
	}
}

// A wallet whose payments the chain refuses has a few tries a day, whatever their nonces.
func TestRefusedPayments(t *testing.T) {
	w := newWorld(t)
	refused := func(n byte) {
		t.Helper()
		w.want(wallet, reservation(n, 1), Done)
		w.want(wallet, sent(n, 1), Done)
		w.want(wallet, released(n, 1), Done)
	}
	for n := range byte(MaxRefused) {
		refused(n)
		w.want(wallet, released(n, 1), Done) // another node says it too
	}
	w.want(wallet, reservation(9, 1), Limited)
	w.want(wallet, reservation(0, 1), Limited) // nor one of those again
	w.want(wallet, paid(0, true), Done)        // charged all the same
	w.at = w.at.Add(12 * time.Hour)            // the next day
	refused(9)
	w.want(wallet, reservation(10, 1), Done)
}

// A payer who cancels a sent authorization, or uses its nonce otherwise, has a few tries as well: the relayer pays for
// each.
func TestCancelledPayments(t *testing.T) {
	w := newWorld(t)
	cancelled := func(n byte) Command {
		c := void(n)
		c.ByPayer = true
		return c
	}
	w.want(wallet, reservation(20, 1), Done)
	w.want(wallet, cancelled(20), Done) // nothing was sent
	w.want(wallet, reservation(21, 1), Done)
	w.want(wallet, sent(21, 1), Done)
	w.want(wallet, void(21), Done) // it ended unused
	for n := range byte(MaxRefused) {
		w.want(wallet, reservation(n, 1), Done)
		w.want(wallet, sent(n, 1), Done)
		w.want(wallet, cancelled(n), Done)
	}
	w.want(wallet, reservation(9, 1), Limited)
	w.at = w.at.Add(12 * time.Hour) // the next day
	w.want(wallet, reservation(9, 1), Done)
	w.want(wallet, sent(9, 1), Done)
	w.want(wallet, released(9, 1), Done)
	w.want(wallet, cancelled(9), Done) // counted once
	for n := range byte(MaxRefused) - 1 {
		w.want(wallet, reservation(30+n, 1), Done)
		w.want(wallet, sent(30+n, 1), Done)
		w.want(wallet, cancelled(30+n), Done)
	}
	w.want(wallet, reservation(40, 1), Limited)
}

// A late command about an attempt or an authorization does not apply to the next one of the same nonce.
func TestWhatIsSaidLate(t *testing.T) {
	w := newWorld(t)
	w.want(wallet, reservation(1, 1), Done)
	w.want(wallet, released(1, 1), Refused) // nothing was sent
	w.want(wallet, sent(1, 1), Done)
	w.want(wallet, sent(1, 2), Done) // the same nonce, a higher fee
	w.want(wallet, released(1, 1), Refused)
	w.want(wallet, Command{Kind: Released, Nonce: common.Hash{1}}, Refused) // of none
	w.want(wallet, released(1, 2), Done)
	w.want(wallet, reservation(1, 1), Done)
	w.want(wallet, released(1, 2), Refused)
	w.want(wallet, sent(1, 3), Done)
	w.want(wallet, released(1, 2), Refused)
	if p := w.payment(1); p.Status != StatusSent {
		t.Errorf("it is %s", p.Status)
	}

	w.want(wallet, void(1), Done)
	longer := reservation(1, 1)
	longer.Reservation.Authorization.ValidBefore = 7
	w.want(wallet, longer, Done)
	w.want(wallet, sent(1, 3), Refused) // it has the authorization before, which has ended
	w.want(wallet, Command{Kind: Sent, Nonce: common.Hash{1}, Attempt: &Attempt{Hash: common.Hash{3}}}, Refused)
	w.want(wallet, void(1), Refused)
	w.want(wallet, Command{Kind: Void, Nonce: common.Hash{1}}, Refused)
	if p := w.payment(1); p.Status != StatusReserved {
		t.Errorf("it is %s", p.Status)
	}
}

// What is said, or signed, of a reservation changes nothing about the next one of the same payment.
func TestAReservationOfBefore(t *testing.T) {
	w := newWorld(t)
	late := func(c Command, want Outcome) {
		t.Helper()
		before := w.payment(1)
		for _, of := range []uint64{0, 1} { // 0 is what a process of before says
			c.ID, c.Reserved = NewID(), of
			if got := w.send(wallet, &c); got != want {
				t.Errorf("%s of reservation %d: %s, want %s", c.Kind, of, got, want)
			}
		}
		if after := w.payment(1); !reflect.DeepEqual(after, before) {
			t.Errorf("%s: the payment was %+v and is %+v", c.Kind, before, after)
		}
	}
	w.want(wallet, reservation(1, 1), Done)
	w.want(wallet, paid(1, false), Done)
	signed := decide(1, Accepted) // and not sent
	signed.ID = "signed"
	w.sign(wallet, &signed)
	if signed.Reserved != 1 || signed.Seq != 1 {
		t.Fatalf("%+v", signed)
	}
	w.want(wallet, Command{Kind: Reorganised, Nonce: common.Hash{1}}, Done)
	w.want(wallet, void(1), Done)
	w.want(wallet, reservation(1, 1), Done)
	late(sent(1, 1), Refused)
	late(paid(1, true), Refused) // only a command about this reservation counts
	late(void(1), Refused)
	w.want(wallet, sent(1, 2), Done)
	late(released(1, 2), Refused)
	w.want(wallet, paid(1, false), Done)
	late(Command{Kind: Reorganised, Nonce: common.Hash{1}}, Refused)
	if o := w.send(wallet, &signed); o != Stale || w.payment(1).Ticket.Verdict != Pending {
		t.Errorf("signed for the ticket before: %s, and the verdict is %s", o, w.payment(1).Ticket.Verdict)
	}
	w.want(wallet, decide(1, Accepted), Done)

	w.want(wallet, paid(1, true), Done)
	w.want(wallet, refund(1), Done)
	late(refundAttempt(), Refused)
	late(refundFailed(1), Refused)
	late(Command{Kind: RefundConfirmed, Nonce: common.Hash{1}, Proof: &Proof{Final: true}}, Refused)
}

// A payment that was reserved before reservations were counted is followed as before, and counted from the next one on.
func TestAPaymentOfBefore(t *testing.T) {
	w := newWorld(t)
	w.want(wallet, reservation(1, 1), Done)
	row, err := w.o.Get(payments, paymentKey(wallet, common.Hash{1}))
	if err != nil {
		t.Fatal(err)
	}
	w.o.Put(payments, paymentKey(wallet, common.Hash{1}), []byte(strings.Replace(string(row), `"reserved":1,`, "", 1)))
	if n := w.payment(1).Reserved; n != 0 {
		t.Fatalf("reservation %d", n)
	}
	w.want(wallet, sent(1, 1), Done)
	w.want(wallet, void(1), Done)
	w.want(wallet, reservation(1, 1), Done)
	if n := w.payment(1).Reserved; n != 1 {
		t.Errorf("reservation %d, want 1", n)
	}
}

// A ticket begins with the charge and stays; its deposit is owed, sent and returned once.
func TestTheWayOfADeposit(t *testing.T) {
	w := newWorld(t)
	w.want(wallet, decide(1, Accepted), Unknown)
	w.want(wallet, reservation(1, 1), Done)
	w.want(wallet, decide(1, Accepted), Unknown) // not paid yet
	w.want(wallet, paid(1, false), Done)
	w.want(wallet, Command{Kind: Reorganised, Nonce: common.Hash{1}}, Done)
	w.want(wallet, decide(1, Accepted), Unknown) // its block is gone
	w.want(wallet, paid(1, false), Done)
	w.want(wallet, refund(1), Refused) // nothing is owed
	w.want(wallet, decide(1, Accepted), Done)
	w.want(wallet, refund(1), Refused) // a reorganisation may take the payment back
	w.want(wallet, paid(1, true), Done)
	wrong := refund(1)
	wrong.Return.Value = amountOf(16)
	w.want(wallet, wrong, Malformed)
	wrong = refund(1)
	wrong.Return.Nonce = common.Hash{7}
	w.want(wallet, wrong, Malformed)
	w.want(wallet, refund(1), Done)
	w.want(wallet, refund(1), Refused)
	w.want(wallet, decide(1, Rejected), Refused) // it is on its way
	w.want(wallet, refundAttempt(), Done)
	w.want(wallet, refundFailed(1), Done)
	w.want(wallet, refundAttempt(), Refused)
	again := refund(1)
	again.Return.ValidBefore = 7
	w.want(wallet, again, Done)
	w.want(wallet, refundFailed(1), Refused) // a late command about the refund before, while this one may be pending
	w.want(wallet, refundAttempt(), Refused)
	w.want(wallet, Command{Kind: RefundSent, Nonce: common.Hash{1}, Attempt: &Attempt{Nonce: 4}}, Refused)
	byHand := Command{Kind: RefundConfirmed, Nonce: common.Hash{1}, Proof: &Proof{Final: true}}
	w.sign(wallet, &byHand)
	if got := w.send(wallet, &byHand); got != Refused {
		t.Errorf("recorded by hand while the float's is on its way: %s", got)
	}
	w.want(wallet, Command{Kind: RefundConfirmed, Nonce: common.Hash{1}, Proof: &Proof{Final: true}}, Done)
	w.want(wallet, refund(1), Refused)
	w.want(wallet, Command{Kind: RefundConfirmed, Nonce: common.Hash{1}, Proof: &Proof{}}, Refused)
	if k := w.payment(1).Ticket; k.Refund != RefundStatusConfirmed || k.Verdict != Accepted {
		t.Errorf("%+v", k)
	}
}

// A ticket whose payment a reorganisation took back, and the chain then refused, comes back with its replies once it is
// paid all the same; once the payment is void nothing does.
func TestATicketOutlivesAReorganisation(t *testing.T) {
	w := newWorld(t)
	kind := func(k Kind) Command { return Command{Kind: k, Nonce: common.Hash{1}} }
	w.want(wallet, reservation(1, 1), Done)
	w.want(wallet, paid(1, false), Done)
	w.want(wallet, Command{Kind: Reply, Nonce: common.Hash{1}, Sealed: []byte("a reply")}, Done)
	w.want(wallet, decide(1, Accepted), Done)
	before := *w.payment(1).Ticket
	w.want(wallet, kind(Reorganised), Done)
	w.want(wallet, sent(1, 1), Done)
	w.want(wallet, released(1, 1), Done)
	w.at = w.at.Add(time.Minute)
	w.want(wallet, reservation(1, 1), Done)
	w.want(wallet, Command{Kind: Reply, Nonce: common.Hash{1}, Sealed: []byte("hidden")}, Unknown)
	w.want(wallet, paid(1, true), Done)
	if after := w.payment(1).Ticket; !reflect.DeepEqual(*after, before) {
		t.Errorf("the ticket was %+v and is %+v", before, *after)
	}

	w.at = w.at.Add(24 * time.Hour)
	w.want(wallet, reservation(2, 1), Done)
	w.want(wallet, paid(2, false), Done)
	w.want(wallet, Command{Kind: Reorganised, Nonce: common.Hash{2}}, Done)
	w.want(wallet, void(2), Done)
	w.want(wallet, reservation(2, 1), Done)
	if k := w.payment(2).Ticket; k != nil {
		t.Errorf("void, and reserved with the ticket %+v", k)
	}
}

// A refund by hand is announced first: then neither the float nor another member of staff sends it, until it is given
// up.
func TestARefundByHand(t *testing.T) {
	w := newWorld(t)
	kind := func(k Kind) Command { return Command{Kind: k, Nonce: common.Hash{1}} }
	recorded := Command{Kind: RefundConfirmed, Nonce: common.Hash{1}, Proof: &Proof{Final: true}}
	signed := func() Command {
		c := recorded
		c.ID = NewID()
		w.sign(wallet, &c)
		return c
	}
	w.want(wallet, reservation(1, 1), Done)
	w.want(wallet, paid(1, false), Done)
	w.want(wallet, decide(1, Accepted), Done)
	w.want(wallet, kind(RefundByHand), Refused) // a reorganisation may take the payment back
	w.want(wallet, paid(1, true), Done)
	w.want(wallet, kind(RefundNotSent), Refused)
	w.want(wallet, kind(RefundByHand), Done)
	w.want(wallet, kind(RefundByHand), Refused)
	w.want(wallet, refund(1), Refused)
	w.want(wallet, decide(1, Rejected), Refused)
	w.want(wallet, refundAttempt(), Refused)
	w.want(wallet, refundFailed(1), Refused)
	w.want(wallet, recorded, Refused) // the chain says nothing of it
	if p := w.payment(1); p.Ticket.ByHand != "ada" || p.Ticket.Refund != RefundStatusSent || p.Undecided() {
		t.Errorf("%+v", p.Ticket)
	}
	w.want(wallet, kind(RefundNotSent), Done)
	w.want(wallet, refund(1), Done)
	w.want(wallet, kind(RefundByHand), Refused)
	w.want(wallet, kind(RefundNotSent), Refused)
	w.want(wallet, refundFailed(1), Done)
	w.want(wallet, kind(RefundByHand), Done)
	if c := signed(); w.send(wallet, &c) != Done {
		t.Error("not recorded")
	}
	w.want(wallet, kind(RefundNotSent), Refused)
	w.want(wallet, refund(1), Refused)
}

// A refund that was sent before it was announced can be recorded while it is owed, but not once the float has signed
// one.
func TestARefundThatWasSentBefore(t *testing.T) {
	w := newWorld(t)
	recorded := func(want Outcome) {
		t.Helper()
		c := Command{ID: NewID(), Kind: RefundConfirmed, Nonce: common.Hash{1}, Proof: &Proof{Transaction: common.Hash{7}, Final: true}}
		w.sign(wallet, &c)
		if got := w.send(wallet, &c); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	w.want(wallet, reservation(1, 1), Done)
	w.want(wallet, paid(1, false), Done)
	recorded(Refused) // nothing is owed
	w.want(wallet, decide(1, Accepted), Done)
	recorded(Refused) // a reorganisation may take the payment back
	w.want(wallet, paid(1, true), Done)
	w.want(wallet, decide(1, Rejected), Done)
	recorded(Refused) // it is kept
	w.want(wallet, decide(1, Accepted), Done)
	w.want(wallet, refund(1), Done)
	recorded(Refused)
	w.want(wallet, refundFailed(1), Done)
	w.want(wallet, Command{Kind: RefundConfirmed, Nonce: common.Hash{1}, Proof: &Proof{Final: true}}, Refused) // it is of no float
	recorded(Done)
	w.want(wallet, refund(1), Refused)
	recorded(Refused)
}

// By hand a transaction refunds one payment. The float's refunds are read from the chain, though two of them were put
// into one transaction.
func TestATransactionRefundsOnePayment(t *testing.T) {
	w := newWorld(t)
	confirmed := func(nonce, transaction byte, byHand bool, want Outcome) {
		t.Helper()
		c := Command{ID: NewID(), Kind: RefundConfirmed, Nonce: common.Hash{nonce}, Reserved: 1, Proof: &Proof{Transaction: common.Hash{transaction}, Final: true}}
		if byHand {
			w.sign(wallet, &c)
		}
		if got := w.send(wallet, &c); got != want {
			t.Errorf("transaction %d for payment %d: %s, want %s", transaction, nonce, got, want)
		}
	}
	for n := byte(1); n <= 5; n++ {
		w.want(wallet, reservation(n, 1), Done)
		w.want(wallet, paid(n, true), Done)
		w.want(wallet, decide(n, Accepted), Done)
		w.at = w.at.Add(24 * time.Hour)
	}
	for n := byte(1); n <= 3; n++ {
		w.want(wallet, Command{Kind: RefundByHand, Nonce: common.Hash{n}}, Done)
	}
	confirmed(1, 7, true, Done)
	confirmed(2, 7, true, Conflict)
	if k := w.payment(2).Ticket; k.Refund != RefundStatusSent {
		t.Errorf("the second is %s", k.Refund)
	}
	confirmed(2, 8, true, Done)
	for n := byte(4); n <= 5; n++ {
		w.want(wallet, refund(n), Done)
		confirmed(n, 9, false, Done)
	}
	confirmed(3, 9, true, Conflict)
}

// Actions of staff are signed with their own key. The audit log names the key, and has no user text.
func TestStaffSign(t *testing.T) {
	w := newWorld(t)
	w.want(wallet, reservation(1, 1), Done)
	w.want(wallet, paid(1, true), Done)
	eve, err := crypto.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	for name, alter := range map[string]func(c *Command){
		"another's key":  func(c *Command) { _ = c.Sign(wallet, "ada", eve) },
		"another's name": func(c *Command) { _ = c.Sign(wallet, "bob", w.ada) },
		"another wallet": func(c *Command) { _ = c.Sign(float, "ada", w.ada) },
		"altered":        func(c *Command) { _ = c.Sign(wallet, "ada", w.ada); c.Verdict = Rejected },
		"no signature":   func(c *Command) { c.By, c.Signature = "ada", make([]byte, 65) },
	} {
		c := decide(1, Accepted)
		c.ID = name
		alter(&c)
		if got := w.send(wallet, &c); got != Stranger {
			t.Errorf("%s: %s", name, got)
		}
	}
	if _, err := EncodeCommand(&Command{ID: "1", Kind: Decide, Verdict: Accepted}); err == nil {
		t.Error("decided by nobody")
	}
	w.want(wallet, decide(1, Accepted), Done)
	w.want(wallet, Command{Kind: Reply, Nonce: common.Hash{1}, Sealed: []byte("a sealed reply")}, Done)
	var lines []string
	w.o.Events(func(e state.Event, _ bool) { lines = append(lines, string(e.Value)) })
	var last AuditEvent
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if last.By != "ada" || last.Key != lower(crypto.PubkeyToAddress(w.ada.PublicKey)) || last.Kind != Reply || strings.Contains(strings.Join(lines, ""), "sealed") {
		t.Errorf("audit: %s", lines)
	}
}

// What one of staff signed once does nothing when it is written again, however long ago that was and whatever ID the
// desk has forgotten since.
func TestWhatIsSignedIsAppliedOnce(t *testing.T) {
	w := newWorld(t)
	w.want(wallet, reservation(1, 1), Done)
	w.want(wallet, paid(1, true), Done)
	decided := decide(1, Accepted)
	decided.ID = "signed once"
	w.sign(wallet, &decided)
	taken := Command{ID: "taken once", Kind: FloatTake, Nonce: common.Hash{1}, Float: &FloatAmount{Payer: wallet, Amount: amountOf(15), Ceiling: amountOf(40)}}
	w.sign(float, &taken)
	for _, c := range []struct {
		of      common.Address
		command *Command
	}{{wallet, &decided}, {float, &taken}} {
		if o := w.send(c.of, c.command); o != Done {
			t.Fatal(o)
		}
	}
	meanwhile := decide(1, Duplicate) // signed when the ticket was as before that
	meanwhile.ID, meanwhile.Seq = NewID(), decided.Seq
	if err := meanwhile.Sign(wallet, "ada", w.ada); err != nil {
		t.Fatal(err)
	}
	if o := w.send(wallet, &meanwhile); o != Stale {
		t.Errorf("two have decided the same ticket: %s", o)
	}
	w.want(wallet, decide(1, Rejected), Done)
	w.at = w.at.Add(24 * time.Hour)
	for n := range uint64(maxOutcomes) {
		w.want(wallet, Command{Kind: Reply, Nonce: common.Hash{1}, Sealed: []byte("sealed")}, Done)
		w.want(float, Command{Kind: TakeNonce, Nonce: common.Hash{1}, Take: &NonceRequest{Chain: 8453, Mined: n + 1, Deep: n + 1}}, Done)
	}
	if o := w.send(wallet, &decided); o != Stale || w.payment(1).Ticket.Refund != RefundStatusKept {
		t.Errorf("a decision of before: %s, and the refund is %s", o, w.payment(1).Ticket.Refund)
	}
	if o := w.send(float, &taken); o != Stale {
		t.Errorf("what was taken from the float before: %s", o)
	}
}

// The float gives its ceiling a day, a ticket once.
func TestTheFloatsDay(t *testing.T) {
	w := newWorld(t)
	take := func(nonce byte, amount, ceiling int64) Command {
		return Command{Kind: FloatTake, Nonce: common.Hash{nonce}, Float: &FloatAmount{Payer: wallet, Amount: amountOf(amount), Ceiling: amountOf(ceiling)}}
	}
	w.want(float, take(1, 15, 40), Done)
	w.want(float, take(1, 15, 40), Exists)
	w.want(float, take(2, 15, 40), Done)
	w.want(float, take(3, 15, 40), Limited)
	w.want(float, take(3, 10, 40), Done)
	w.at = w.at.Add(12 * time.Hour)
	w.want(float, take(4, 15, 40), Done)
	w.want(float, take(5, 41, 40), Limited)
	if _, err := EncodeCommand(&Command{ID: "1", Kind: FloatTake, By: "ada", Signature: []byte{1}, Float: &FloatAmount{Amount: amountOf(-1), Ceiling: amountOf(1)}}); err == nil {
		t.Error("a negative amount was taken")
	}
}

// An authorization has one nonce until the chain is beyond it, and no two have the same.
func TestTheNonceQueue(t *testing.T) {
	w := newWorld(t)
	relayer := common.Address{3}
	take := func(authorization byte, mined, deep uint64) Command {
		return Command{Kind: TakeNonce, Nonce: common.Hash{authorization}, Take: &NonceRequest{Chain: 8453, From: wallet, To: float, Mined: mined, Deep: deep}}
	}
	slot := func(authorization byte, mined, want uint64) {
		t.Helper()
		d, err := readDesk(w.o, relayer)
		if err != nil {
			t.Fatal(err)
		}
		if got, has := d.Queue(8453, mined).Slot(wallet, common.Hash{authorization}, mined); !has || got != want {
			t.Errorf("authorization %d has %d %v, want %d", authorization, got, has, want)
		}
	}
	w.want(relayer, take(1, 7, 7), Done)
	w.want(relayer, take(2, 7, 7), Done)
	w.want(relayer, take(1, 7, 7), Exists)
	slot(1, 7, 7)
	slot(2, 7, 8)
	w.want(relayer, take(1, 8, 7), Done) // 7 was mined, and it was not this
	slot(1, 8, 9)
	slot(1, 7, 7) // a reorganisation would give it back
	w.want(relayer, take(3, 20, 20), Done)
	slot(3, 20, 20)
	for i := range maxQueued - 1 {
		w.want(relayer, take(byte(100+i%100), uint64(21+i), 20), Done)
	}
	w.want(relayer, take(99, 1000, 20), Limited)
	w.want(relayer, take(99, 1000, 1000), Done)
	slot(99, 1000, 1000)
}

// A relayer whose key is moved to another chain begins there with that chain's nonces, and goes on where it was when it
// comes back.
func TestARelayerOnAnotherChain(t *testing.T) {
	w := newWorld(t)
	relayer := common.Address{3}
	take := func(chain uint64, authorization byte, mined uint64, want Outcome) {
		t.Helper()
		w.want(relayer, Command{Kind: TakeNonce, Nonce: common.Hash{authorization}, Take: &NonceRequest{Chain: chain, From: wallet, To: float, Mined: mined}}, want)
	}
	next := func(chain, want uint64) {
		t.Helper()
		d, err := readDesk(w.o, relayer)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Queue(chain, 0).Next; got != want {
			t.Errorf("the next nonce on chain %d is %d, want %d", chain, got, want)
		}
	}
	take(0, 1, 7, Refused) // which chain it is has to be said
	take(8453, 1, 5000, Done)
	take(8453, 2, 5000, Done)
	take(1, 1, 3, Done)
	take(1, 1, 3, Exists)
	next(8453, 5002)
	next(1, 4)
	take(8453, 2, 5000, Exists)
	take(8453, 3, 5000, Done)
	next(8453, 5003)
	next(1, 4)
	for chain := range uint64(maxChains) - 2 {
		take(100+chain, 1, 0, Done)
	}
	take(99, 1, 0, Refused)
	take(1, 2, 3, Done)
}

// The queue of before chains were named is of the first chain that asks, unless its nonces cannot be that chain's.
func TestANonceQueueOfBefore(t *testing.T) {
	for name, c := range map[string]struct{ mined, before, next uint64 }{
		"the same chain": {5000, 5002, 5003}, "another": {3, 0, 4},
	} {
		w := newWorld(t)
		relayer := common.Address{3}
		w.o.Put(desks, relayer[:], []byte(`{"nonce":"`+common.Hash{}.Hex()+`","nextNonce":5002,"nonceQueue":[`+
			`{"nonce":5001,"from":"`+wallet.Hex()+`","to":"`+float.Hex()+`","authorization":"`+common.Hash{1}.Hex()+`"}]}`))
		queued := func(next uint64) {
			t.Helper()
			d, err := readDesk(w.o, relayer)
			if err != nil {
				t.Fatal(err)
			}
			q := d.Queue(8453, c.mined)
			if _, has := q.Slot(wallet, common.Hash{1}, 0); q.Next != next || has != (name == "the same chain") {
				t.Errorf("%s: %+v, want %d next", name, d, next)
			}
		}
		queued(c.before) // it is read before one is taken
		w.want(relayer, Command{Kind: TakeNonce, Nonce: common.Hash{2}, Take: &NonceRequest{Chain: 8453, From: wallet, To: float, Mined: c.mined}}, Done)
		queued(c.next)
	}
}

// A wallet's payments are listed from the first that it can have, after those of all wallets before it.
func TestBeforeWallet(t *testing.T) {
	for _, of := range []common.Address{{1}, {19: 1}, {1, 19: 255}} {
		before, last := BeforeWallet(of), paymentKey(common.BigToAddress(new(big.Int).Sub(of.Big(), common.Big1)), common.MaxHash)
		if string(before) != string(last) || string(before) >= string(paymentKey(of, common.Hash{})) {
			t.Errorf("%s: %x, want %x", of, before, last)
		}
	}
	if before := BeforeWallet(common.Address{}); before != nil {
		t.Errorf("before all wallets: %x", before)
	}
	d := &Desk{} // of no payment yet
	if !d.Free(common.Hash{}, "2026-03-01", nil) {
		t.Error("the zero nonce cannot be reserved")
	}
}

// Whatever arrives, in whatever order and however often, the desk's invariants hold.
func TestAnyCommands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, done := openDesk(t)
		defer done()
		tickets, onItsWay := map[byte]bool{}, map[byte]int{}
		for range rapid.IntRange(1, 60).Draw(t, "commands") {
			w.at = w.at.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "hours")) * time.Hour)
			n := rapid.ByteRange(1, 4).Draw(t, "nonce")
			c := rapid.SampledFrom([]Command{
				reservation(n, 1), reservation(n, 2), paid(n, false), paid(n, true), refund(n), decide(n, Accepted), decide(n, Rejected),
				sent(n, 1), sent(n, 2), released(n, 1), released(n, 2), void(n),
				{Kind: Reorganised, Nonce: common.Hash{n}},
				{Kind: RefundConfirmed, Nonce: common.Hash{n}, Proof: &Proof{Final: true}},
				refundFailed(n),
				{Kind: RefundByHand, Nonce: common.Hash{n}},
				{Kind: RefundNotSent, Nonce: common.Hash{n}},
			}).Draw(t, "command")
			before := w.payment(n)
			late := c.Kind != Reserve && before != nil && before.Reserved > 1 && rapid.Bool().Draw(t, "late")
			if late {
				c.Reserved = before.Reserved - 1
			}
			outcome := w.do(wallet, c)
			after := w.payment(n)
			if late && (outcome == Done || after.UpdatedAt != before.UpdatedAt || after.Status != before.Status) {
				t.Fatalf("%s of a reservation before: %s, and it is %s", c.Kind, outcome, after.Status)
			}
			aTicketStays(t, tickets, n, after)
			wordsAreKept(t, before, after)
			if (c.Kind == RefundSent || c.Kind == RefundByHand) && outcome == Done {
				onItsWay[n]++
			}
			if (c.Kind == RefundFailed || c.Kind == RefundNotSent) && outcome == Done {
				onItsWay[n]--
			}
			if onItsWay[n] > 1 {
				t.Fatalf("the deposit of %d is on its way %d times", n, onItsWay[n])
			}
			undecidedOnesAreOpen(t, w)
			oneUndecided(t, w)
		}
	})
}

func aTicketStays(t fatal, tickets map[byte]bool, n byte, p *Payment) {
	t.Helper()
	switch {
	case p != nil && p.Charged() && p.Ticket == nil:
		t.Fatalf("%d is charged and has no ticket", n)
	case p != nil && p.Ticket != nil && p.Status == StatusReserved && !tickets[n]:
		t.Fatalf("%d has a ticket and was never charged", n)
	case tickets[n] && p.Ticket == nil && p.Status != StatusVoid:
		t.Fatalf("the ticket of %d is gone, and it is %s", n, p.Status)
	}
	tickets[n] = p != nil && p.Ticket != nil
}

// wordsAreKept: what is final or void is so for good; a new reservation begins anew only what is void.
func wordsAreKept(t fatal, before, after *Payment) {
	t.Helper()
	if before != nil && before.Status == StatusFinal && after.Status != StatusFinal {
		t.Fatalf("final became %s", after.Status)
	}
	if before != nil && before.Status == StatusVoid && after.Status != StatusVoid && after.Status != StatusReserved {
		t.Fatalf("void became %s", after.Status)
	}
}

func undecidedOnesAreOpen(t fatal, w *world) {
	t.Helper()
	for n := byte(1); n <= 4; n++ {
		row, err := w.o.Get(open, paymentKey(wallet, common.Hash{n}))
		if err != nil {
			t.Fatal(err)
		}
		if p := w.payment(n); p != nil && p.Undecided() != (row != nil) {
			t.Fatalf("payment %d is %s, in the table of open ones: %v", n, p.Status, row != nil)
		}
	}
}

// oneUndecided: a wallet has at most one payment that is neither charged nor refused by the chain. A
// reorganisation can make a second of what was paid.
func oneUndecided(t fatal, w *world) {
	t.Helper()
	held := 0
	for n := byte(1); n <= 4; n++ {
		if p := w.payment(n); p != nil && p.Status == StatusReserved {
			held++
		}
	}
	if held > 1 {
		t.Fatalf("%d payments are reserved at once", held)
	}
}

// A command that decodes is valid and encodes to the same; no bytes bring the decoder down.
func FuzzDecodeCommand(f *testing.F) {
	again, signed := sent(1, 1), decide(1, Accepted)
	again.Reserved, signed.Reserved = 2, 2
	signed.Seq, signed.By, signed.Signature = 3, "ada", []byte{1}
	for _, c := range []Command{again, signed, reservation(1, 1), paid(1, true), {Kind: TakeNonce, Take: &NonceRequest{}}, {Kind: TakeNonce, Take: &NonceRequest{Chain: 8453}}, {Kind: Sent, Attempt: &Attempt{Raw: []byte{1}}}, sent(1, 1), refundAttempt()} {
		c.ID = "1"
		value, err := EncodeCommand(&c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		c, err := DecodeCommand(value)
		if err != nil {
			return
		}
		again, err := EncodeCommand(c)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeCommand(again)
		if err != nil {
			t.Fatal(err)
		}
		if third, err := EncodeCommand(back); err != nil || string(third) != string(again) {
			t.Fatalf("%s came back as %s: %v", again, third, err)
		}
	})
}

// Rows that decode encode to the same, of this version and of those before; no bytes bring the decoders down.
func FuzzDecodeRows(f *testing.F) {
	for _, row := range []any{
		&Payment{Status: StatusSent, Reserved: 2, Attempt: &Attempt{Authorization: common.Hash{1}}, Ticket: &Ticket{Seq: 3}},
		&Desk{Queues: []Queue{{Chain: 8453, Next: 7, Slots: []Slot{{Nonce: 6}}}}}, &Desk{NextNonce: 7, NonceQueue: []Slot{{Nonce: 6}}},
	} {
		text, err := json.Marshal(row)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	same := func(t *testing.T, row any, decode func([]byte) (any, error)) {
		t.Helper()
		text, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decode(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if again, err := json.Marshal(back); err != nil || string(again) != string(text) {
			t.Fatalf("%s came back as %s: %v", text, again, err)
		}
	}
	f.Fuzz(func(t *testing.T, row []byte) {
		if p, err := DecodePayment(row); err == nil {
			same(t, p, func(text []byte) (any, error) { return DecodePayment(text) })
		}
		if d, err := DecodeDesk(row); err == nil {
			same(t, d, func(text []byte) (any, error) { return DecodeDesk(text) })
		}
	})
}

func FuzzParseTicketID(f *testing.F) {
	f.Add(TicketID(wallet, common.Hash{1}))
	f.Add("")
	f.Fuzz(func(t *testing.T, id string) {
		payer, nonce, err := ParseTicketID(id)
		if err == nil && TicketID(payer, nonce) != id {
			t.Fatalf("%q is also %q", id, TicketID(payer, nonce))
		}
	})
}
