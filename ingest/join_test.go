package ingest_test

import (
	"crypto/ecdsa"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/polltest"
)

// owner is who deployed the market of a world whose actors play no more.
type owner struct {
	*world

	t     *testing.T
	key   *ecdsa.PrivateKey
	nonce uint64
}

func newOwner(t *testing.T, w *world, seed uint64) *owner {
	t.Helper()
	o := &owner{world: w, t: t, key: devchain.Key(seed, devchain.Deployer)}
	o.again()
	return o
}

func (o *owner) address() common.Address { return crypto.PubkeyToAddress(o.key.PublicKey) }

// again takes over the nonce of the chain as it is now.
func (o *owner) again() {
	o.t.Helper()
	var err error
	if o.nonce, err = o.chain.Client().NonceAt(o.t.Context(), o.address(), nil); err != nil {
		o.t.Fatal(err)
	}
}

// mine mines a block with these transactions, each to a contract, or to none with a new one's code.
func (o *owner) mine(txs ...*types.DynamicFeeTx) {
	o.t.Helper()
	id := new(big.Int).SetUint64(o.market.Deployment.ChainID)
	var signed []*types.Transaction
	for _, tx := range txs {
		tx.ChainID, tx.Nonce, tx.GasTipCap, tx.GasFeeCap, tx.Gas = id, o.nonce, big.NewInt(1e9), big.NewInt(1e12), 6_000_000
		o.nonce++
		s, err := types.SignNewTx(o.key, types.LatestSignerForChainID(id), tx)
		if err != nil {
			o.t.Fatal(err)
		}
		signed = append(signed, s)
	}
	head, err := o.chain.Client().HeaderByNumber(o.t.Context(), nil)
	if err != nil {
		o.t.Fatal(err)
	}
	block, err := o.chain.Mine(o.t.Context(), head.Time+1, signed)
	if err != nil {
		o.t.Fatal(err)
	}
	for i, r := range block.Receipts {
		if r.Status != types.ReceiptStatusSuccessful {
			o.t.Fatalf("transaction %d of block %d failed", i, block.Number)
		}
	}
}

// create returns where a contract will be if this is the next transaction.
func (o *owner) create(name string, args ...any) (common.Address, *types.DynamicFeeTx) {
	o.t.Helper()
	code, err := contracts.Bytecode(name)
	if err != nil {
		o.t.Fatal(err)
	}
	return crypto.CreateAddress(o.address(), o.nonce), &types.DynamicFeeTx{Data: append(code, o.pack(name, "", args...)...)}
}

func (o *owner) pack(name, method string, args ...any) []byte {
	o.t.Helper()
	contract, err := contracts.ABI(name)
	if err != nil {
		o.t.Fatal(err)
	}
	data, err := contract.Pack(method, args...)
	if err != nil {
		o.t.Fatal(err)
	}
	return data
}

func (o *owner) call(to common.Address, name, method string, args ...any) *types.DynamicFeeTx {
	o.t.Helper()
	return &types.DynamicFeeTx{To: &to, Data: o.pack(name, method, args...)}
}

func (o *owner) give(token common.Address, to byte, amount int64) *types.DynamicFeeTx {
	return o.call(token, "TKN", "transfer", common.Address{to}, big.NewInt(amount))
}

type limits struct {
	Allowed                           bool
	Kind, Lane                        uint8
	MinAmount, MaxDealRaw, MaxOpenRaw *big.Int
}

func (o *owner) set(token common.Address, allowed bool, lane contracts.Lane) *types.DynamicFeeTx {
	one := big.NewInt(1)
	return o.call(o.market.Deployment.AssetRegistry, "AssetRegistry", "setAsset", token, limits{allowed, 0, uint8(lane), one, one, one})
}

func (o *owner) rewind(depth uint64) {
	o.t.Helper()
	if err := o.chain.Rewind(o.t.Context(), depth); err != nil {
		o.t.Fatal(err)
	}
	o.again()
}

