package support

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"

	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/x402"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

var errKilled = errors.New("killed")

// killer ends a process at one of its steps: from then on nothing that it does reaches anybody.
type killer struct {
	left atomic.Int64
	kill chan struct{}
	once sync.Once
}

func newKiller(steps int64) *killer {
	k := &killer{kill: make(chan struct{})}
	k.left.Store(steps)
	return k
}

// step is an error once the process is dead; the step that kills it may still have been done.
func (k *killer) step() error {
	if k.left.Add(-1) >= 0 {
		return nil
	}
	k.once.Do(func() { close(k.kill) })
	return errKilled
}

// The three ways out of the process: to the desk, to the chain, to the facilitator.
type mortalSender struct {
	desk.Sender
	*killer
}

func (m mortalSender) Send(ctx context.Context, r *kafka.Record) (int64, error) {
	if err := m.step(); err != nil {
		return 0, err
	}
	offset, err := m.Sender.Send(ctx, r)
	return offset, errors.Join(err, m.step()) // it was written, and nobody knows
}

type mortalChain struct {
	*ethclient.Client
	*killer
}

func (m mortalChain) SendTransaction(ctx context.Context, tx *types.Transaction) error {
	if err := m.step(); err != nil {
		return err
	}
	err := m.Client.SendTransaction(ctx, tx)
	return errors.Join(err, m.step())
}

func (m mortalChain) FilterLogs(ctx context.Context, q ethereum.FilterQuery) ([]types.Log, error) {
	if err := m.step(); err != nil {
		return nil, err
	}
	return m.Client.FilterLogs(ctx, q)
}

func (m mortalChain) CallContract(ctx context.Context, msg ethereum.CallMsg, block *big.Int) ([]byte, error) {
	if m.left.Load() < 0 {
		return nil, errKilled
	}
	return m.Client.CallContract(ctx, msg, block)
}

func (m mortalChain) TransactionReceipt(ctx context.Context, hash common.Hash) (*types.Receipt, error) {
	if m.left.Load() < 0 {
		return nil, errKilled
	}
	return m.Client.TransactionReceipt(ctx, hash)
}

// clock is the payment chain's: its blocks come faster than seconds pass.
func (w *world) clock() time.Time {
	header, err := w.chain.Client().HeaderByNumber(context.WithoutCancel(w.t.Context()), nil)
	if err != nil {
		w.t.Error(err)
		return time.Now()
	}
	return time.Unix(int64(header.Time), 0)
}

// settlerOf makes the settler of a process.
type settlerOf func(x402.Sender, *desk.Client) x402.Settler

func (w *world) relays(chain x402.Sender, client *desk.Client) x402.Settler {
	return w.relayerOn(chain, client, "relayer")
}

// mortal are the dependencies of a process that dies.
func (w *world) mortal(k *killer, settler settlerOf) Deps {
	chain := mortalChain{w.chain.Client(), k}
	client := desk.NewClient(mortalSender{w.producer, k}, desk.Routed{Router: w.router}, w.cat)
	return Deps{
		Desk: client, Chain: chain, Settler: settler(chain, client), Now: w.clock,
		Head: func(context.Context) (uint64, error) { return 1000, nil },
	}
}

// facilitator is one that lies, or says nothing of use. Some of its lies come after it has submitted the payment.
func (w *world) facilitator(rng *rand.Rand) *httptest.Server {
	submits, kind := rng.IntN(2) == 0, rng.IntN(5)
	return httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if submits {
			w.stranger(r)
		}
		switch kind {
		case 0:
			rw.WriteHeader(http.StatusInternalServerError)
		case 1:
			_, _ = rw.Write([]byte("<html>busy</html>"))
		case 2:
			_, _ = rw.Write([]byte(`{"success":false,"errorReason":"settlement_pending"}`))
		case 3:
			_, _ = rw.Write([]byte(`{"success":true,"transaction":"0x` + common.Hash{1}.Hex()[2:] + `"}`))
		case 4: // nothing
			panic(http.ErrAbortHandler)
		}
	}))
}

// charges counts the payer's transfers to the payee, by the chain's logs alone.
func (w *world) charges(payer common.Address) int { return w.transfers(payer, w.terms.Payee) }

func (w *world) transfers(from, to common.Address) int {
	w.t.Helper()
	logs, err := w.chain.Client().FilterLogs(w.t.Context(), ethereum.FilterQuery{
		FromBlock: new(big.Int), Addresses: []common.Address{w.chain.Token()},
		Topics: [][]common.Hash{
			{crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))},
			{common.BytesToHash(from[:])},
			{common.BytesToHash(to[:])},
		},
	})
	check(w.t, err)
	return len(logs)
}

// TestKills: whatever dies, lies or interferes, and whenever, the payer is charged if and only if there is a ticket,
// once; and who was charged gets the ticket for the same request.
func TestKills(t *testing.T) {
	for _, kind := range brokertest.Kinds {
		t.Run(kind, func(t *testing.T) {
			testKills(t, brokertest.Start(t, kind), map[string]int{"kfake": 20, "apache": 5}[kind])
		})
	}
}

