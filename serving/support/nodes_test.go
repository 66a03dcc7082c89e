package support

import (
	"bytes"
	"context"
	"errors"
	"math/big"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/topics/polltest"
)

// waits is until the relayer has n transactions, mined or not.
func (w *world) waits(n uint64) {
	w.t.Helper()
	polltest.Until(w.t, "the transaction waits", func() bool {
		got, err := w.chain.Client().PendingNonceAt(w.t.Context(), w.chain.Address("relayer"))
		check(w.t, err)
		return got == n
	})
}

// mines makes n blocks.
func (w *world) mines(n uint64) {
	w.t.Helper()
	for range n {
		_, err := w.chain.Mine(w.t.Context())
		check(w.t, err)
	}
}

// slow is a node whose answer about a reverted transaction takes long, once.
type slow struct {
	*ethclient.Client
	held  chan struct{} // closed when it has the answer
	gate  chan struct{} // and gives it
	once  sync.Once
	after atomic.Int64 // calls since
}

func (s *slow) TransactionReceipt(ctx context.Context, hash common.Hash) (*types.Receipt, error) {
	r, err := s.Client.TransactionReceipt(ctx, hash)
	if err == nil && r.Status == types.ReceiptStatusFailed {
		s.once.Do(func() { close(s.held); <-s.gate })
	}
	return r, err
}

func (s *slow) CallContract(ctx context.Context, msg ethereum.CallMsg, block *big.Int) ([]byte, error) {
	s.after.Add(1)
	return s.Client.CallContract(ctx, msg, block)
}

// Two nodes follow a payment whose first transaction was reverted. One says so, the client sends the same request
// again, and its second transaction is on its way: what the slower node says of the first one is not about that.
func TestALateReleaseIsNotOfTheNextAttempt(t *testing.T) {
	w := newWorld(t)
	w.cfg.ResumeAfter = time.Millisecond
	payer, owner := w.chain.Address("payer"), w.chain.Address("owner")
	chain := &draining{Sender: w.chain.Client(), drain: func() {
		_, err := w.chain.Call(t.Context(), "payer", "transfer", owner, big.NewInt(w.balance(payer)))
		check(t, err)
	}}
	late := &slow{Client: w.chain.Client(), held: make(chan struct{}), gate: make(chan struct{})}
	a := w.start(w.deps(w.relayerOn(chain, w.client(), "relayer")))
	signed := w.pay(w.chain.Key("payer"), "twice")
	id := desk.TicketID(payer, signed.Nonce)
	answers := make(chan answer, 2)
	post := func() { answers <- a.post(w.header(signed), body("Twice")) }
	row := func() *desk.Payment {
		found, err := w.client().Find(t.Context(), payer, signed.Nonce)
		check(t, err)
		return found.Payment
	}
	go post()
	w.waits(1)
	first := row().Attempt.Hash
	deps := w.deps(w.relayerOn(chain, w.client(), "relayer"))
	deps.Chain = late
	w.start(deps) // the second node, which has it from the reconciler
	polltest.Until(t, "the second node follows it", func() bool { return late.after.Load() > 1 })
	w.mines(1)
	<-late.held // it has the receipt, and is slow
	w.mines(w.cfg.Confirmations)
	if got := <-answers; got.status != http.StatusPaymentRequired {
		t.Fatalf("%d %s", got.status, got.body)
	}
	w.fund(payer, 2*deposit)
	go post()
	polltest.Until(t, "it is sent again", func() bool { p := row(); return p.Status == desk.StatusSent && p.Attempt.Hash != first })
	w.waits(2)
	before := late.after.Load()
	close(late.gate)
	polltest.Until(t, "the second node has said what it knows", func() bool { return late.after.Load() > before+1 })
	status := row().Status
	w.mine()
	got := <-answers
	polltest.Until(t, "it is charged", func() bool { return w.charges(payer) == 1 && w.ticketOf(id).Charged() })
	if got.status == http.StatusPaymentRequired {
		t.Errorf("charged, and answered 402 (the row was %s): %s", status, got.body)
	}
}