// TestTokenJoins: a token that the registry allows when it has a history is followed from then on, and its ledger is what
// the chain says, whether the ingester sees it join at the tip, in a backfill or after a restart, and through reorgs that
// take the block away, move it and bring it again. checkTopic knows which tokens join where.
func TestTokenJoins(t *testing.T) {
	t.Parallel()
	for _, proof := range []rpc.Proof{rpc.ProofTip, rpc.ProofAll, rpc.ProofSparse, rpc.ProofOff} {
		t.Run(string(proof), func(t *testing.T) {
			t.Parallel()
			joins(t, proof, 1) // ledgers come in parts, and reorgs and restarts between them
		})
	}
	t.Run("at once", func(t *testing.T) {
		t.Parallel()
		joins(t, rpc.ProofTip, ingest.DefaultConfig().LedgerShares)
	})
}

func joins(t *testing.T, proof rpc.Proof, shares int) {
	t.Helper()
	const seed = 5
	w := newWorld(t, "kfake", seed, devchain.ScenarioConfig{})
	w.step(t, 10)
	o := newOwner(t, w, seed)
	cfg := w.config()
	cfg.RPC.Proof, cfg.LedgerShares = proof, shares
	in := run(t, cfg)
	check := func() {
		t.Helper()
		checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	}
	restart := func() {
		t.Helper()
		if err := in.stop(); err != nil {
			t.Fatal(err)
		}
		in = run(t, cfg)
	}
	meme, created := o.create("TKN", o.address())
	o.mine(created, o.call(meme, "TKN", "mint", o.address(), big.NewInt(1_000)))
	for i := range byte(100) {
		o.mine(o.give(meme, 1+i%3, 1+int64(i%5)))
	}
	o.mine(o.set(meme, true, contracts.LaneStock)) // not yet
	check()

	// It joins at the tip, between transfers of one block, and is followed.
	o.mine(o.give(meme, 1, 1), o.set(meme, true, contracts.LaneMeme), o.give(meme, 2, 1), o.set(meme, true, contracts.LaneMeme))
	o.mine(o.give(meme, 3, 1), o.call(meme, "TKN", "approve", common.Address{9}, big.NewInt(1)))
	check()
	// It leaves, and comes again: nothing changes.
	o.mine(o.set(meme, false, contracts.LaneMeme), o.give(meme, 1, 1))
	o.mine(o.set(meme, true, contracts.LaneMeme), o.give(meme, 1, 1))
	check()

	// The block is reorged away, and the token joins later in the new chain, once with a restart in between.
	for _, restarts := range []bool{false, true} {
		o.rewind(4)
		o.mine(o.give(meme, 4, 7))
		if restarts {
			restart()
		}
		for range 4 { // a chain is believed once it is the longer one
			o.mine(o.give(meme, 4, 7))
		}
		check()
		o.mine(o.give(meme, 5, 7))
		o.mine(o.give(meme, 5, 1), o.set(meme, true, contracts.LaneMeme), o.give(meme, 5, 1))
		o.mine(o.give(meme, 5, 7))
		in.Kill()
		o.mine(o.give(meme, 6, 7))
		check()
		if restarts { // it is followed on by who did not see it join
			restart()
			o.mine(o.give(meme, 6, 7))
			check()
			o.rewind(1)
		}
	}

	// While nobody ingests, one token is taken away with its block, four join with one block, one of which has no transfer.
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
	o.rewind(4)
	other, created := o.create("TKN", o.address())
	o.mine(created, o.give(meme, 1, 1))
	together := []*types.DynamicFeeTx{o.set(meme, true, contracts.LaneMeme), o.set(other, true, contracts.LaneMeme), o.give(meme, 1, 1)}
	for i := range int64(2) {
		token, created := o.create("TKN", o.address())
		o.mine(created, o.call(token, "TKN", "mint", o.address(), big.NewInt(1_000)), o.give(token, 1, 1+i))
		together = append(together, o.set(token, true, contracts.LaneMeme), o.give(token, 2, 1+i))
	}
	o.mine(together...)
	o.mine(o.call(other, "TKN", "mint", o.address(), big.NewInt(5)), o.give(meme, 1, 1))
	in = run(t, cfg)
	check()
	for i := range 6 { // the rest of the ledgers comes, with empty blocks too
		if o.mine(); i == 2 {
			check()
			in.Kill()
		}
	}
	check()
	// From scratch the topic is the same.
	cfg.Kafka.Prefix = "again"
	topic := w.provision(t, cfg.Kafka)
	run(t, cfg)
	checkTopic(t, cfg.Kafka, topic, w.market.Deployment, w.chain.Client())
}