func testKills(t *testing.T, brokers []string, schedules int) {
	seed := uint64(time.Now().UnixNano())
	if n, err := strconv.Atoi(os.Getenv("LIENSTREAM_SCHEDULES")); err == nil {
		schedules = n
	}
	if n, err := strconv.ParseUint(os.Getenv("LIENSTREAM_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("seed %d, %d schedules", seed, schedules)
	w := newWorldOn(t, brokers, time.Now) // its clock overtakes ours, so that authorizations end
	w.cfg.ResumeAfter, w.cfg.Wait, w.cfg.HTTP.DrainTimeout = time.Millisecond, 3*time.Second, 20*time.Millisecond
	w.mine()
	came := map[string]int{}
	for i := range schedules {
		came[w.schedule(rand.New(rand.NewPCG(seed, uint64(i))), i)]++
	}
	t.Log(came)
	if schedules >= 200 && (came["charged"] == 0 || came["void"]+came["never reserved"] == 0) {
		t.Errorf("not every end was seen: %v", came)
	}
}

func (w *world) schedule(rng *rand.Rand, number int) string {
	t := w.t
	key, err := crypto.GenerateKey()
	check(t, err)
	payer := crypto.PubkeyToAddress(key.PublicKey)
	w.fund(payer, deposit)
	signed := w.pay(key, strconv.Itoa(number), func(a *x402.Authorization) { a.ValidBefore = uint64(w.clock().Unix()) + 60 + uint64(rng.IntN(100)) })
	payment, report := w.header(signed), body(fmt.Sprintf("Report %d", number))

	lying := rng.IntN(3) == 0
	settler := settlerOf(w.relays)
	if rng.IntN(6) == 0 {
		settler = func(chain x402.Sender, client *desk.Client) x402.Settler { return w.relayerOn(chain, client, "no gas") }
	}
	if rng.IntN(6) == 0 {
		settler = func(chain x402.Sender, client *desk.Client) x402.Settler {
			return w.relayerOn(&dear{Sender: chain}, client, "relayer")
		}
	}
	if lying {
		server := w.facilitator(rng)
		defer server.Close()
		settler = func(x402.Sender, *desk.Client) x402.Settler {
			f, err := x402.NewFacilitator(x402.FacilitatorConfig{URL: server.URL, Timeout: 2 * time.Second}, w.terms)
			check(t, err)
			return f
		}
	}
	k := newKiller(int64(rng.IntN(24)))
	first := w.start(w.mortal(k, settler))
	var wg sync.WaitGroup
	wg.Go(func() { first.post(payment, report) })
	wg.Go(func() { w.interfere(rng.IntN(6), key, signed) })
	select {
	case <-k.kill:
	case <-time.After(time.Duration(rng.IntN(300)) * time.Millisecond):
	}
	first.stop()
	wg.Wait()

	second := w.start(w.mortal(newKiller(1<<40), w.relays))
	defer second.stop()
	again := second.post(payment, report)
	for tries := 0; again.status == http.StatusServiceUnavailable && tries < 30; tries++ {
		again = second.post(payment, report)
	}
	var p *desk.Payment
	polltest.Until(t, fmt.Sprintf("the payment of schedule %d is decided", number), func() bool {
		found, err := w.client().Find(t.Context(), payer, signed.Nonce)
		p = found.Payment
		return err == nil && (p == nil || p.Status == desk.Final || p.Status == desk.Dead)
	})
	charges, ticket := w.charges(payer), p != nil && p.Ticket != nil
	// Who is charged without us ever having taken the request is charged by himself: it is his to ask once more.
	if charges == 1 && !ticket && p == nil {
		t.Fatalf("schedule %d: charged, asked again (%d %s), and no ticket", number, again.status, again.body)
	}
	if charges > 1 || charges == 1 != ticket {
		t.Fatalf("schedule %d: %d charges, ticket %v, payment %+v", number, charges, ticket, p)
	}
	if ticket {
		id, token := second.post(payment, report).created(t)
		if got := second.ticket(id, token); got.status != http.StatusOK {
			t.Fatalf("schedule %d: the ticket is %d %s", number, got.status, got.body)
		}
		return "charged"
	}
	if again.status != http.StatusPaymentRequired {
		t.Fatalf("schedule %d: not charged, and answered %d %s", number, again.status, again.body)
	}
	if p == nil {
		return "never reserved"
	}
	return "void"
}

// interfere is what others do meanwhile.
func (w *world) interfere(kind int, key *ecdsa.PrivateKey, s *x402.Signed) {
	switch kind {
	case 0: // somebody who saw the authorization submits it
		w.submit(s.Calldata())
	case 1: // its payer cancels it
		separator := w.terms.Separator()
		kind := crypto.Keccak256([]byte("CancelAuthorization(address authorizer,bytes32 nonce)"))
		message := crypto.Keccak256(kind, common.LeftPadBytes(s.From[:], 32), s.Nonce[:])
		signature, err := crypto.Sign(crypto.Keccak256([]byte{0x19, 1}, separator[:], message), key)
		check(w.t, err)
		w.submit(cancelCall(s, signature))
	case 2: // the last blocks are reorganised away, and what waits is forgotten
		<-time.After(60 * time.Millisecond)
		if err := w.chain.Rewind(w.t.Context(), 2); err != nil {
			w.t.Error(err)
		}
	}
}

// submit has a stranger put a call of the token into the pool.
func (w *world) submit(data []byte) {
	if err := w.chain.Submit(w.t.Context(), "stranger", w.chain.Token(), data); err != nil {
		w.t.Error(err)
	}
}

// stranger submits the payment of a facilitator's request.
func (w *world) stranger(r *http.Request) {
	var request struct{ PaymentPayload x402.Payment }
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		w.t.Error(err)
		return
	}
	s, err := w.terms.CheckAnyTime(&request.PaymentPayload)
	if err != nil {
		w.t.Error(err)
		return
	}
	w.submit(s.Calldata())
}

func cancelCall(s *x402.Signed, signature []byte) []byte {
	data := crypto.Keccak256([]byte("cancelAuthorization(address,bytes32,uint8,bytes32,bytes32)"))[:4]
	data = append(data, common.LeftPadBytes(s.From[:], 32)...)
	data = append(data, s.Nonce[:]...)
	data = append(data, common.LeftPadBytes([]byte{signature[64] + 27}, 32)...)
	return append(data, signature[:64]...)
}
