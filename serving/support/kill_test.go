package support

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
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
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/x402"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

var errKilled = errors.New("killed")

// killer ends a process at one of its steps: from then on nothing that it does has an effect.
type killer struct {
	left atomic.Int64
	kill chan struct{}
	once sync.Once
	died string // at which step; read after kill
}

func newKiller(steps int64) *killer {
	k := &killer{kill: make(chan struct{})}
	k.left.Store(steps)
	return k
}

// step is an error once the process is dead; the step that kills it may still have been done.
func (k *killer) step(name string) error {
	if k.left.Add(-1) >= 0 {
		return nil
	}
	k.once.Do(func() { k.died = name; close(k.kill) })
	return errKilled
}

// at is where it died; empty: it lived.
func (k *killer) at() string {
	select {
	case <-k.kill:
		return k.died
	default:
		return ""
	}
}

// The three ways out of the process: to the desk, to the chain, to the facilitator.
type mortalSender struct {
	desk.Sender
	*killer
}

func (m mortalSender) Send(ctx context.Context, r *kafka.Record) (int64, error) {
	cmd, err := desk.DecodeCommand(r.Value)
	if err != nil {
		return 0, err
	}
	if err := m.step("before " + string(cmd.Kind)); err != nil {
		return 0, err
	}
	offset, err := m.Sender.Send(ctx, r)
	return offset, errors.Join(err, m.step("after "+string(cmd.Kind))) // it was written, and the sender does not know
}

type mortalChain struct {
	*ethclient.Client
	*killer
}

func (m mortalChain) SendTransaction(ctx context.Context, tx *types.Transaction) error {
	if err := m.step("before the broadcast"); err != nil {
		return err
	}
	err := m.Client.SendTransaction(ctx, tx)
	return errors.Join(err, m.step("after the broadcast"))
}

func (m mortalChain) FilterLogs(ctx context.Context, q ethereum.FilterQuery) ([]types.Log, error) {
	if before := q.Topics[2][0] == (common.Hash{}); before && m.left.Load() >= 0 {
		return m.Client.FilterLogs(ctx, q) // it is not ready yet: whether the node searches at all
	}
	if err := m.step("before the logs"); err != nil {
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

// lies are what a facilitator answers that says nothing of use.
var lies = map[string]http.HandlerFunc{
	"500":     func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusInternalServerError) },
	"garbage": func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("<html>busy</html>")) },
	"pending": func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = rw.Write([]byte(`{"success":false,"errorReason":"settlement_pending"}`))
	},
	"success without a transfer": func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = rw.Write([]byte(`{"success":true,"transaction":"0x01"}`))
	},
	"nothing": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
}

// facilitator is one that lies. Some lies come after it has submitted the payment.
func (w *world) facilitator(lie string, submits bool) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if submits {
			w.stranger(r)
		}
		lies[lie](rw, r)
	}))
}

// charges counts the payer's transfers to the payee, by the chain's logs alone.
func (w *world) charges(payer common.Address) int { return w.transfers(payer, w.terms.Payee) }

func (w *world) transfers(from, to common.Address) int { return len(w.transferLogs(from, to, 0)) }

// transferLogs are those since a block. It asks again while the node fails: it may lack a block for the moment that its
// head moves.
func (w *world) transferLogs(from, to common.Address, since uint64) (logs []types.Log) {
	w.t.Helper()
	polltest.Within(w.t, time.Minute, func() (err error) {
		logs, err = w.chain.Client().FilterLogs(w.t.Context(), ethereum.FilterQuery{
			FromBlock: new(big.Int).SetUint64(since), Addresses: []common.Address{w.chain.Token()},
			Topics: [][]common.Hash{
				{crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))},
				{common.BytesToHash(from[:])},
				{common.BytesToHash(to[:])},
			},
		})
		return err
	})
	return logs
}