// oldToken makes a chain, most of it final, with a token that has a history, which the registry allows at the end of it;
// that many transfers are in one block of it.
func oldToken(t *testing.T, dense int) (*owner, common.Address) {
	t.Helper()
	return oldTokenOn(t, devchain.Config{Seed: 7, SafeBlocks: 4, FinalizedBlocks: 8}, dense)
}

func oldTokenOn(t *testing.T, chain devchain.Config, dense int) (*owner, common.Address) {
	t.Helper()
	w := newWorldOn(t, chain)
	w.step(t, 5)
	o := newOwner(t, w, 7)
	meme, created := o.create("TKN", o.address())
	o.mine(created, o.give(meme, 9, 0)) // anybody can have this transfer written
	o.mine(o.give(meme, 9, 0), o.call(meme, "TKN", "mint", o.address(), big.NewInt(1_000)))
	var many []*types.DynamicFeeTx
	for i := range dense {
		many = append(many, o.give(meme, byte(1+i), 1))
	}
	o.mine(many...)
	for range 12 {
		o.mine(o.give(meme, 1, 1))
	}
	o.mine(o.set(meme, true, contracts.LaneMeme))
	for range 12 {
		o.mine(o.give(meme, 2, 1))
	}
	return o, meme
}

// TestTokenJoinsBesideLiarAboutCode: beside an honest node another one denies that the token had code, by number or by
// hash too: the history is not cut short.
func TestTokenJoinsBesideLiarAboutCode(t *testing.T) {
	t.Parallel()
	for name, lies := range map[string]func(block string) bool{
		"always":        func(string) bool { return true },
		"not by number": func(block string) bool { return strings.HasPrefix(block, `"`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, meme := oldToken(t, 3)
			liar, honest := rpctest.NewLiar(t, o.chain.HTTP(), 0), rpctest.NewLiar(t, o.chain.HTTP(), 20*time.Millisecond)
			liar.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
				if req.Method == "eth_getCode" && lies(string(req.Params[1])) {
					resp.Say("0x")
				}
				return false
			})
			cfg, topic := o.lyingConfig(t, "code", rpc.Endpoint{URL: liar.URL, Name: "liar"}, rpc.Endpoint{URL: honest.URL, Name: "honest"})
			in := run(t, cfg)
			checkTopic(t, cfg.Kafka, topic, o.market.Deployment, o.chain.Client())
			o.kafka, o.topic = cfg.Kafka, topic
			if l := o.ledgerOf(t, meme); len(l.Shares) != 4 || l.First == (common.Hash{}) {
				t.Errorf("%d holders (%q), first transfer %s; want 4", len(l.Shares), l.Fault, l.First)
			}
			if count(t, in.reg, "liar", "disagreement") == 0 || count(t, in.reg, "honest", "disagreement") > 0 {
				t.Error("the lie is not counted, or for the wrong node")
			}
		})
	}
}

