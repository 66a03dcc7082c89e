package support

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"

	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/x402"
	"github.com/lienstream/lienstream/topics/polltest"
)

func (w *world) float() *Float {
	return &Float{Key: w.chain.Key("float"), Ceiling: big.NewInt(1000 * deposit), Terms: w.terms, Chain: w.chain.Client()}
}

// owed is a ticket whose deposit is owed back, paid by a wallet of its own.
func (w *world) owed(s *service, staff Staff, name string) (id string, payer common.Address) {
	w.t.Helper()
	key, err := crypto.GenerateKey()
	check(w.t, err)
	payer = crypto.PubkeyToAddress(key.PublicKey)
	w.fund(payer, deposit)
	id, _ = s.post(w.header(w.pay(key, name)), body(name)).created(w.t)
	check(w.t, staff.Decide(w.t.Context(), id, desk.Accepted, false))
	polltest.Until(w.t, "the payment is final", func() bool { return w.ticketOf(id).Status == desk.StatusFinal })
	return id, payer
}

func (w *world) ticketOf(id string) *desk.Payment {
	payer, nonce, err := desk.ParseTicketID(id)
	check(w.t, err)
	for {
		found, err := w.client().Find(w.t.Context(), payer, nonce)
		if err == nil && found.Payment != nil {
			return found.Payment
		}
		if w.t.Context().Err() != nil {
			w.t.Fatal(err)
		}
	}
}

// A deposit is returned once, whichever process dies between signing, recording and sending, and whichever submits it.
func TestRefundsThroughKills(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t)
	w.cfg.ResumeAfter, w.cfg.Resend, w.cfg.HTTP.DrainTimeout = time.Millisecond, 50*time.Millisecond, 20*time.Millisecond
	w.mine()
	w.fund(w.chain.Address("float"), 100*deposit)
	staff := w.staff()
	for i := range 10 {
		s := w.start(w.deps(w.relayer("relayer")))
		id, payer := w.owed(s, staff, fmt.Sprintf("Refund %d", i))
		s.stop()

		// The member of staff dies at step i; the service a little later.
		k := newKiller(int64(i % 5))
		mortal := w.staff()
		mortal.Desk = w.mortal(k, w.relays).Desk
		died := mortal.Refund(t.Context(), id, w.float())
		k2 := newKiller(int64(rng.IntN(8)))
		first := w.start(w.mortal(k2, w.relays))
		if died != nil {
			err := staff.Refund(t.Context(), id, w.float())
			if refund := w.ticketOf(id).Ticket.Refund; err != nil && refund != desk.RefundStatusSent && refund != desk.RefundStatusConfirmed {
				t.Fatalf("refund %d: it died of %v, and again: %v; the refund is %s", i, died, err, refund)
			}
		}
		if signed := w.ticketOf(id).Ticket.Return; signed != nil && i%3 == 0 {
			w.submit(signedOf(signed).Calldata())
		}
		select {
		case <-k2.kill:
		case <-time.After(time.Duration(rng.IntN(200)) * time.Millisecond):
		}
		first.stop()
		second := w.start(w.deps(w.relayer("relayer")))
		polltest.Until(t, fmt.Sprintf("refund %d is confirmed", i), func() bool { return w.ticketOf(id).Ticket.Refund == desk.RefundStatusConfirmed })
		if n := w.transfers(w.chain.Address("float"), payer); n != 1 || w.balance(payer) != deposit {
			t.Errorf("refund %d: sent %d times, the payer has %d", i, n, w.balance(payer))
		}
		if err := staff.Refund(t.Context(), id, w.float()); err == nil {
			t.Errorf("refund %d: sent again once it was confirmed", i)
		}
		second.stop()
	}
}

// While one sends a refund by hand another does not send it from the float; and what refunded a ticket refunds no
// other.
func TestOneOfStaffReturnsADeposit(t *testing.T) {
	w := newWorld(t)
	w.mine()
	w.fund(w.chain.Address("float"), 10*deposit)
	s := w.start(w.deps(w.relayer("relayer")))
	ann, bob := w.staff(), w.staff()
	id, payer := w.owed(s, ann, "By hand")
	check(t, ann.ByHand(t.Context(), id, w.chain.Client()))
	if err := bob.Refund(t.Context(), id, w.float()); err == nil {
		t.Error("the float signed what is sent by hand")
	}
	if err := bob.ByHand(t.Context(), id, w.chain.Client()); err == nil {
		t.Error("two send it by hand")
	}
	check(t, ann.NotSent(t.Context(), id))
	check(t, bob.Refund(t.Context(), id, w.float()))
	if err := ann.ByHand(t.Context(), id, w.chain.Client()); err == nil {
		t.Error("sent by hand what the float has signed")
	}
	polltest.Until(t, "the refund is confirmed", func() bool { return w.ticketOf(id).Ticket.Refund == desk.RefundStatusConfirmed })
	if n := w.transfers(w.chain.Address("float"), payer); n != 1 {
		t.Errorf("returned %d times", n)
	}
}