// A payer who pays anew after a refusal of another attempt would be charged twice on a day: the desk does not accept
// it.
func TestALateReleaseChargesOnce(t *testing.T) {
	w := newWorld(t)
	w.cfg.Wait = 2 * time.Second
	payer := w.chain.Address("payer")
	signed := w.pay(w.chain.Key("payer"), "on its way")
	s := w.start(w.deps(w.relayer("relayer")))
	answers := make(chan answer, 1)
	go func() { answers <- s.post(w.header(signed), body("On its way")) }()
	w.waits(1)
	for _, of := range []*desk.Attempt{nil, {Hash: common.Hash{1}}} {
		outcome, _, err := w.client().Do(t.Context(), payer, &desk.Command{Kind: desk.Released, Nonce: signed.Nonce, Reserved: 1, Attempt: of})
		if err != nil || outcome != desk.Refused {
			t.Fatal(outcome, err)
		}
	}
	if first := <-answers; first.code() != "PAYMENT_PENDING" {
		t.Errorf("%d %s", first.status, first.body)
	}
	if got := s.post(w.header(w.pay(w.chain.Key("payer"), "anew")), body("Anew")); got.code() != "REPORT_LIMIT" {
		t.Errorf("anew: %d %s", got.status, got.body)
	}
	w.mine()
	polltest.Until(t, "the first is charged", func() bool { return w.ticketOf(desk.TicketID(payer, signed.Nonce)).Charged() })
	if n := w.charges(payer); n != 1 {
		t.Errorf("charged %d times on a day", n)
	}
}

// twoBackends is a node that answers from two backends: the state from one that is some blocks behind, receipts from
// one that is not, as a provider's address does.
type twoBackends struct {
	*ethclient.Client
	mu    sync.Mutex
	old   *types.Header // head of the one that is behind; nil: it is not
	fresh bool          // the next head is the other's
}

func (b *twoBackends) HeaderByNumber(ctx context.Context, number *big.Int) (*types.Header, error) {
	b.mu.Lock()
	old, fresh := b.old, b.fresh
	b.fresh = false
	b.mu.Unlock()
	if number == nil && old != nil && !fresh {
		return old, nil
	}
	return b.Client.HeaderByNumber(ctx, number)
}

func (b *twoBackends) TransactionReceipt(ctx context.Context, hash common.Hash) (*types.Receipt, error) {
	r, err := b.Client.TransactionReceipt(ctx, hash)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fresh = err == nil && r.Status == types.ReceiptStatusFailed
	return r, err
}

// A stranger submits the payment first, so ours reverts. A node that is behind says unused, another that ours is
// reverted and deep: a charged client does not get 402.
func TestRevertedBecauseItIsPaid(t *testing.T) {
	w := newWorld(t)
	payer := w.chain.Address("payer")
	node := &twoBackends{Client: w.chain.Client()}
	signed := w.pay(w.chain.Key("payer"), "first")
	chain := &draining{Sender: w.chain.Client(), drain: func() {
		head, err := w.chain.Client().HeaderByNumber(t.Context(), nil)
		check(t, err)
		node.mu.Lock()
		node.old = head
		node.mu.Unlock()
		w.submit(signed.Calldata())
		_, err = w.chain.Mine(t.Context())
		check(t, err)
		w.mine()
	}}
	deps := w.deps(w.relayerOn(chain, w.client(), "relayer"))
	deps.Chain = node
	w.cfg.Resend = 20 * time.Millisecond
	s := w.start(deps)
	timer := time.AfterFunc(5*time.Second, func() { node.mu.Lock(); node.old = nil; node.mu.Unlock() }) // it catches up
	defer timer.Stop()
	got := s.post(w.header(signed), body("First"))
	if n := w.charges(payer); n != 1 || got.status != http.StatusCreated {
		t.Errorf("charged %d times, answered %d %s", n, got.status, got.body)
	}
}

// hollow is a node whose receipts are without logs, once, as a backend answers that does not have the block. Its
// searches of a block are capped at one log.
type hollow struct {
	*ethclient.Client
	once atomic.Bool
	all  atomic.Bool // not once
}

func (h *hollow) TransactionReceipt(ctx context.Context, hash common.Hash) (*types.Receipt, error) {
	receipt, err := h.Client.TransactionReceipt(ctx, hash)
	if err == nil && (h.all.Load() || h.once.CompareAndSwap(true, false)) {
		receipt.Logs = nil
	}
	return receipt, err
}