// TestTokenJoinsWithoutCode: the only node says nothing of code. The token's history is read from the chain's first block.
func TestTokenJoinsWithoutCode(t *testing.T) {
	t.Parallel()
	for name, refusal := range noCode {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, meme := oldToken(t, 3)
			cfg, topic := o.lyingConfig(t, "nocode", rpc.Endpoint{URL: withoutCode(t, o.world, refusal).URL, Name: "node"})
			run(t, cfg)
			checkTopic(t, cfg.Kafka, topic, o.market.Deployment, o.chain.Client())
			o.kafka, o.topic = cfg.Kafka, topic
			if l := o.ledgerOf(t, meme); len(l.Shares) != 4 || l.First == (common.Hash{}) {
				t.Errorf("%d holders (%q), first transfer %s; want 4", len(l.Shares), l.Fault, l.First)
			}
		})
	}
}

// TestTokenJoinsBesideLiarWithCode: one node claims that the token had code at every block that is named by its hash. The
// history is read from the chain's first block then, and the token joins all the same.
func TestTokenJoinsBesideLiarWithCode(t *testing.T) {
	t.Parallel()
	for _, proof := range []rpc.Proof{rpc.ProofTip, rpc.ProofSparse} {
		t.Run(string(proof), func(t *testing.T) {
			t.Parallel()
			o, meme := oldToken(t, 3)
			liar, honest := rpctest.NewLiar(t, o.chain.HTTP(), 0), rpctest.NewLiar(t, o.chain.HTTP(), 20*time.Millisecond)
			liar.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
				if req.Method == "eth_getCode" && !strings.HasPrefix(string(req.Params[1]), `"`) {
					resp.Say("0x60")
				}
				return false
			})
			cfg, topic := o.lyingConfig(t, "withcode", rpc.Endpoint{URL: liar.URL, Name: "liar"}, rpc.Endpoint{URL: honest.URL, Name: "honest"})
			cfg.RPC.Proof = proof
			run(t, cfg)
			checkTopic(t, cfg.Kafka, topic, o.market.Deployment, o.chain.Client())
			o.kafka, o.topic = cfg.Kafka, topic
			if l := o.ledgerOf(t, meme); len(l.Shares) != 4 || l.First == (common.Hash{}) {
				t.Errorf("%d holders (%q), first transfer %s; want 4", len(l.Shares), l.Fault, l.First)
			}
		})
	}
}

// TestCreatedBesideALiar: one node reports a token's code at every block, or at none. Its history begins where it does
// with the honest one.
func TestCreatedBesideALiar(t *testing.T) {
	t.Parallel()
	o, meme := oldToken(t, 3)
	head, err := o.chain.Client().BlockNumber(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	created := func(urls ...string) uint64 {
		cfg := rpc.DefaultConfig()
		cfg.ChainID, cfg.Addresses = o.market.Deployment.ChainID, []common.Address{meme}
		for i, url := range urls {
			cfg.Endpoints = append(cfg.Endpoints, rpc.Endpoint{URL: url, Name: fmt.Sprint(i)})
		}
		c, err := rpc.New(cfg, zap.NewNop(), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		block, err := c.Created(t.Context(), meme, head)
		if err != nil {
			t.Fatal(err)
		}
		return block
	}
	want := created(o.chain.HTTP())
	if want == 0 {
		t.Fatal("the token was created in the first block")
	}
	for _, code := range []string{"0x60", "0x"} {
		liar := rpctest.NewLiar(t, o.chain.HTTP(), 0)
		liar.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
			if req.Method == "eth_getCode" {
				resp.Say(code)
			}
			return false
		})
		for _, urls := range [][]string{{liar.URL, o.chain.HTTP()}, {o.chain.HTTP(), liar.URL}} {
			if got := created(urls...); got != want {
				t.Errorf("beside one that says %q everywhere: block %d, want %d", code, got, want)
			}
		}
	}
}