// twoOwed are two tickets of one wallet whose deposits are owed back; no service runs.
func (w *world) twoOwed(staff Staff) (ids [2]string, payer common.Address) {
	w.t.Helper()
	w.cfg.ResumeAfter = time.Millisecond
	w.mine()
	w.fund(w.chain.Address("float"), 10*deposit)
	first, second := w.pay(w.chain.Key("payer"), "first"), w.pay(w.chain.Key("payer"), "second")
	w.released(first, body("First")) // and so the day is free for the second
	s := w.start(w.deps(w.relayer("relayer")))
	ids[0] = desk.TicketID(first.From, first.Nonce)
	ids[1], _ = s.post(w.header(second), body("Second")).created(w.t)
	w.submit(first.Calldata())
	for _, id := range ids {
		polltest.Until(w.t, "it is final", func() bool { return w.ticketOf(id).Status == desk.StatusFinal })
		check(w.t, staff.Decide(w.t.Context(), id, desk.Accepted, false))
	}
	s.stop()
	return ids, first.From
}

// The float's transaction for a ticket is no refund of another, even before it is recorded.
func TestARefundIsOfOneTicket(t *testing.T) {
	w := newWorld(t)
	staff := w.staff()
	ids, payer := w.twoOwed(staff)
	check(t, staff.Refund(t.Context(), ids[0], w.float()))
	check(t, staff.ByHand(t.Context(), ids[1], w.chain.Client()))
	w.submit(signedOf(w.ticketOf(ids[0]).Ticket.Return).Calldata())
	float := w.chain.Address("float")
	polltest.Until(t, "somebody has submitted it", func() bool { return w.transfers(float, payer) == 1 })
	transaction := w.transferLogs(float, payer, 0)[0].TxHash
	if err := staff.Refunded(t.Context(), ids[1], w.chain.Client(), transaction, 1); err == nil || !strings.Contains(err.Error(), ids[0]) {
		t.Errorf("the refund of another was recorded: %v", err)
	}
}

// The authorization's nonce is the payer's choice, zero as well: its payment is followed, and its refund is found as
// another's.
func TestTheZeroNonce(t *testing.T) {
	w := newWorld(t)
	w.mine()
	w.fund(w.chain.Address("float"), 10*deposit)
	staff, payer := w.staff(), w.chain.Address("payer")
	zero := w.pay(w.chain.Key("payer"), "", func(a *x402.Authorization) { a.Nonce = common.Hash{} })
	w.released(zero, body("Zero")) // and so the day is free for the second
	s := w.start(w.deps(w.relayer("relayer")))
	other, _ := s.post(w.header(w.pay(w.chain.Key("payer"), "other")), body("Other")).created(t)
	w.submit(zero.Calldata())
	ids := []string{desk.TicketID(payer, zero.Nonce), other}
	for _, id := range ids {
		polltest.Until(t, "it is final", func() bool { return w.ticketOf(id).Status == desk.StatusFinal })
		check(t, staff.Decide(t.Context(), id, desk.Accepted, false))
	}
	s.stop()
	check(t, staff.Refund(t.Context(), ids[0], w.float()))
	returned := w.ticketOf(ids[0]).Ticket.Return
	queue := NonceQueue{Desk: w.client(), Chain: w.terms.ChainID}
	nonce, err := queue.Take(t.Context(), w.chain.Address("relayer"), &signedOf(returned).Authorization, 0, 0)
	check(t, err)
	attempt := attemptOf(x402.Attempt{Hash: common.Hash{7}, Raw: []byte{1}, Nonce: nonce}, returned)
	outcome, _, err := w.client().Do(t.Context(), payer, &desk.Command{Kind: desk.RefundSent, Reserved: 1, Attempt: attempt})
	if err != nil || outcome != desk.Done {
		t.Fatal(outcome, err)
	}
	if got, _, err := queue.Recorded(t.Context(), w.chain.Address("relayer"), nonce); err != nil || got == nil || got.Hash != attempt.Hash {
		t.Errorf("what is recorded of its refund at the relayer's nonce: %+v %v", got, err)
	}
	w.submit(signedOf(returned).Calldata())
	polltest.Until(t, "somebody has submitted it", func() bool { return w.transfers(w.chain.Address("float"), payer) == 1 })
	transaction := w.transferLogs(w.chain.Address("float"), payer, 0)[0].TxHash
	if err := staff.RefundedBefore(t.Context(), ids[1], w.chain.Client(), transaction, 1); err == nil || !strings.Contains(err.Error(), ids[0]) {
		t.Errorf("its refund was recorded for another: %v", err)
	}
}