func (h *hollow) FilterLogs(ctx context.Context, q ethereum.FilterQuery) ([]types.Log, error) {
	logs, err := h.Client.FilterLogs(ctx, q)
	return logs[:min(len(logs), 1)], err
}

// A ticket that was answered 201 outlives one empty answer of a node: that the use is there and its transfer is not, in
// the same block, is no proof that it was not paid.
func TestOneEmptyAnswerDestroysNoTicket(t *testing.T) {
	w := newWorld(t)
	payer := w.chain.Address("payer")
	node := &hollow{Client: w.chain.Client()}
	deps := w.deps(w.relayer("relayer"))
	deps.Chain = node
	s := w.start(deps)
	signed := w.pay(w.chain.Key("payer"), "hollow")
	answers := make(chan answer, 1)
	go func() { answers <- s.post(w.header(signed), body("Hollow")) }()
	w.waits(1)
	w.mines(1)
	id, token := (<-answers).created(t)
	w.mines(w.cfg.Confirmations - 2)
	polltest.Until(t, "it is paid, and not final", func() bool { return w.ticketOf(id).Status == desk.StatusPaid })
	node.once.Store(true)
	w.mines(2)
	polltest.Until(t, "it is decided", func() bool { return w.ticketOf(id).Status != desk.StatusPaid && !node.once.Load() })
	if got := s.ticket(id, token); got.status != http.StatusOK || w.charges(payer) != 1 {
		t.Errorf("charged %d times, the row is %s, and the ticket answers %d %s", w.charges(payer), w.ticketOf(id).Status, got.status, got.body)
	}
}

// Nor is it a refund that FAILED: it is on the chain, and a member of staff who is told that it is still owed would
// send it again, from another float or by hand.
func TestAnEmptyAnswerIsNoFailedRefund(t *testing.T) {
	w := newWorld(t)
	w.mine()
	node := &hollow{Client: w.chain.Client()}
	deps := w.deps(w.relayer("relayer"))
	deps.Chain = node
	s := w.start(deps)
	staff, f := w.staff(), w.float()
	id, payer := w.owed(s, staff, "hollow refund")
	w.fund(f.Address(), deposit)
	node.all.Store(true)
	time.AfterFunc(2*time.Second, func() { node.all.Store(false) })
	check(t, staff.Refund(t.Context(), id, f))
	polltest.Until(t, "it is decided", func() bool { return w.ticketOf(id).Ticket.Refund != desk.RefundStatusSent })
	if status := w.ticketOf(id).Ticket.Refund; status != desk.RefundStatusConfirmed {
		t.Errorf("the deposit went back %d times, and the refund is %s; by hand it goes again: %v", w.transfers(f.Address(), payer), status, staff.ByHand(t.Context(), id, w.chain.Client()))
	}
}

// empty is a node that does not have the token yet: it answers nothing, with success.
type empty struct {
	Chain
	asked atomic.Int64
}

func (e *empty) CallContract(ctx context.Context, msg ethereum.CallMsg, block *big.Int) ([]byte, error) {
	if e.asked.Add(1) <= 2 {
		return nil, nil
	}
	return e.Chain.CallContract(ctx, msg, block)
}

// A payment node that still syncs is waited for, and does not end the process and with it all services of the node.
func TestANodeThatSyncsIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	deps := w.deps(w.relayer("relayer"))
	node := &empty{Chain: w.chain.Client()}
	deps.Chain = node
	w.start(deps) // fails if it ends
	if n := node.asked.Load(); n < 3 {
		t.Errorf("it was ready after %d questions", n)
	}
}

// narrow is a node that searches few blocks at a time, as those of free plans.
type narrow struct {
	*ethclient.Client
	most int64 // blocks; 0: none
}

func (n narrow) FilterLogs(ctx context.Context, q ethereum.FilterQuery) ([]types.Log, error) {
	if q.ToBlock.Int64()-q.FromBlock.Int64() >= n.most {
		return nil, errors.New("you can make eth_getLogs requests with up to a 10 block range")
	}
	return n.Client.FilterLogs(ctx, q)
}