// TestTokenJoinsWithWholeHistory: a history that begins too late, so that more is sent than was received, does not
// count as the token's fault: it is read again.
func TestTokenJoinsWithWholeHistory(t *testing.T) {
	t.Parallel()
	o, meme := oldToken(t, 3)
	head, err := o.chain.Client().BlockNumber(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var byHash atomic.Bool // it was asked
	node := rpctest.NewLiar(t, o.chain.HTTP(), 0)
	node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		var asked common.Address
		if req.Method != "eth_getCode" || json.Unmarshal(req.Params[0], &asked) != nil || asked != meme {
			return false
		}
		var number hexutil.Uint64
		if json.Unmarshal(req.Params[1], &number) != nil {
			byHash.Store(true)
		} else if !byHash.Load() && uint64(number) < head-18 {
			resp.Say("0x")
		}
		return false
	})
	cfg, topic := o.lyingConfig(t, "late", rpc.Endpoint{URL: node.URL, Name: "node"})
	run(t, cfg)
	o.kafka, o.topic = cfg.Kafka, topic
	if l := o.ledgerOf(t, meme); len(l.Shares) != 4 || l.Fault != "" {
		t.Errorf("%d holders, want 4; fault %q", len(l.Shares), l.Fault)
	}
}

// TestLedgerReadAgainIsAnother: a session ends between the parts of a ledger, and the next one reads a different
// history with as many parts. The token's holders are unknown then, and blocks come in.
func TestLedgerReadAgainIsAnother(t *testing.T) {
	t.Parallel()
	o, meme := oldToken(t, 20)
	node := rpctest.NewLiar(t, o.chain.HTTP(), 0)
	var lies atomic.Bool // of how much somebody was given
	node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		var logs []map[string]any
		if req.Method != "eth_getLogs" || !lies.Load() || json.Unmarshal(resp.Result, &logs) != nil {
			return false
		}
		if n := len(logs); n > 1 && reflect.DeepEqual(logs[n-1]["topics"], logs[n-2]["topics"]) {
			logs[n-2]["data"] = common.Hash{31: 2}
			resp.Result, _ = json.Marshal(logs)
		}
		return false
	})
	cfg, topic := o.lyingConfig(t, "again", rpc.Endpoint{URL: node.URL, Name: "node"})
	o.kafka, o.topic = cfg.Kafka, topic
	cfg.LedgerShares, cfg.RPC.Proof = 1, rpc.ProofOff
	in := run(t, cfg)
	if l := o.ledgersOf(t, meme); len(l) == int(l[0].Parts) || l[0].Fault != "" {
		t.Fatalf("%d of %d parts have come: %q", len(l), l[0].Parts, l[0].Fault)
	}
	if err := in.stop(); err != nil {
		t.Fatal(err)
	}
	lies.Store(true)
	run(t, cfg)
	o.mine(o.give(meme, 1, 1))
	l := o.ledgersOf(t, meme)
	if last := l[len(l)-1]; last.Fault == "" || int(last.Part) != len(l)-1 || last.Parts != l[0].Parts || len(last.Shares) > 0 {
		t.Errorf("part %d of %d, after %d others, with %d shares: %q", last.Part, last.Parts, len(l)-1, len(last.Shares), last.Fault)
	}
}