// together has two list tickets at the same time: each sees what was there before either has written.
type together struct {
	desk.Reads
	both *sync.WaitGroup
}

func (r together) List(ctx context.Context, partition int32, undecided bool, after []byte, limit int) ([]*desk.Payment, []byte, error) {
	found, next, err := r.Reads.List(ctx, partition, undecided, after, limit)
	r.both.Done()
	r.both.Wait()
	return found, next, err
}

// Two members of staff that record one transaction at once, each for another ticket, record it for one of them.
func TestTwoRecordOneTransaction(t *testing.T) {
	w := newWorld(t)
	staff := w.staff()
	ids, payer := w.twoOwed(staff)
	for _, id := range ids {
		check(t, staff.ByHand(t.Context(), id, w.chain.Client()))
	}
	sent, err := w.chain.Call(t.Context(), "float", "transfer", payer, big.NewInt(deposit))
	check(t, err)
	var both, ended sync.WaitGroup
	both.Add(len(ids))
	var errs [2]error
	for i, id := range ids {
		one := staff
		one.Desk = desk.NewClient(w.producer, together{desk.Routed{Router: w.router}, &both}, w.cat)
		ended.Go(func() { errs[i] = one.Refunded(t.Context(), id, w.chain.Client(), sent.TxHash, 1) })
	}
	ended.Wait()
	confirmed := 0
	for _, id := range ids {
		if w.ticketOf(id).Ticket.Refund == desk.RefundStatusConfirmed {
			confirmed++
		}
	}
	if err := errors.Join(errs[:]...); confirmed != 1 || err == nil || !strings.Contains(err.Error(), "another ticket") {
		t.Errorf("one transaction was recorded as the refund of %d tickets: %v", confirmed, err)
	}
}

