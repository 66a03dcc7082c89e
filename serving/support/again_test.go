package support

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/engine/read"
	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/x402"
	"github.com/lienstream/lienstream/topics/polltest"
)

// A payment that was taken is judged by what was asked for then: another price or payee since voids none, and the same
// request still gets its ticket.
func TestTermsChangeWhileAPaymentIsUndecided(t *testing.T) {
	w := newWorld(t)
	w.cfg.ResumeAfter, w.cfg.Wait = time.Millisecond, 50*time.Millisecond
	w.mine()
	payment := w.header(w.pay(w.chain.Key("payer"), "terms"))
	before := w.start(w.deps(w.relayer("no gas")))
	if got := before.post(payment, body("Terms")); got.code() != "PAYMENT_PENDING" {
		t.Fatalf("without gas: %d %s", got.status, got.body)
	}
	before.stop()

	w.cfg.Wait = 20 * time.Second
	w.cfg.Payment.Amount, w.cfg.Payment.PayTo = "20000000", w.chain.Address("owner").Hex()
	after := w.start(w.deps(w.relayer("relayer")))
	id, token := after.post(payment, body("Terms")).created(t)
	if n := w.charges(w.chain.Address("payer")); n != 1 {
		t.Errorf("charged %d times", n)
	}
	// A payment that was not accepted before must meet the present requirement.
	if got := after.post(w.header(w.pay(w.chain.Key("stranger"), "old price")), body("Terms")); got.status != http.StatusPaymentRequired {
		t.Errorf("the old price, now: %d %s", got.status, got.body)
	}
	if got := after.ticket(id, token); got.status != http.StatusOK {
		t.Errorf("its ticket: %d %s", got.status, got.body)
	}
	if page := after.get("/t/"+id+"/content", token); !strings.Contains(string(page.body), "<p>15 USDC, paid") {
		t.Errorf("its page: %s", page.body)
	}
	after.stop()
	w.cfg.Payment.Asset = w.chain.Address("another").Hex()
	another, err := New(w.cfg, w.deps(w.relayer("relayer")), zap.NewNop(), w.metrics.New())
	check(t, err)
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/t/"+id+"/content", http.NoBody)
	req.Header.Set("x-service-ticket-token", token)
	page := httptest.NewRecorder()
	another.api.ServeHTTP(page, req)
	if !strings.Contains(page.Body.String(), "<p>15000000 of "+strings.ToLower(w.chain.Token().Hex())) {
		t.Errorf("its page, once another token is asked for: %d %s", page.Code, page.Body)
	}
}

// A payment in another token than the configured one is left as it is: nothing can be said of it.
func TestTheTokenChangesWhileAPaymentIsUndecided(t *testing.T) {
	w := newWorld(t)
	w.cfg.Wait = 50 * time.Millisecond
	w.mine()
	signed := w.pay(w.chain.Key("payer"), "token")
	before := w.start(w.deps(w.relayer("no gas")))
	before.post(w.header(signed), body("Token"))
	before.stop()
	w.cfg.Payment.Asset = w.chain.Address("another").Hex()
	after, err := New(w.cfg, w.deps(w.relayer("relayer")), zap.NewNop(), w.metrics.New())
	check(t, err)
	d := &drive{key: driveKey{signed.From, signed.Nonce}}
	if done, err := after.step(t.Context(), d, zap.NewNop()); done || !errors.Is(err, errAsset) {
		t.Errorf("done %v, %v", done, err)
	}
}