// TestLedgerSharesChange: between the parts of a ledger, an ingester with other LedgerShares takes over. The number of
// parts stays, and they have every holder once.
func TestLedgerSharesChange(t *testing.T) {
	t.Parallel()
	const holders = 22
	for _, test := range []struct{ before, after, parts int }{
		{12, 20, 2}, // as many parts of these, but others
		{12, 100, 2},
		{8, 12, 3},
		{8, 1, 3},
	} {
		t.Run(fmt.Sprint(test.before, " then ", test.after), func(t *testing.T) {
			t.Parallel()
			w := newWorldOn(t, devchain.Config{Seed: 7, SafeBlocks: 4, FinalizedBlocks: 8})
			w.step(t, 5)
			o := newOwner(t, w, 7)
			meme, created := o.create("TKN", o.address())
			o.mine(created)
			o.mine(o.call(meme, "TKN", "mint", o.address(), big.NewInt(1_000)))
			var many []*types.DynamicFeeTx
			for i := range holders - 1 {
				many = append(many, o.give(meme, byte(1+i), 1))
			}
			o.mine(many...)
			o.mine(o.set(meme, true, contracts.LaneMeme))
			cfg, topic := o.lyingConfig(t, "shares", rpc.Endpoint{URL: o.chain.HTTP(), Name: "node"})
			o.kafka, o.topic = cfg.Kafka, topic
			cfg.LedgerShares = test.before
			in := run(t, cfg)
			if l := o.ledgersOf(t, meme); len(l) != 1 || int(l[0].Parts) != test.parts {
				t.Fatalf("%d parts have come", len(l))
			}
			if err := in.stop(); err != nil {
				t.Fatal(err)
			}
			cfg.LedgerShares = test.after
			run(t, cfg)
			for range test.parts - 1 {
				o.mine()
			}
			l := o.ledgersOf(t, meme)
			if len(l) != test.parts {
				t.Fatalf("%d parts have come, want %d", len(l), test.parts)
			}
			has := map[common.Address]bool{}
			for i, part := range l {
				if int(part.Part) != i || int(part.Parts) != test.parts || part.Fault != "" {
					t.Errorf("part %d of %d in place of %d: fault %q", part.Part, part.Parts, i, part.Fault)
				}
				for _, s := range part.Shares {
					if has[s.Account] {
						t.Errorf("%s has two shares", s.Account)
					}
					has[s.Account] = true
				}
			}
			if len(has) != holders {
				t.Errorf("%d of %d holders are in the topic", len(has), holders)
			}
		})
	}
}

// TestTokenJoinsOncePruned: no endpoint has the history of a joining token any more. The ingester waits for one that
// has, without starting new sessions.
func TestTokenJoinsOncePruned(t *testing.T) {
	t.Parallel()
	o, meme := oldToken(t, 3)
	var pruned atomic.Int64 // requests that were refused; negative: none are
	node := rpctest.NewLiar(t, o.chain.HTTP(), 0)
	node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_getLogs" && strings.Contains(string(req.Params[0]), hexutil.Encode(meme[:])) && pruned.Load() >= 0 {
			pruned.Add(1)
			resp.Result, resp.Error = nil, json.RawMessage(`{"code":4444,"message":"pruned history unavailable"}`)
		}
		return false
	})
	cfg, topic := o.lyingConfig(t, "pruned", rpc.Endpoint{URL: node.URL, Name: "node"})
	in := run(t, cfg)
	polltest.Within(t, time.Minute, func() error {
		if n := pruned.Load(); n < 10 {
			return fmt.Errorf("the history was asked for %d times", n)
		}
		return nil
	})
	if n := value(t, in.reg, "lienstream_ingest_sessions_failed_total"); n > 0 {
		t.Errorf("%v sessions ended", n)
	}
	pruned.Store(-1 << 30)
	checkTopic(t, cfg.Kafka, topic, o.market.Deployment, o.chain.Client())
}