// The float gives its ceiling a day and no more, however many ask at once; what it lacks it does not sign.
func TestTheFloatHasACeiling(t *testing.T) {
	w := newWorld(t)
	w.mine()
	s := w.start(w.deps(w.relayer("relayer")))
	staff := w.staff()
	var ids [3]string
	var payers [3]common.Address
	for i := range ids {
		ids[i], payers[i] = w.owed(s, staff, fmt.Sprintf("Ceiling %d", i))
	}
	float := w.float()
	float.Ceiling = big.NewInt(2*deposit + deposit/2)
	if err := staff.Refund(t.Context(), ids[0], float); err == nil {
		t.Error("an empty float signed")
	}
	w.fund(float.Address(), 10*deposit)
	var wg sync.WaitGroup
	var limited, failed atomic.Int64
	for _, id := range ids {
		wg.Go(func() {
			err := staff.Refund(t.Context(), id, float)
			switch {
			case errors.Is(err, errCeiling):
				limited.Add(1)
			case err != nil:
				failed.Add(1)
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if limited.Load() != 1 || failed.Load() != 0 {
		t.Errorf("%d of three refunds were beyond the ceiling, want 1", limited.Load())
	}
	polltest.Until(t, "two refunds are confirmed", func() bool {
		n := 0
		for _, id := range ids {
			if w.ticketOf(id).Ticket.Refund == desk.RefundStatusConfirmed {
				n++
			}
		}
		return n == 2
	})
	if got := 10*deposit - w.balance(float.Address()); got != 2*deposit {
		t.Errorf("the float gave %d, want two deposits", got)
	}
}

// draining takes the payer's money away right before the first transaction is sent.
type draining struct {
	x402.Sender
	drain func()
	once  sync.Once
}

func (d *draining) SendTransaction(ctx context.Context, tx *types.Transaction) error {
	d.once.Do(d.drain)
	return d.Sender.SendTransaction(ctx, tx)
}

// A payment that the chain refused is answered 402 and frees the wallet's day; charged all the same, it has its ticket.
func TestARevertedPaymentFreesTheDay(t *testing.T) {
	w := newWorld(t)
	w.cfg.ResumeAfter = time.Millisecond
	w.mine()
	payer, owner := w.chain.Address("payer"), w.chain.Address("owner")
	chain := &draining{Sender: w.chain.Client(), drain: func() {
		_, err := w.chain.Call(t.Context(), "payer", "transfer", owner, big.NewInt(w.balance(payer)))
		check(t, err)
	}}
	s := w.start(w.deps(w.relayerOn(chain, w.client(), "relayer")))
	signed := w.pay(w.chain.Key("payer"), "reverted")
	got := s.post(w.header(signed), body("Reverted"))
	if got.status != http.StatusPaymentRequired || got.reason(t) != x402.ReasonTransaction || w.paid() != 0 {
		t.Fatalf("%d %s, paid %d", got.status, got.body, w.paid())
	}
	w.fund(payer, 2*deposit)
	s.post(w.header(w.pay(w.chain.Key("payer"), "another")), body("Another")).created(t)
	if got := s.post(w.header(signed), body("Reverted")); got.status != http.StatusTooManyRequests {
		t.Errorf("the day was taken by another, and the first again: %d %s", got.status, got.body)
	}
	w.submit(signed.Calldata())
	polltest.Until(t, "who was charged has a ticket", func() bool {
		return w.charges(payer) == 2 && w.ticketOf(desk.TicketID(payer, signed.Nonce)).Charged()
	})
	s.post(w.header(signed), body("Reverted")).created(t)
}

// A stranger's transfer before a refund by hand was announced is no refund of ours, nor is what the
// payer sends himself.
func TestAnothersTransferIsNoRefund(t *testing.T) {
	w := newWorld(t)
	w.mine()
	s := w.start(w.deps(w.relayer("relayer")))
	staff, chain := w.staff(), w.chain.Client()
	id, payer := w.owed(s, staff, "self")
	s.stop()
	w.fund(w.chain.Address("stranger"), deposit)
	before, err := w.chain.Call(t.Context(), "stranger", "transfer", payer, big.NewInt(deposit))
	check(t, err)
	check(t, staff.ByHand(t.Context(), id, chain))
	if err := staff.Refunded(t.Context(), id, chain, before.TxHash, 1); err == nil {
		t.Errorf("a transfer of before is recorded as the refund: %s", w.ticketOf(id).Ticket.Refund)
	}
	p := w.ticketOf(id)
	log := func(from common.Address) []*types.Log {
		return []*types.Log{{
			Address: p.Asset, Data: common.LeftPadBytes(p.Authorization.Value.ToInt().Bytes(), 32),
			Topics: []common.Hash{x402.TopicTransfer, common.BytesToHash(from[:]), common.BytesToHash(payer[:])},
		}}
	}
	if returns(log(payer), p) != nil || returns(log(w.chain.Address("float")), p) == nil {
		t.Error("the payer's own transfer counts, or nobody's")
	}
	check(t, staff.NotSent(t.Context(), id))
	if err := staff.Refunded(t.Context(), id, chain, before.TxHash, 1); err == nil || !strings.Contains(err.Error(), "--tx") {
		t.Errorf("nobody sends it by hand: %v", err)
	}
	check(t, staff.ByHand(t.Context(), id, chain))
	w.fund(w.chain.Address("float"), deposit)
	polltest.Until(t, "a block later", func() bool {
		head, err := chain.BlockNumber(t.Context())
		return err == nil && head > w.ticketOf(id).Ticket.ByHandFrom
	})
	after, err := w.chain.Call(t.Context(), "float", "transfer", payer, big.NewInt(deposit))
	check(t, err)
	if err := staff.Refunded(t.Context(), id, elsewhere{chain}, after.TxHash, 1); err == nil {
		t.Error("recorded by the receipt of a block that is not the chain's")
	}
	check(t, staff.Refunded(t.Context(), id, chain, after.TxHash, 1))
}

// elsewhere is a node whose receipts are of blocks that are no more.
type elsewhere struct{ *ethclient.Client }

func (n elsewhere) TransactionReceipt(ctx context.Context, hash common.Hash) (*types.Receipt, error) {
	receipt, err := n.Client.TransactionReceipt(ctx, hash)
	if err == nil {
		for _, l := range receipt.Logs {
			l.BlockHash[0]++
		}
	}
	return receipt, err
}

// A refund that was sent before it was announced is recorded once its log is verified, whether it was announced since
// or not: after the payment, to the payer, and of no other ticket.
func TestARefundThatIsOnTheChain(t *testing.T) {
	w := newWorld(t)
	staff, chain := w.staff(), w.chain.Client()
	w.fund(w.chain.Address("payer"), deposit)
	w.fund(w.chain.Address("float"), 4*deposit)
	early, err := w.chain.Call(t.Context(), "float", "transfer", w.chain.Address("payer"), big.NewInt(deposit))
	check(t, err)
	ids, payer := w.twoOwed(staff)
	refused := func(id string, transaction common.Hash, says string) {
		t.Helper()
		if err := staff.RefundedBefore(t.Context(), id, chain, transaction, 1); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	refused(ids[0], early.TxHash, "does not refund")
	less, err := w.chain.Call(t.Context(), "float", "transfer", payer, big.NewInt(deposit-1))
	check(t, err)
	refused(ids[0], less.TxHash, "does not refund")
	refused(ids[0], common.Hash{1}, "not found")
	sent, err := w.chain.Call(t.Context(), "float", "transfer", payer, big.NewInt(deposit))
	check(t, err)
	check(t, staff.RefundedBefore(t.Context(), ids[0], chain, sent.TxHash, 1))
	refused(ids[0], sent.TxHash, "is CONFIRMED")
	refused(ids[1], sent.TxHash, ids[0])
	second, err := w.chain.Call(t.Context(), "float", "transfer", payer, big.NewInt(deposit))
	check(t, err)
	check(t, staff.ByHand(t.Context(), ids[1], chain))
	refused(ids[1], sent.TxHash, ids[0])
	check(t, staff.RefundedBefore(t.Context(), ids[1], chain, second.TxHash, 1))
	for _, id := range ids {
		if refund := w.ticketOf(id).Ticket.Refund; refund != desk.RefundStatusConfirmed {
			t.Errorf("the refund of %s is %s", id, refund)
		}
	}
}

// A refund whose authorization the float cancelled is FAILED; the float can sign no other, and the member of staff is
// told to send it by hand.
func TestACancelledRefundGoesByHand(t *testing.T) {
	w := newWorld(t)
	w.mine()
	s := w.start(w.deps(w.relayer("relayer")))
	staff := w.staff()
	id, payer := w.owed(s, staff, "cancelled refund")
	s.stop()
	f := w.float()
	w.fund(f.Address(), 10*deposit)
	check(t, staff.Refund(t.Context(), id, f))
	// on the chain before the service starts: its relayer may offer more for the same block
	_, err := w.chain.Send(t.Context(), "stranger", w.chain.Token(), w.cancels(f.Key, desk.RefundNonce(payer, w.ticketOf(id).Authorization.Nonce)))
	check(t, err)
	w.start(w.deps(w.relayer("relayer")))
	polltest.Until(t, "it is FAILED", func() bool { return w.ticketOf(id).Ticket.Refund == desk.RefundStatusFailed })
	if err := staff.Refund(t.Context(), id, f); !errors.Is(err, errUsed) || !strings.Contains(err.Error(), "by hand") {
		t.Errorf("refund again: %v", err)
	}
	check(t, staff.ByHand(t.Context(), id, w.chain.Client()))
	if n := w.transfers(f.Address(), payer); n != 0 {
		t.Errorf("returned %d times", n)
	}
}

// ahead has the payer do something right before each transaction of the relayer.
type ahead struct {
	x402.Sender
	do func()
}

func (a *ahead) SendTransaction(ctx context.Context, tx *types.Transaction) error {
	a.do()
	return a.Sender.SendTransaction(ctx, tx)
}

// A wallet that cancels each authorization as soon as our transaction is out costs the relayer gas as one whose
// payments revert does: a few times a day, and not as often as it likes.
func TestAWalletThatCancelsIsCounted(t *testing.T) {
	w := newWorld(t)
	key := w.chain.Key("payer")
	var signed *x402.Signed
	chain := &ahead{Sender: w.chain.Client(), do: func() {
		_, err := w.chain.Send(t.Context(), "stranger", w.chain.Token(), w.cancels(key, signed.Nonce))
		check(t, err)
	}}
	w.mine()
	s := w.start(w.deps(w.relayerOn(chain, w.client(), "relayer")))
	for i := range desk.MaxRefused {
		signed = w.pay(key, fmt.Sprint("cancelled ", i))
		if got := s.post(w.header(signed), body("Cancelled")); got.status != http.StatusPaymentRequired {
			t.Fatalf("payment %d: %d %s", i, got.status, got.body)
		}
	}
	signed = w.pay(key, "one more")
	if got := s.post(w.header(signed), body("Cancelled")); got.code() != "REPORT_LIMIT" {
		t.Errorf("one more: %d %s", got.status, got.body)
	}
}