// TestKills: whatever dies, lies or interferes, and whenever, the payer is charged if and only if there is a ticket,
// once; and a charged client gets the ticket for the same request.
func TestKills(t *testing.T) {
	for _, kind := range brokertest.Kinds {
		t.Run(kind, func(t *testing.T) {
			testKills(t, brokertest.Start(t, kind), map[string]int{"kfake": 20, "apache": 5}[kind])
		})
	}
}

// worlds share the schedules: most of the time they wait for their chains.
const worlds = 12

func testKills(t *testing.T, brokers []string, schedules int) {
	seed := uint64(time.Now().UnixNano())
	if n, err := strconv.Atoi(os.Getenv("LIENSTREAM_SCHEDULES")); err == nil {
		schedules = n
	}
	if n, err := strconv.ParseUint(os.Getenv("LIENSTREAM_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("seed %d, %d schedules", seed, schedules)
	var log *zap.Logger
	if schedules > 100 {
		log = zap.NewNop()
	}
	var mu sync.Mutex
	came, over := map[string]int{}, 0
	t.Run("worlds", func(t *testing.T) { // each on its own, as many at once as -parallel says
		for n := range worlds {
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				t.Parallel()
				// Its clock overtakes ours, so that authorizations end.
				w := newWorldOf(t, settings{brokers: brokers, prefix: fmt.Sprintf("t%d", n), now: time.Now, log: log})
				w.cfg.ResumeAfter, w.cfg.Wait, w.cfg.HTTP.DrainTimeout = time.Millisecond, 3*time.Second, 20*time.Millisecond
				w.cfg.Poll, w.blockTime = 20*time.Millisecond, 60*time.Millisecond
				w.mine()
				for i := n; i < schedules; i += worlds {
					all := w.schedule(rand.New(rand.NewPCG(seed, uint64(i))), i)
					mu.Lock()
					for _, what := range all {
						came[what]++
					}
					if over++; over%100 == 0 {
						t.Logf("%d schedules are over", over)
					}
					mu.Unlock()
				}
			})
		}
	})
	for _, what := range slices.Sorted(maps.Keys(came)) {
		t.Logf("%5d %s", came[what], what)
	}
	if schedules < 1000 {
		return
	}
	for _, what := range slices.Concat(settlers, interferences, slices.Collect(maps.Keys(lies)), []string{
		"charged", "void", "never reserved", "two nodes", "its block was reorganised away", "reserved anew",
		"killed before reserve", "killed after reserve", "killed before take-nonce", "killed after take-nonce", "killed before sent", "killed after sent",
		"killed before the broadcast", "killed after the broadcast", "killed before the logs", "killed before paid", "killed after paid",
	}) {
		if came[what] == 0 {
			t.Errorf("not seen in %d schedules: %s", schedules, what)
		}
	}
}

const moneyAway = "the payer's money is away for a while"

// How payments are settled, and what other parties do meanwhile.
var (
	settlers      = []string{"a relayer", "a relayer without gas", "gas that triples", "a facilitator"}
	interferences = []string{
		"nobody interferes", "a stranger submits first", "the payer cancels", "the last blocks are reorganised", "the payment's block is reorganised",
		moneyAway,
	}
)