// TestHostileTokenJoins: whatever logs a token's contract writes, before it joins and after it, they neither stop the
// ingester nor make up holders.
func TestHostileTokenJoins(t *testing.T) {
	t.Parallel()
	const seed = 6
	transfer := func(topicsOf int, data []byte, accounts ...byte) []byte {
		b := append([]byte{byte(topicsOf)}, contracts.TransferTopic().Bytes()...)
		for _, a := range accounts {
			b = append(b, common.LeftPadBytes([]byte{a}, 32)...)
		}
		return append(binary.BigEndian.AppendUint16(b, uint16(len(data))), data...)
	}
	most := make([]byte, 32)
	for i := range most {
		most[i] = 0xff
	}
	one := common.LeftPadBytes([]byte{1}, 32)
	logs := map[string][]byte{
		"malformed transfer":                     transfer(1, one),
		"transfer exceeds what the sender holds": transfer(3, one, 1, 2),
		"minted beyond 256 bits":                 append(transfer(3, most, 0, 1), transfer(3, one, 0, 2)...),
		"":                                       append(transfer(3, most, 0, 1), transfer(3, most, 1, 1)...),
	}
	for fault, data := range logs {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "kfake", seed, devchain.ScenarioConfig{})
			w.step(t, 5)
			o := newOwner(t, w, seed)
			in := run(t, w.config())
			token, created := o.create("Forger")
			o.mine(created)
			o.mine(&types.DynamicFeeTx{To: &token, Data: data})
			o.mine(o.set(token, true, contracts.LaneMeme))
			for _, more := range logs {
				o.mine(&types.DynamicFeeTx{To: &token, Data: more})
			}
			l := w.ledgerOf(t, token)
			if l.Fault != fault || fault != "" && len(l.Shares) > 0 || fault == "" && len(l.Shares) != 1 {
				t.Errorf("fault %q, want %q, and %d shares", l.Fault, fault, len(l.Shares))
			}
			if err := in.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// ledgerOf waits for the topic to be at the head, and returns the first part of the ledger of a token.
func (w *world) ledgerOf(t *testing.T, token common.Address) *topics.Ledger {
	t.Helper()
	all := w.ledgersOf(t, token)
	if len(all) == 0 {
		t.Fatalf("no ledger of %s", token)
	}
	return all[0]
}

// TestOutageAtAJoin: while a token joins, the only node fails to say whether it has code for longer than a refusal is
// waited for. Its history is read from its creation on all the same, and not from the chain's first block.
func TestOutageAtAJoin(t *testing.T) {
	t.Parallel()
	const outage = 18 * time.Second
	w := newWorldOn(t, devchain.Config{Seed: 7, SafeBlocks: 4, FinalizedBlocks: 8})
	w.step(t, 5)
	o := newOwner(t, w, 7)
	for range 100 {
		o.mine()
	}
	meme, created := o.create("TKN", o.address())
	o.mine(created)
	born, err := o.chain.Client().BlockNumber(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o.mine(o.give(meme, 1, 0))
	o.mine(o.set(meme, true, contracts.LaneMeme))
	for range 12 {
		o.mine(o.give(meme, 2, 0))
	}
	var (
		mu     sync.Mutex
		since  time.Time
		lowest = uint64(math.MaxUint64)
	)
	node := rpctest.NewLiar(t, w.chain.HTTP(), 0)
	node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if len(req.Params) == 0 || !strings.Contains(strings.ToLower(string(req.Params[0])), strings.ToLower(meme.Hex())) {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		switch req.Method {
		case "eth_getCode":
			if since.IsZero() {
				since = time.Now()
			}
			if time.Since(since) < outage {
				resp.Result, resp.Error = nil, json.RawMessage(`{"code":-32603,"message":"internal error"}`)
			}
		case "eth_getLogs":
			var q struct{ FromBlock *hexutil.Uint64 }
			others := strings.Contains(strings.ToLower(string(req.Params[0])), strings.ToLower(w.market.Deployment.DealVault.Hex()))
			if err := json.Unmarshal(req.Params[0], &q); err == nil && q.FromBlock != nil && !others {
				lowest = min(lowest, uint64(*q.FromBlock))
			}
		}
		return false
	})
	cfg, topic := o.lyingConfig(t, "outage", rpc.Endpoint{URL: node.URL, Name: "node"})
	run(t, cfg)
	checkTopic(t, cfg.Kafka, topic, o.market.Deployment, o.chain.Client())
	mu.Lock()
	defer mu.Unlock()
	if since.IsZero() || lowest < born || lowest > born+1 {
		t.Errorf("the history of a token created in block %d is read from block %d on", born, lowest)
	}
}
