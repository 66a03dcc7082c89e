package x402

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/params"

	"github.com/lienstream/lienstream/ingest/devchain/paychain"
	"github.com/lienstream/lienstream/topics/polltest"
)

// world is a payment chain with a payer.
type world struct {
	*paychain.Chain
	terms *Terms
	token *Token
	payer *ecdsa.PrivateKey
	scope Scope
	made  int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	chain, err := paychain.New(paychain.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = chain.Close() })
	r := requirement()
	r.Asset = chain.Token().Hex()
	w := &world{
		Chain: chain, terms: newTerms(t, r), payer: chain.Key("payer"),
		scope: Scope{Confirmations: 3, LogRange: 2},
	}
	w.token = NewToken(w.terms, chain.Client())
	w.fund(t, chain.Address("payer"), 100_000_000)
	return w
}

func (w *world) fund(t *testing.T, to common.Address, amount int64) {
	t.Helper()
	if err := w.Fund(t.Context(), to, big.NewInt(amount)); err != nil {
		t.Fatal(err)
	}
}

func (w *world) mine(t *testing.T, blocks int) {
	t.Helper()
	for range blocks {
		if _, err := w.Mine(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// payment is a new authorization of key, that ends in so many seconds.
func (w *world) payment(t *testing.T, key *ecdsa.PrivateKey, seconds uint64) *Signed {
	t.Helper()
	w.made++
	head, err := w.Client().HeaderByNumber(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return sign(t, w.terms, key, Authorization{
		From: crypto.PubkeyToAddress(key.PublicKey), To: w.terms.Payee, Value: w.terms.Value, ValidBefore: head.Time + seconds,
		Nonce: crypto.Keccak256Hash(fmt.Appendf(nil, "payment %d", w.made)),
	})
}

func (w *world) outcome(t *testing.T, s *Signed, want State, final bool) AuthorizationState {
	t.Helper()
	o, err := w.token.AuthorizationState(t.Context(), &s.Authorization, w.scope)
	if err != nil {
		t.Fatal(err)
	}
	if o.State != want || o.Final != final {
		t.Fatalf("outcome is %s, final %v; want %s, final %v", o.State, o.Final, want, final)
	}
	return o
}

func (w *world) paid(t *testing.T) int64 {
	t.Helper()
	out, err := w.token.call(t.Context(), w.terms.Token, append(append([]byte{}, selBalance...), common.LeftPadBytes(w.terms.Payee[:], 32)...))
	if err != nil {
		t.Fatal(err)
	}
	return new(big.Int).SetBytes(out).Int64()
}

// relays is a relayer with an account of its own.
func (w *world) relays(t *testing.T, cfg RelayerConfig, key *ecdsa.PrivateKey) *Relayer {
	t.Helper()
	r, err := NewRelayer(cfg, w.terms, w.Client(), key)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func nothingRecorded(context.Context, Attempt) error { return nil }

func reasonOf(err error) Reason {
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return refusal.Reason
	}
	return ""
}

func TestVerifyToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := w.token.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, alter := range map[string]func(*Requirement){
		"version": func(r *Requirement) { r.Extra.Version = "1" },
		"network": func(r *Requirement) { r.Network = "eip155:1" },
	} {
		r := w.terms.Requirement
		alter(&r)
		if err := NewToken(newTerms(t, r), w.Client()).Verify(t.Context()); !errors.Is(err, ErrWrongToken) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	r := w.terms.Requirement
	r.Asset = w.Address("owner").Hex() // where a node that still syncs has no token, it is not another
	if err := NewToken(newTerms(t, r), w.Client()).Verify(t.Context()); err == nil || errors.Is(err, ErrWrongToken) {
		t.Errorf("no token: %v", err)
	}
}

func TestSimulate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, relayer := t.Context(), w.Address("relayer")
	simulate := func(s *Signed, want Reason) {
		t.Helper()
		if err := w.token.Simulate(ctx, s, relayer); reasonOf(err) != want || want == "" && err != nil {
			t.Errorf("%v, want %q", err, want)
		}
	}
	s := w.payment(t, w.payer, 100)
	simulate(s, "")
	poor, err := crypto.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	simulate(w.payment(t, poor, 100), ReasonInsufficientBalance)
	wrong := *s
	wrong.Nonce = common.Hash{1}
	simulate(&wrong, ReasonSimulation)
	if _, err := w.Call(ctx, "owner", "blacklist", w.Address("payer"), true); err != nil {
		t.Fatal(err)
	}
	simulate(s, ReasonSimulation)
	if _, err := w.Call(ctx, "owner", "blacklist", w.Address("payer"), false); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Send(ctx, "stranger", w.terms.Token, s.Calldata()); err != nil {
		t.Fatal(err)
	}
	simulate(s, ReasonNonceUsed)
	w.outcome(t, s, Paid, false) // although another account submitted it
	w.mine(t, 2)
	w.outcome(t, s, Paid, true)
}

// between does something once, after the first call of the chain.
type between struct {
	*ethclient.Client
	once sync.Once
	do   func()
}

func (b *between) CallContract(ctx context.Context, msg ethereum.CallMsg, block *big.Int) ([]byte, error) {
	out, err := b.Client.CallContract(ctx, msg, block)
	b.once.Do(b.do)
	return out, err
}

// A payment that is submitted during its simulation counts as paid or not, but its own transfer must not count as a
// missing balance.
func TestSubmittedWhileItIsSimulated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, left := range map[string]int64{"with money left": 15_000_000, "with none": 0} {
		key, err := crypto.GenerateKey()
		if err != nil {
			t.Fatal(err)
		}
		w.fund(t, crypto.PubkeyToAddress(key.PublicKey), 15_000_000+left)
		s := w.payment(t, key, 1000)
		chain := &between{Client: w.Client(), do: func() {
			if _, err := w.Send(t.Context(), "stranger", w.terms.Token, s.Calldata()); err != nil {
				t.Error(err)
			}
		}}
		token := NewToken(w.terms, chain)
		if err := token.Simulate(t.Context(), s, common.Address{}); err != nil {
			t.Errorf("%s: as of the block before, %v", name, err)
		}
		if err := token.Simulate(t.Context(), s, common.Address{}); reasonOf(err) != ReasonNonceUsed {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A payer without money as of the read block, who was charged in the next one, has used the authorization.
func TestFundedAndSubmittedWhileItIsSimulated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key, err := crypto.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	s := w.payment(t, key, 1000)
	chain := &between{Client: w.Client(), do: func() {
		w.fund(t, s.From, 15_000_000)
		if _, err := w.Send(t.Context(), "stranger", w.terms.Token, s.Calldata()); err != nil {
			t.Error(err)
		}
	}}
	if err := NewToken(w.terms, chain).Simulate(t.Context(), s, common.Address{}); reasonOf(err) != ReasonNonceUsed {
		t.Error(err)
	}
}

// A malleated signature recovers its key, and is refused all the same: the token would.
func TestNoKeySignature(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	good := w.payment(t, w.payer, 100)
	for name, signature := range map[string][]byte{
		"malleated": common.FromHex(malleate("0x" + common.Bytes2Hex(good.Signature))),
		"short":     good.Signature[:64],
		"another's": w.payment(t, w.Key("stranger"), 100).Signature,
	} {
		s := *good
		s.Signature, s.Contract = signature, false
		if err := w.terms.checkSignature(&s); err != nil {
			t.Fatal(err)
		}
		if err := w.token.CheckSignature(t.Context(), &s); reasonOf(err) != ReasonSignature {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestContractWalletPays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	wallet, err := w.Deploy(ctx, "OwnedWallet", w.Address("payer"))
	if err != nil {
		t.Fatal(err)
	}
	w.fund(t, wallet, 15_000_000)
	a := w.payment(t, w.payer, 100).Authorization
	a.From = wallet
	s := sign(t, w.terms, w.payer, a)
	s.Signature = append([]byte{1}, s.Signature...)
	head, err := w.Client().HeaderByNumber(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err = w.terms.Check(w.terms.Payment(s, Resource{}), time.Unix(int64(head.Time), 0))
	if err != nil || !s.Contract {
		t.Fatalf("check: %v; want it to be for the wallet to say", err)
	}
	if err := w.token.CheckSignature(ctx, s); err != nil {
		t.Fatal(err)
	}
	forged := *s
	forged.Signature = append([]byte{2}, s.Signature[1:]...)
	if err := w.token.CheckSignature(ctx, &forged); reasonOf(err) != ReasonSignature {
		t.Errorf("forged: %v", err)
	}
	relayer := w.relays(t, DefaultRelayerConfig(), w.Key("relayer"))
	if err := relayer.Settle(ctx, s, nothingRecorded); err != nil {
		t.Fatal(err)
	}
	w.mine(t, 1)
	w.outcome(t, s, Paid, false)
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()

	cancelled := w.payment(t, w.payer, 1000)
	cancelType := crypto.Keccak256([]byte("CancelAuthorization(address authorizer,bytes32 nonce)"))
	message := crypto.Keccak256(cancelType, common.LeftPadBytes(cancelled.From[:], 32), cancelled.Nonce[:])
	separator := w.terms.separator
	signature, err := crypto.Sign(crypto.Keccak256([]byte{0x19, 1}, separator[:], message), w.payer)
	if err != nil {
		t.Fatal(err)
	}
	w.outcome(t, cancelled, Unused, false)
	if _, err := w.Call(ctx, "stranger", "cancelAuthorization", cancelled.From, [32]byte(cancelled.Nonce),
		signature[64]+27, [32]byte(signature[:32]), [32]byte(signature[32:64])); err != nil {
		t.Fatal(err)
	}
	w.outcome(t, cancelled, Cancelled, false)
	w.mine(t, 2)
	w.outcome(t, cancelled, Cancelled, true)

	expiring := w.payment(t, w.payer, 4)
	w.mine(t, 5) // the head is past its end; the block three deep is not
	w.outcome(t, expiring, Unused, false)
	w.mine(t, 1)
	w.outcome(t, expiring, Expired, true)

	// Another authorization with the nonce of ours, to another payee or of less, was used.
	for _, alter := range []func(*Authorization){
		func(a *Authorization) { a.To = w.Address("stranger") },
		func(a *Authorization) { a.Value = big.NewInt(1) },
	} {
		ours := w.payment(t, w.payer, 1000)
		other := ours.Authorization
		alter(&other)
		signed := sign(t, w.terms, w.payer, other)
		if _, err := w.Send(ctx, "stranger", w.terms.Token, signed.Calldata()); err != nil {
			t.Fatal(err)
		}
		w.outcome(t, ours, Elsewhere, false)
		w.outcome(t, signed, Paid, false) // it paid whom it names, whatever is asked for now
	}

	reorganised := w.payment(t, w.payer, 1000)
	if _, err := w.Send(ctx, "stranger", w.terms.Token, reorganised.Calldata()); err != nil {
		t.Fatal(err)
	}
	w.outcome(t, reorganised, Paid, false)
	if err := w.Rewind(ctx, 1); err != nil {
		t.Fatal(err)
	}
	w.outcome(t, reorganised, Unused, false)
	w.mine(t, 1)
	w.outcome(t, reorganised, Unused, false)

	old := w.payment(t, w.payer, 1000)
	if _, err := w.Send(ctx, "stranger", w.terms.Token, old.Calldata()); err != nil {
		t.Fatal(err)
	}
	w.mine(t, 7) // the search goes back in ranges of two blocks
	w.outcome(t, old, Paid, true)
	head, err := w.Client().BlockNumber(ctx)
	if err != nil {
		t.Fatal(err)
	}
	scope := w.scope
	scope.FromBlock = head
	if o, err := w.token.AuthorizationState(ctx, &old.Authorization, scope); err != nil || o.State != Elsewhere {
		t.Errorf("used before the scope: %s, %v; want elsewhere", o.State, err)
	}
}

// narrow is a node that searches few blocks at a time, as those of free plans.
type narrow struct {
	*ethclient.Client
	most  uint64 // blocks; 0: none
	asked int
}

func (n *narrow) FilterLogs(ctx context.Context, q ethereum.FilterQuery) ([]types.Log, error) {
	n.asked++
	if q.ToBlock.Uint64()-q.FromBlock.Uint64() >= n.most {
		return nil, fmt.Errorf("you can make eth_getLogs requests with up to a %d block range", n.most)
	}
	return n.Client.FilterLogs(ctx, q)
}

// A payment is found however few blocks the node searches at a time, and it is not asked for too many again and again.
func TestANodeThatSearchesFewBlocks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours := w.payment(t, w.payer, 1000)
	if _, err := w.Send(t.Context(), "stranger", w.terms.Token, ours.Calldata()); err != nil {
		t.Fatal(err)
	}
	w.mine(t, 30)
	w.scope.LogRange = 1000
	for _, c := range []struct {
		most  uint64
		asked int // to find a payment of 30 blocks ago, the second time
	}{{1000, 1}, {20, 4}, {10, 6}, {1, 32}} {
		node := &narrow{Client: w.Client(), most: c.most}
		w.token = NewToken(w.terms, node)
		if err := w.token.Searchable(t.Context(), w.scope); err != nil {
			t.Errorf("%d blocks at a time: %v", c.most, err)
		}
		w.outcome(t, ours, Paid, true)
		node.asked = 0
		w.outcome(t, ours, Paid, true)
		if node.asked > c.asked {
			t.Errorf("%d blocks at a time: asked %d times, at most %d are needed", c.most, node.asked, c.asked)
		}
	}
	node := &narrow{Client: w.Client()}
	if err := NewToken(w.terms, node).Searchable(t.Context(), w.scope); err == nil || node.asked > 8 {
		t.Errorf("of a node that searches nothing: %v, asked %d times", err, node.asked)
	}
	w.scope.FromBlock = 1000
	if _, err := NewToken(w.terms, w.Client()).AuthorizationState(t.Context(), &ours.Authorization, w.scope); !errors.Is(err, errMoved) {
		t.Errorf("of a node that is behind where the search begins: %v", err)
	}
}

// partial is a node that shows one log of each search, and the receipts that it is told to.
type partial struct {
	*ethclient.Client
	receipt func(*types.Receipt) error
}

func (n *partial) FilterLogs(ctx context.Context, q ethereum.FilterQuery) ([]types.Log, error) {
	logs, err := n.Client.FilterLogs(ctx, q)
	return logs[:min(len(logs), 1)], err
}

func (n *partial) TransactionReceipt(ctx context.Context, hash common.Hash) (*types.Receipt, error) {
	receipt, err := n.Client.TransactionReceipt(ctx, hash)
	if err == nil && n.receipt != nil {
		err = n.receipt(receipt)
	}
	return receipt, err
}

// That a payment went elsewhere is said of a whole receipt of its block, and never of logs that a node does not show:
// those are asked for again.
func TestANodeThatShowsPart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours := w.payment(t, w.payer, 1000)
	if _, err := w.Send(t.Context(), "stranger", w.terms.Token, ours.Calldata()); err != nil {
		t.Fatal(err)
	}
	node := &partial{Client: w.Client()}
	w.token = NewToken(w.terms, node)
	w.outcome(t, ours, Paid, false)
	for name, receipt := range map[string]func(*types.Receipt) error{
		"no receipt":       func(*types.Receipt) error { return ethereum.NotFound },
		"of another block": func(r *types.Receipt) error { r.BlockHash[0]++; return nil },
		"no logs":          func(r *types.Receipt) error { r.Logs = nil; return nil },
		"without the use":  func(r *types.Receipt) error { r.Logs = r.Logs[1:]; return nil },
	} {
		node.receipt = receipt
		if o, err := w.token.AuthorizationState(t.Context(), &ours.Authorization, w.scope); err == nil {
			t.Errorf("%s: %s", name, o.State)
		}
	}
	node.receipt = nil
	w.outcome(t, ours, Paid, false)
}

// A receipt that a node has kept of a block that was reorganised away says nothing of the chain: neither paid nor not.
func TestAReceiptOfBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours := w.payment(t, w.payer, 1000)
	sent, err := w.Send(t.Context(), "stranger", w.terms.Token, ours.Calldata())
	if err != nil {
		t.Fatal(err)
	}
	node := &partial{Client: w.Client()}
	token := NewToken(w.terms, node)
	if paid, err := token.PaidBy(t.Context(), &ours.Authorization, sent.TxHash); err != nil || !paid {
		t.Fatalf("paid %v: %v", paid, err)
	}
	if paid, err := token.PaidBy(t.Context(), &w.payment(t, w.payer, 1000).Authorization, sent.TxHash); err != nil || paid {
		t.Errorf("another is paid %v: %v", paid, err)
	}
	old := *sent
	if err := w.Rewind(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	kept := &keeping{Client: w.Client(), receipt: &old}
	for _, again := range []bool{false, true} { // it is gone; it is in another block
		if again {
			w.mine(t, 1)
			if _, err := w.Send(t.Context(), "stranger", w.terms.Token, ours.Calldata()); err != nil {
				t.Fatal(err)
			}
		}
		if paid, err := NewToken(w.terms, kept).PaidBy(t.Context(), &ours.Authorization, sent.TxHash); err == nil || paid || again && !errors.Is(err, errMoved) {
			t.Errorf("in another block %v: paid %v: %v", again, paid, err)
		}
	}
}

// keeping is a node that has a receipt of a block that is no more.
type keeping struct {
	*ethclient.Client
	receipt *types.Receipt
}

func (k *keeping) TransactionReceipt(context.Context, common.Hash) (*types.Receipt, error) {
	return k.receipt, nil
}

func TestRelayer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	now := time.Unix(1_700_000_000, 0)
	cfg := DefaultRelayerConfig()
	cfg.BumpAfter, cfg.MaxFeeGas, cfg.Now = 10*time.Second, big.NewInt(20*params.GWei), func() time.Time { return now }
	relayer := w.relays(t, cfg, w.Key("relayer"))

	// What is not recorded does not leave, and its nonce is free again.
	disk := errors.New("disk full")
	unrecorded := w.payment(t, w.payer, 10_000)
	if err := relayer.Settle(ctx, unrecorded, func(context.Context, Attempt) error { return disk }); !errors.Is(err, disk) {
		t.Fatalf("%v, want %v", err, disk)
	}
	w.mine(t, 1)
	w.outcome(t, unrecorded, Unused, false)

	// Several leave in a row, and are mined in one block.
	var attempts []Attempt
	record := func(_ context.Context, a Attempt) error {
		attempts = append(attempts, a)
		return nil
	}
	first, second := w.payment(t, w.payer, 10_000), w.payment(t, w.payer, 10_000)
	for _, s := range []*Signed{first, second} {
		if err := relayer.Settle(ctx, s, record); err != nil {
			t.Fatal(err)
		}
	}
	if len(attempts) != 2 || attempts[0].Nonce+1 != attempts[1].Nonce {
		t.Fatalf("attempts %v, want two nonces in a row", attempts)
	}

	// Before a minute is over nothing is bumped; after it, the first is.
	if err := relayer.Bump(ctx); err != nil || len(attempts) != 2 {
		t.Fatalf("bumped at once: %v", err)
	}
	now = now.Add(11 * time.Second)
	if err := relayer.Bump(ctx); err != nil {
		t.Fatal(err)
	}
	if len(attempts) != 3 || attempts[2].Nonce != attempts[0].Nonce || attempts[2].Hash == attempts[0].Hash {
		t.Fatalf("attempts %v, want the first again with another fee", attempts)
	}
	w.mine(t, 1)
	if o := w.outcome(t, first, Paid, false); o.Transaction != attempts[2].Hash {
		t.Errorf("paid by %s, want the bumped %s", o.Transaction, attempts[2].Hash)
	}
	w.outcome(t, second, Paid, false)

	// One process records and dies; another sends what it finds, and never pays twice.
	third := w.payment(t, w.payer, 10_000)
	died := errors.New("killed")
	err := relayer.Settle(ctx, third, func(_ context.Context, a Attempt) error {
		attempts = append(attempts, a)
		return died
	})
	if !errors.Is(err, died) {
		t.Fatal(err)
	}
	heir := w.relays(t, cfg, w.Key("relayer"))
	for range 2 {
		if err := heir.Resume(ctx, third, attempts[3], record); err != nil {
			t.Fatal(err)
		}
	}
	w.mine(t, 1)
	w.outcome(t, third, Paid, false)
	if got := w.paid(t); got != 45_000_000 {
		t.Errorf("%d was paid, want 45000000", got)
	}
	// It was mined: nothing is sent again, and neither for one that the token refused.
	broke, err := crypto.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	refused := w.payment(t, broke, 10_000)
	if err := heir.Settle(ctx, refused, record); err != nil {
		t.Fatal(err)
	}
	w.mine(t, 1)
	before := nonceOf(t, w, "relayer")
	for s, a := range map[*Signed]Attempt{third: attempts[3], refused: attempts[4]} {
		if err := heir.Resume(ctx, s, a, record); err != nil {
			t.Fatal(err)
		}
	}
	w.mine(t, 1)
	if got := nonceOf(t, w, "relayer"); got != before || len(attempts) != 5 {
		t.Errorf("%d transactions were sent for what was mined", got-before)
	}
	// Another transaction took its nonce: it is settled anew, which the token refuses.
	if err := heir.Resume(ctx, first, attempts[0], record); err != nil || len(attempts) != 6 {
		t.Fatalf("%d attempts: %v", len(attempts), err)
	}
	w.mine(t, 1)
	if got := w.paid(t); got != 45_000_000 {
		t.Errorf("%d was paid, want 45000000 still", got)
	}
}

func TestRelayerWithoutGas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key, err := crypto.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	relayer := w.relays(t, DefaultRelayerConfig(), key)
	s := w.payment(t, w.payer, 1000)
	if err := relayer.Settle(t.Context(), s, nothingRecorded); !errors.Is(err, ErrNoGas) {
		t.Fatalf("%v, want %v", err, ErrNoGas)
	}
	w.outcome(t, s, Unused, false)
	tx, err := types.SignNewTx(w.Key("owner"), types.LatestSignerForChainID(big.NewInt(paychain.ChainID)), &types.DynamicFeeTx{
		ChainID: big.NewInt(paychain.ChainID), Nonce: nonceOf(t, w, "owner"), GasTipCap: big.NewInt(params.GWei),
		GasFeeCap: big.NewInt(100 * params.GWei), Gas: 21_000, To: new(relayer.Address()), Value: big.NewInt(params.Ether / 10),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Mine(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	polltest.Within(t, time.Minute, func() error { // the node's pool learns of a block after the chain
		return relayer.Settle(t.Context(), s, nothingRecorded)
	})
	w.mine(t, 1)
	w.outcome(t, s, Paid, false)

	relaying := DefaultRelayerConfig()
	relaying.MaxFeeGas = big.NewInt(1)
	dear := w.relays(t, relaying, w.Key("relayer"))
	if err := dear.Settle(t.Context(), w.payment(t, w.payer, 1000), nothingRecorded); !errors.Is(err, ErrFeeCeiling) {
		t.Errorf("%v, want %v", err, ErrFeeCeiling)
	}
}

func nonceOf(t *testing.T, w *world, name string) uint64 {
	t.Helper()
	nonce, err := w.Client().NonceAt(t.Context(), w.Address(name), nil)
	if err != nil {
		t.Fatal(err)
	}
	return nonce
}

// A facilitator is asked as the protocol says, and believed in nothing.
func TestFacilitator(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.payment(t, w.payer, 1000)
	answer := func(http.ResponseWriter, *http.Request) {}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/base/settle" || r.Header.Get("Authorization") != "Bearer key" {
			t.Errorf("asked %s %s", r.Method, r.URL.Path)
		}
		var got struct {
			X402Version         int
			PaymentPayload      Payment
			PaymentRequirements Requirement
		}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		if got.X402Version != 2 || got.PaymentRequirements != w.terms.Requirement || got.PaymentPayload.Payload.Authorization.Nonce != s.Nonce.Hex() {
			t.Errorf("asked %+v", got)
		}
		answer(rw, r)
	}))
	defer server.Close()
	settling := DefaultFacilitatorConfig()
	settling.URL, settling.Authorization = server.URL+"/base/", "Bearer key"
	f, err := NewFacilitator(settling, w.terms)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		status int
		body   string
		fails  bool
	}{
		"500":                        {500, "boom", true},
		"garbage":                    {200, "<html>", true},
		"pending":                    {200, `{"success":false,"errorReason":"settlement_pending"}`, true},
		"success without a transfer": {200, `{"success":true,"transaction":"0x01"}`, false},
		"nothing":                    {200, "", true},
		"redirect":                   {302, "", true},
	} {
		answer = func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Location", "http://127.0.0.1:1/")
			rw.WriteHeader(c.status)
			_, _ = rw.Write([]byte(c.body))
		}
		if err := f.Settle(t.Context(), s, nil); c.fails != errors.Is(err, ErrFacilitator) {
			t.Errorf("%s: %v", name, err)
		}
		w.outcome(t, s, Unused, false)
	}
}

func (s State) String() string {
	return [...]string{"unused", "paid", "cancelled", "elsewhere", "expired"}[s]
}