// A charged payment has a ticket, however few blocks the node searches at a time.
func TestANodeThatSearchesFewBlocks(t *testing.T) {
	w := newWorld(t)
	w.mines(30)
	w.mine()
	deps := w.deps(w.relayer("relayer"))
	deps.Chain = narrow{w.chain.Client(), 10}
	s := w.start(deps)
	s.post(w.header(w.pay(w.chain.Key("payer"), "narrow")), body("Narrow")).created(t)
	if n := w.charges(w.chain.Address("payer")); n != 1 {
		t.Errorf("charged %d times", n)
	}
}

// With a node that searches no logs no payment is charged: none could be proved.
func TestANodeThatSearchesNothing(t *testing.T) {
	w := newWorld(t)
	w.mine()
	deps := w.deps(w.relayer("relayer"))
	searched := make(chan struct{})
	deps.Chain = &deaf{narrow{Client: w.chain.Client()}, sync.OnceFunc(func() { close(searched) })}
	service, err := New(w.cfg, deps, zap.NewNop(), w.metrics.New())
	check(t, err)
	s := w.runs(service)
	<-searched
	got := s.post(w.header(w.pay(w.chain.Key("payer"), "unproved")), body("Unproved"))
	if got.status != http.StatusServiceUnavailable || got.code() != "UPSTREAM_UNAVAILABLE" || service.Ready(t.Context()) == nil {
		t.Errorf("ready, or %d %s", got.status, got.body)
	}
	if n := w.charges(w.chain.Address("payer")); n != 0 {
		t.Errorf("charged %d times", n)
	}
}

// deaf tells that it was asked to search.
type deaf struct {
	narrow
	asked func()
}

func (d *deaf) FilterLogs(ctx context.Context, q ethereum.FilterQuery) ([]types.Log, error) {
	d.asked()
	return d.narrow.FilterLogs(ctx, q)
}

// backends are a node's: one is some blocks behind, and answers what it is told to.
type backends struct {
	*ethclient.Client
	old    *types.Header // the head of the one that is behind
	states bool          // it is asked for the latest state of an authorization,
	heads  atomic.Bool   // and for the head
	after  bool          // from when the other has said used
}

func (b *backends) CallContract(ctx context.Context, msg ethereum.CallMsg, block *big.Int) ([]byte, error) {
	state := bytes.HasPrefix(msg.Data, contracts.Selector("authorizationState(address,bytes32)"))
	if state && b.states && block == nil {
		block = b.old.Number
	}
	out, err := b.Client.CallContract(ctx, msg, block)
	if state && b.after && err == nil && out[31] == 1 {
		b.heads.Store(true)
	}
	return out, err
}

func (b *backends) HeaderByNumber(ctx context.Context, number *big.Int) (*types.Header, error) {
	if number == nil && b.heads.Load() {
		return b.old, nil
	}
	return b.Client.HeaderByNumber(ctx, number)
}

// A charged client is not told otherwise because the backends of a node differ by a block.
func TestBackendsThatDiffer(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name   string
		node   *backends
		status int
	}{
		{"used, and then unused", &backends{after: true}, http.StatusServiceUnavailable},
		{"unused, and without money", &backends{states: true}, http.StatusCreated},
	} {
		key, err := crypto.GenerateKey()
		check(t, err)
		w.fund(crypto.PubkeyToAddress(key.PublicKey), deposit)
		signed := w.pay(key, c.name)
		node := c.node
		node.Client = w.chain.Client()
		node.old, err = w.chain.Client().HeaderByNumber(t.Context(), nil)
		check(t, err)
		deps := w.deps(w.relayer("relayer"))
		deps.Chain = node
		s := w.start(deps)
		w.submit(signed.Calldata()) // a stranger
		w.mines(1)
		got := s.post(w.header(signed), body("Backends"))
		if n := w.charges(signed.From); n != 1 || got.status != c.status {
			t.Errorf("%s: charged %d times, and answered %d %s", c.name, n, got.status, got.body)
		}
		if c.status == http.StatusServiceUnavailable { // the backend has caught up
			node.after = false
			node.heads.Store(false)
			s.post(w.header(signed), body("Backends")).created(t)
		}
		s.stop()
	}
}