// schedule plays one, and says what came in it.
func (w *world) schedule(rng *rand.Rand, number int) (came []string) {
	t := w.t
	key, err := crypto.GenerateKey()
	check(t, err)
	payer := crypto.PubkeyToAddress(key.PublicKey)
	w.fund(payer, deposit)
	settles, interferes := settlers[rng.IntN(len(settlers))], interferences[rng.IntN(len(interferences))]
	seconds := 45 + rng.IntN(60)
	if interferes == moneyAway {
		seconds = 175 // it is sent twice
	}
	signed := w.pay(key, strconv.Itoa(number), func(a *x402.Authorization) { a.ValidBefore = uint64(w.clock().Unix()) + uint64(seconds) })
	payment, report := w.header(signed), body(fmt.Sprintf("Report %d", number))
	since, err := w.chain.Client().BlockNumber(t.Context())
	check(t, err)
	came = append(came, settles, interferes)
	settler := settlerOf(w.relays)
	switch settles {
	case "a relayer without gas":
		settler = func(chain x402.Sender, client *desk.Client) x402.Settler { return w.relayerOn(chain, client, "no gas") }
	case "gas that triples":
		settler = func(chain x402.Sender, client *desk.Client) x402.Settler {
			return w.relayerOn(&dear{Sender: chain}, client, "relayer")
		}
	case "a facilitator":
		lie := slices.Sorted(maps.Keys(lies))[rng.IntN(len(lies))]
		came = append(came, lie)
		server := w.facilitator(lie, rng.IntN(2) == 0)
		defer server.Close()
		settler = func(x402.Sender, *desk.Client) x402.Settler {
			settling := x402.DefaultFacilitatorConfig()
			settling.URL, settling.Timeout = server.URL, 2*time.Second
			f, err := x402.NewFacilitator(settling, w.terms)
			check(t, err)
			return f
		}
	}
	const steps = 16 // and a few more, where the chain is reorganised
	killers := []*killer{newKiller(int64(rng.IntN(steps)))}
	if rng.IntN(3) == 0 {
		came = append(came, "two nodes")
		killers = append(killers, newKiller(int64(rng.IntN(steps))))
	}
	patience := 2 * time.Second // for a step to come
	if rng.IntN(4) == 0 {
		patience = time.Duration(rng.IntN(300)) * time.Millisecond // it dies between two
	}
	var wg sync.WaitGroup
	nodes := make([]*service, len(killers))
	for i, k := range killers {
		nodes[i] = w.runs(w.made(w.mortal(k, settler)))
		polltest.Until(t, "the service is ready, or dead", func() bool { return nodes[i].Ready(t.Context()) == nil || k.at() != "" })
	}
	for _, node := range nodes {
		wg.Go(func() { node.post(payment, report) })
	}
	reorganised := false
	wg.Go(func() { reorganised = w.interfere(interferes, key, signed, since) })
	over, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i, k := range killers {
		wg.Go(func() {
			select {
			case <-k.kill:
			case <-over.Done():
			}
			nodes[i].stop()
		})
	}
	wg.Wait()
	for _, k := range killers {
		if died := k.at(); died != "" {
			came = append(came, "killed "+died)
		}
	}
	if reorganised {
		came = append(came, "its block was reorganised away")
	}

	second := w.start(w.mortal(newKiller(1<<40), w.relays))
	defer second.stop()
	patiently := func() answer {
		got := second.post(payment, report)
		for tries := 0; (got.status == http.StatusServiceUnavailable || got.err != nil) && tries < 30; tries++ {
			got = second.post(payment, report)
		}
		return got
	}
	again := patiently()
	if interferes == moneyAway && again.status == http.StatusPaymentRequired { // the payer has some again, and the same request is right
		w.fund(payer, deposit)
		again = patiently()
	}
	p := w.decided(signed, number)
	charges, ticket := w.charges(payer), p != nil && p.Ticket != nil
	// A payment that was charged although we never accepted the request was submitted by its payer, who must ask once
	// more.
	if charges == 1 && !ticket && p == nil {
		t.Fatalf("schedule %d: charged, asked again (%d %s), and no ticket", number, again.status, again.body)
	}
	if charges > 1 || charges == 1 != ticket {
		t.Fatalf("schedule %d: %d charges, ticket %v, payment %+v", number, charges, ticket, p)
	}
	if p != nil && p.Reserved > 1 {
		came = append(came, "reserved anew")
	}
	if ticket {
		id, token := second.post(payment, report).created(t)
		if got := second.ticket(id, token); got.status != http.StatusOK {
			t.Fatalf("schedule %d: the ticket is %d %s", number, got.status, got.body)
		}
		return append(came, "charged")
	}
	if again.status != http.StatusPaymentRequired {
		t.Fatalf("schedule %d: not charged, and answered %d %s %v", number, again.status, again.body, again.err)
	}
	if p == nil {
		return append(came, "never reserved")
	}
	return append(came, "void")
}