// A charged client gets the ticket for the same request, even if the desk did not have it before its authorization
// ended.
func TestChargedBeforeItWasTaken(t *testing.T) {
	w := newWorld(t)
	w.mine()
	payer := w.chain.Key("payer")
	used, unused := w.pay(payer, "used"), w.pay(payer, "unused")
	w.submit(used.Calldata())
	polltest.Until(t, "somebody has submitted it", func() bool { return w.charges(used.From) == 1 })
	later := func(after time.Duration) *service {
		deps := w.deps(w.relayer("relayer"))
		deps.Now = func() time.Time { return time.Unix(int64(used.ValidBefore), 0).Add(after) }
		return w.start(deps)
	}
	refused := func(s *service, payment string) {
		t.Helper()
		if got := s.post(payment, body("Late")); got.status != http.StatusPaymentRequired || got.reason(t) != x402.ReasonValidBefore {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	refused(later(2*lateLimit), w.header(used))
	s := later(time.Second)
	refused(s, w.header(unused))
	s.post(w.header(used), body("Late")).created(t)
	if n := w.charges(used.From); n != 1 {
		t.Errorf("charged %d times", n)
	}
}

// reserved has the desk take a payment that no service follows.
func (w *world) reserved(a *x402.Signed, report []byte) {
	w.t.Helper()
	outcome, _, err := w.client().Do(w.t.Context(), a.From, &desk.Command{Kind: desk.Reserve, Nonce: a.Nonce, Reservation: &desk.Reservation{
		Authorization: authorizationOf(a), Asset: w.terms.Token, BodyDigest: digestOf(report), Report: w.sealed(a, report),
	}})
	if err != nil || outcome != desk.Done {
		w.t.Fatalf("reserve: %s %v", outcome, err)
	}
}

// released is reserved, and then the chain refuses it.
func (w *world) released(a *x402.Signed, report []byte) {
	w.t.Helper()
	w.reserved(a, report)
	authorized := authorizationOf(a)
	attempt := attemptOf(x402.Attempt{Hash: common.Hash{1}}, &authorized)
	for _, kind := range []desk.Kind{desk.Sent, desk.Released} {
		outcome, _, err := w.client().Do(w.t.Context(), a.From, &desk.Command{Kind: kind, Nonce: a.Nonce, Reserved: 1, Attempt: attempt})
		if err != nil || outcome != desk.Done {
			w.t.Fatalf("%s: %s %v", kind, outcome, err)
		}
	}
}

// A released payment that was charged after all is a ticket, though another has the wallet's day by now.
func TestReleasedAndChargedAllTheSame(t *testing.T) {
	w := newWorld(t)
	w.mine()
	payer := w.chain.Key("payer")
	first, second := w.pay(payer, "first"), w.pay(payer, "second")
	w.released(first, body("First"))
	w.reserved(second, body("Second"))
	w.submit(first.Calldata())
	polltest.Until(t, "somebody has submitted it", func() bool { return w.charges(first.From) == 1 })
	w.cfg.Reconcile = time.Hour
	w.start(w.deps(w.relayer("relayer"))).post(w.header(first), body("First")).created(t)
}

// A released payment that is sent again when it is about to end is not submitted again, as that would only cost gas.
// Its ticket is there all the same once it is charged.
func TestReleasedAndAboutToEnd(t *testing.T) {
	w := newWorld(t)
	w.mine()
	signed := w.pay(w.chain.Key("payer"), "ends")
	w.released(signed, body("Ends"))
	deps := w.deps(w.relayer("relayer"))
	deps.Now = func() time.Time { return time.Unix(int64(signed.ValidBefore)-29, 0) }
	s := w.start(deps)
	if got := s.post(w.header(signed), body("Ends")); got.status != http.StatusPaymentRequired || got.reason(t) != x402.ReasonValidBefore {
		t.Errorf("%d %s", got.status, got.body)
	}
	found, err := w.client().Find(t.Context(), signed.From, signed.Nonce)
	check(t, err)
	if p := found.Payment; p.Status != desk.StatusReleased || p.Reserved != 1 {
		t.Errorf("it was reserved anew: %+v", p)
	}
	w.submit(signed.Calldata())
	polltest.Until(t, "somebody has submitted it", func() bool { return w.charges(signed.From) == 1 })
	s.post(w.header(signed), body("Ends")).created(t)
}

// A payment whose transaction is mined when it has ended counts among those of its wallet that failed: it has cost gas.
func TestATransactionThatIsMinedTooLate(t *testing.T) {
	var at atomic.Int64
	at.Store(time.Now().Unix())
	w := newWorldOf(t, settings{now: func() time.Time { return time.Unix(at.Load(), 0) }})
	signed := w.pay(w.chain.Key("payer"), "late")
	w.cfg.Wait = 100 * time.Millisecond
	s := w.start(w.deps(w.relayer("relayer")))
	if got := s.post(w.header(signed), body("Late")); got.code() != "PAYMENT_PENDING" {
		t.Fatalf("%d %s", got.status, got.body)
	}
	w.waits(1)
	s.stop() // both are final when it is looked at again: reverted, and expired
	at.Store(int64(signed.ValidBefore))
	w.mines(w.cfg.Confirmations)
	w.start(w.deps(w.relayer("relayer")))
	var found desk.Found
	polltest.Until(t, "it is void", func() bool {
		var err error
		found, err = w.client().Find(t.Context(), signed.From, signed.Nonce)
		check(t, err)
		return found.Payment.Status == desk.StatusVoid
	})
	if found.Desk.Refused != 1 {
		t.Errorf("%d payments of the wallet have failed, want 1", found.Desk.Refused)
	}
}

// A ticket whose payment a reorganisation took back and the chain then refused has its replies again once the same
// request is paid.
func TestATicketComesBackWithItsReplies(t *testing.T) {
	w := newWorld(t)
	w.cfg.ResumeAfter, w.cfg.Confirmations = time.Millisecond, 1000
	w.cfg.Resend = time.Minute // what is reserved anew waits for nothing that was sent before
	w.mine()
	signed, payer := w.pay(w.chain.Key("payer"), "back"), w.chain.Address("payer")
	s := w.start(w.deps(w.relayer("relayer")))
	id, token := s.post(w.header(signed), body("Back")).created(t)
	check(t, w.staff().Reply(t.Context(), id, "Thank you."))
	w.stopMining()
	s.stop()
	head, err := w.chain.Client().BlockNumber(t.Context())
	check(t, err)
	check(t, w.chain.Rewind(t.Context(), head-w.ticketOf(id).Proof.Block+1))
	_, err = w.chain.Call(t.Context(), "payer", "transfer", w.chain.Address("owner"), big.NewInt(w.balance(payer)))
	check(t, err)

	w.cfg.Confirmations = 3
	w.mine()
	s = w.start(w.deps(w.relayer("relayer")))
	polltest.Until(t, "the chain has refused it", func() bool { return w.ticketOf(id).Status == desk.StatusReleased })
	w.fund(payer, deposit)
	if again, same := s.post(w.header(signed), body("Back")).created(t); again != id || same != token {
		t.Errorf("ticket %s, want %s", again, id)
	}
	var ticket struct{ Replies []struct{ Body string } }
	got := s.ticket(id, token)
	check(t, json.Unmarshal(got.body, &ticket))
	if len(ticket.Replies) != 1 || ticket.Replies[0].Body != "Thank you." || w.charges(payer) != 1 {
		t.Errorf("charged %d times: %s", w.charges(payer), got.body)
	}
}

// A report that was paid for is not judged again: the market's head may be lower now, or unknown.
func TestAPaidReportIsNotJudgedAgain(t *testing.T) {
	w := newWorld(t)
	w.mine()
	payment := w.header(w.pay(w.chain.Key("payer"), "judged"))
	s := w.start(w.deps(w.relayer("relayer")))
	id, _ := s.post(payment, body("Judged")).created(t)
	s.stop()
	for name, head := range map[string]func(context.Context) (uint64, error){
		"lower":   func(context.Context) (uint64, error) { return 10, nil },
		"unknown": func(context.Context) (uint64, error) { return 0, errors.New("no indexer") },
	} {
		deps := w.deps(w.relayer("relayer"))
		deps.Head = head
		s := w.start(deps)
		if got, _ := s.post(payment, body("Judged")).created(t); got != id {
			t.Errorf("%s: ticket %s, want %s", name, got, id)
		}
		s.stop()
	}
}

// A request waits for its payment before it is told to come again: its client does not by itself.
func TestARequestWaits(t *testing.T) {
	w := newWorld(t)
	w.cfg.Wait = 300 * time.Millisecond
	s := w.start(w.deps(w.relayer("relayer"))) // no blocks are mined
	began := time.Now()
	got := s.post(w.header(w.pay(w.chain.Key("payer"), "waits")), body("Waits"))
	if took := time.Since(began); got.code() != "PAYMENT_PENDING" || took < w.cfg.Wait {
		t.Errorf("%d %s after %s, it is to wait for %s", got.status, got.body, took, w.cfg.Wait)
	}
}

// moving is a desk that cannot be read for a while.
type moving struct {
	desk.Reads
	left atomic.Int64
}

func (m *moving) Find(ctx context.Context, partition int32, wallet common.Address, nonce common.Hash) (desk.Found, error) {
	if m.left.Add(-1) >= 0 {
		return desk.Found{}, read.ErrUnavailable
	}
	return m.Reads.Find(ctx, partition, wallet, nonce)
}

// A payment made while the desk moves to another node waits for it: the client does not retry by itself.
func TestTheDeskMovesMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.mine()
	reads := &moving{Reads: desk.Routed{Router: w.router}}
	deps := w.deps(w.relayer("relayer"))
	deps.Desk = desk.NewClient(w.producer, reads, w.cat)
	s := w.start(deps)
	reads.left.Store(5)
	s.post(w.header(w.pay(w.chain.Key("payer"), "moves")), body("Moves")).created(t)
}

// A wallet's day, and the payments of it that failed, outlive the processes that counted them.
func TestTheDayOutlivesTheDesk(t *testing.T) {
	w := newWorld(t)
	w.cfg.ResumeAfter = time.Millisecond
	hostile := w.deploy(ambush)
	w.fund(hostile, deposit)
	w.mine()
	payment := w.header(w.pay(w.chain.Key("payer"), "first"))
	s := w.start(w.deps(w.relayer("relayer")))
	id, token := s.post(payment, body("First")).created(t)
	for i := range desk.MaxRefused {
		if got := s.post(w.ambushed(hostile, fmt.Sprint(i)), body("Ambush")); got.reason(t) != x402.ReasonTransaction {
			t.Fatalf("payment %d: %d %s", i, got.status, got.body)
		}
	}
	s.stop()
	w.closeDesk()
	w.openDesk("b")

	s = w.start(w.deps(w.relayer("relayer")))
	for name, second := range map[string]string{
		"a second report of the day": w.header(w.pay(w.chain.Key("payer"), "second")), "a payment that would fail": w.ambushed(hostile, "more"),
	} {
		if got := s.post(second, body("Second")); got.code() != "REPORT_LIMIT" {
			t.Errorf("%s, at another desk: %d %s", name, got.status, got.body)
		}
	}
	if again, same := s.post(payment, body("First")).created(t); again != id || same != token {
		t.Errorf("the first again: ticket %s, want %s", again, id)
	}
	if n := w.charges(w.chain.Address("payer")); n != 1 {
		t.Errorf("charged %d times", n)
	}
}

// behind is a node that has not seen the last blocks.
type behind struct {
	*ethclient.Client
	blocks int64
}

func (b behind) HeaderByNumber(ctx context.Context, number *big.Int) (*types.Header, error) {
	if number != nil {
		return b.Client.HeaderByNumber(ctx, number)
	}
	head, err := b.Client.HeaderByNumber(ctx, nil)
	if err != nil {
		return nil, err
	}
	return b.Client.HeaderByNumber(ctx, head.Number.Sub(head.Number, big.NewInt(b.blocks)))
}

// A node that is behind the one that said paid takes no ticket away.
func TestANodeThatIsBehind(t *testing.T) {
	w := newWorld(t)
	w.cfg.Confirmations = 1000
	w.mine()
	signed := w.pay(w.chain.Key("payer"), "behind")
	s := w.start(w.deps(w.relayer("relayer")))
	id, _ := s.post(w.header(signed), body("Behind")).created(t)
	s.stop()
	w.stopMining()
	deps := w.deps(w.relayer("relayer"))
	p := w.ticketOf(id)
	head, err := w.chain.Client().BlockNumber(t.Context())
	check(t, err)
	deps.Chain = behind{w.chain.Client(), int64(head - p.Proof.Block + 1)}
	late, err := New(w.cfg, deps, zap.NewNop(), w.metrics.New())
	check(t, err)
	d := &drive{key: driveKey{signed.From, signed.Nonce}, moved: make(chan struct{})}
	if done, err := late.step(t.Context(), d, zap.NewNop()); done || err != nil {
		t.Errorf("done %v, %v", done, err)
	}
	if p := w.ticketOf(id); !p.Charged() {
		t.Errorf("the payment is %s", p.Status)
	}
}

// What a reorganisation took back, deeper than anything is waited for, is not returned from the float.
func TestADeepReorganisationIsNotRefunded(t *testing.T) {
	w := newWorld(t)
	w.mine()
	w.fund(w.chain.Address("float"), 10*deposit)
	s := w.start(w.deps(w.relayer("relayer")))
	staff := w.staff()
	id, payer := w.owed(s, staff, "Deep")
	w.stopMining()
	s.stop()
	head, err := w.chain.Client().BlockNumber(t.Context())
	check(t, err)
	check(t, w.chain.Rewind(t.Context(), head-w.ticketOf(id).Proof.Block+1))
	if err := staff.Refund(t.Context(), id, w.float()); !errors.Is(err, errNotCharged) {
		t.Errorf("returned what is not there: %v", err)
	}
	if k := w.ticketOf(id).Ticket; k.Refund != desk.RefundStatusOwed || w.transfers(w.chain.Address("float"), payer) != 0 {
		t.Errorf("the refund is %s", k.Refund)
	}
}

// A transaction from before the deposit returns nothing.
func TestAnEarlierTransferIsNoRefund(t *testing.T) {
	w := newWorld(t)
	w.fund(w.chain.Address("float"), 2*deposit)
	earlier, err := w.chain.Call(t.Context(), "float", "transfer", w.chain.Address("payer"), big.NewInt(deposit))
	check(t, err)
	w.mine()
	s := w.start(w.deps(w.relayer("relayer")))
	id, _ := s.post(w.header(w.pay(w.chain.Key("payer"), "earlier")), body("Earlier")).created(t)
	staff := w.staff()
	check(t, staff.Decide(t.Context(), id, desk.Accepted, false))
	polltest.Until(t, "the payment is final", func() bool { return w.ticketOf(id).Status == desk.StatusFinal })
	check(t, staff.ByHand(t.Context(), id, w.chain.Client()))
	err = staff.Refunded(t.Context(), id, w.chain.Client(), earlier.TxHash, 1)
	if err == nil || !strings.Contains(err.Error(), "does not refund") {
		t.Errorf("a transfer from before the deposit was taken for its return: %v", err)
	}
}

// What a killed node has reserved is taken up, and is as old as it was seen, also where the broker's clock is ahead of
// the service's.
func TestABrokerThatIsAhead(t *testing.T) {
	w := newWorld(t)
	w.mine()
	payer := w.chain.Address("payer")
	w.reserved(w.pay(w.chain.Key("payer"), "ahead"), body("Ahead")) // and its node is killed
	deps := w.deps(w.relayer("relayer"))
	deps.Now = func() time.Time { return time.Now().Add(-time.Hour) }
	w.start(deps)
	polltest.Until(t, "it is charged", func() bool { return w.charges(payer) == 1 })

	at := time.Now()
	p := &desk.Payment{Status: desk.StatusReserved, ReservedAt: at.Add(time.Hour).Unix()}
	first := undecided{now: at, seen: map[moment]time.Time{}}
	first.add(p)
	then := undecided{now: at.Add(400 * time.Second), before: first.seen, seen: map[moment]time.Time{}}
	then.add(p)
	if first.oldest != 0 || then.oldest != 400*time.Second || len(then.seen) != 1 {
		t.Errorf("the oldest is of %s, then of %s", first.oldest, then.oldest)
	}
}