// decided waits until a payment is final on the chain, however slow its blocks come; nil: the desk does not have it.
func (w *world) decided(signed *x402.Signed, number int) *desk.Payment {
	w.t.Helper()
	for {
		now := w.clock()
		found, err := w.client().Find(w.t.Context(), signed.From, signed.Nonce)
		if p := found.Payment; err == nil && (p == nil || p.Status == desk.StatusFinal || p.Status == desk.StatusVoid) {
			return p
		}
		if now.Unix() > int64(signed.ValidBefore)+600 {
			w.t.Fatalf("schedule %d: its authorization ended 600 s ago by the chain, and it is %+v: %v", number, found.Payment, err)
		}
		<-time.After(w.blockTime)
	}
}

// interfere is what others do meanwhile. It says whether the block that had the payment is gone.
func (w *world) interfere(kind string, key *ecdsa.PrivateKey, s *x402.Signed, since uint64) bool {
	switch kind {
	case "a stranger submits first":
		w.submit(s.Calldata())
	case "the payer cancels":
		w.submit(w.cancels(key, s.Nonce))
	case moneyAway: // before the payment is mined, and so the chain may refuse it
		w.submit(w.pay(key, "away "+s.Nonce.Hex(), func(a *x402.Authorization) { a.To, a.ValidBefore = w.chain.Address("owner"), math.MaxUint32 }).Calldata())
	case "the last blocks are reorganised": // and what waits is forgotten
		<-time.After(3 * w.blockTime)
		w.reorganise(func(head uint64) uint64 { return head - 1 })
	case "the payment's block is reorganised":
		for range 300 {
			if logs := w.transferLogs(s.From, w.terms.Payee, since); len(logs) > 0 {
				return w.reorganise(func(uint64) uint64 { return logs[0].BlockNumber })
			}
			<-time.After(2 * time.Millisecond)
		}
	}
	return false
}

// reorganise drops a block and all behind it, unless a process may have seen it with the required confirmations.
func (w *world) reorganise(from func(head uint64) uint64) bool {
	head, err := w.chain.Client().BlockNumber(w.t.Context())
	if err != nil {
		w.t.Error(err)
		return false
	}
	w.highest = max(w.highest, head)
	first := from(head)
	if first > head || first+w.cfg.Confirmations <= w.highest+1 {
		return false
	}
	if err := w.chain.Rewind(w.t.Context(), head-first+1); err != nil {
		w.t.Error(err)
		return false
	}
	return true
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

// cancels is the call by which the owner of a key cancels an authorization; anyone may submit it.
func (w *world) cancels(key *ecdsa.PrivateKey, nonce common.Hash) []byte {
	from, separator := crypto.PubkeyToAddress(key.PublicKey), x402.DomainSeparator(w.terms.Extra, w.terms.ChainID, w.terms.Token)
	kind := crypto.Keccak256([]byte("CancelAuthorization(address authorizer,bytes32 nonce)"))
	message := crypto.Keccak256(kind, common.LeftPadBytes(from[:], 32), nonce[:])
	signature, err := crypto.Sign(crypto.Keccak256([]byte{0x19, 1}, separator[:], message), key)
	check(w.t, err)
	data := contracts.Selector("cancelAuthorization(address,bytes32,uint8,bytes32,bytes32)")
	data = append(data, common.LeftPadBytes(from[:], 32)...)
	data = append(data, nonce[:]...)
	data = append(data, common.LeftPadBytes([]byte{signature[64] + 27}, 32)...)
	return append(data, signature[:64]...)
}
