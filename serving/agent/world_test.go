package agent

import (
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi/apitest"
)

// world is a chain with the market on it, that the test mines block by block, and the service over it.
type world struct {
	*apitest.Client

	t        testing.TB
	node     devchain.Backend
	market   *devchain.Market
	scenario *devchain.Scenario
	dep      contracts.Deployment
	chain    *chain.Client
	index    *index
	agent    *Agent
	logs     *observer.ObservedLogs
	reg      *prometheus.Registry
	keys     map[common.Address]*ecdsa.PrivateKey
	actors   []common.Address
	admin    common.Address
}

type change func(cfg *Config, parts *Parts)

func newNode(t testing.TB, seed uint64) devchain.Backend { return newNodeWith(t, seed, nil) }

// newNodeWith is a node with accounts in its first block.
func newNodeWith(t testing.TB, seed uint64, alloc types.GenesisAlloc) devchain.Backend {
	t.Helper()
	if testing.Short() {
		t.Skip("takes a chain")
	}
	node, err := devchain.New(devchain.Config{Seed: seed, Alloc: alloc})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	return node
}

// newWorld makes a world whose actors have played for the given number of blocks.
func newWorld(t testing.TB, node devchain.Backend, seed uint64, blocks int, changes ...change) *world {
	t.Helper()
	w := &world{t: t, node: node, keys: map[common.Address]*ecdsa.PrivateKey{}}
	const actors = 8
	for i := range actors {
		w.actors = append(w.actors, w.actor(seed, fmt.Sprintf("actor %d", i)))
	}
	w.admin = w.actor(seed, devchain.Deployer)
	var err error
	if w.market, err = devchain.Deploy(t.Context(), node, devchain.MarketConfig{
		NodeModules: "../../contracts/node_modules", Seed: seed, Actors: actors,
	}); err != nil {
		t.Fatal(err)
	}
	w.dep = w.market.Deployment
	if w.scenario, err = devchain.NewScenario(w.market, devchain.ScenarioConfig{Seed: seed, TimePerBlock: 3 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	w.steps(blocks)
	w.chain = w.client(node.HTTP())
	w.index = newIndex(t, w.dep)
	w.agent = w.service(changes...)
	w.Client = apitest.NewClient(t, w.agent, description)
	w.sync()
	return w
}

func (w *world) client(urls ...string) *chain.Client {
	w.t.Helper()
	cfg := chain.DefaultConfig()
	cfg.ChainID, cfg.Endpoints, cfg.Timeout, cfg.PollTimeout = devchain.DefaultChainID, urls, 5*time.Second, 5*time.Second
	cfg.MaxSilent = 0 // some nodes are away from the beginning
	c, err := chain.New(cfg, nil, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// service is the service over the world, with changes of its configuration.
func (w *world) service(changes ...change) *Agent {
	w.t.Helper()
	cfg := DefaultConfig()
	cfg.HTTP.Listen, cfg.HTTP.CursorSecret = "127.0.0.1:0", "a secret of the tests"
	cfg.Deployment, cfg.BaseURL = w.dep, "http://agent.example"
	cfg.Limits = Limits{Requests: 1_000_000, Prepares: 1_000_000, Nodes: 1}
	cfg.MaxLag = 0 // blocks of the scenario are hours apart
	parts := Parts{Chain: w.chain, Index: w.index.reader(w.dep)}
	for _, c := range changes {
		c(&cfg, &parts)
	}
	core, logs := observer.New(zapcore.DebugLevel)
	w.logs, w.reg = logs, prometheus.NewRegistry()
	a, err := New(cfg, parts, zap.New(core), w.reg)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// actor derives the key of one of the chain's actors.
func (w *world) actor(seed uint64, name string) common.Address {
	key := devchain.Key(seed, name)
	address := crypto.PubkeyToAddress(key.PublicKey)
	w.keys[address] = key
	return address
}

func (w *world) steps(n int) {
	w.t.Helper()
	for range n {
		if _, err := w.scenario.Step(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// sync lets the service and the index see the chain as it is.
func (w *world) sync() chain.Block {
	w.t.Helper()
	head, err := w.chain.Refresh(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	w.index.catchUp(w.node)
	return head
}

// head lets the service see the chain as it is.
func (w *world) head() chain.Block {
	w.t.Helper()
	head, err := w.chain.Refresh(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return head
}

// sign makes a transaction of a call.
func (w *world) sign(from, to common.Address, data []byte, gas uint64) *types.Transaction {
	w.t.Helper()
	nonce, err := w.node.Client().NonceAt(w.t.Context(), from, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	tx, err := types.SignNewTx(w.keys[from], types.LatestSignerForChainID(big.NewInt(4663)), &types.DynamicFeeTx{
		ChainID: big.NewInt(4663), Nonce: nonce, GasTipCap: big.NewInt(1e9), GasFeeCap: big.NewInt(1e11), Gas: gas, To: &to, Data: data,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return tx
}

// mine puts a transaction into the next block, a second later.
func (w *world) mine(tx *types.Transaction) *types.Receipt {
	w.t.Helper()
	head, err := w.node.Client().HeaderByNumber(w.t.Context(), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	block, err := w.node.Mine(w.t.Context(), head.Time+1, []*types.Transaction{tx})
	if err != nil {
		w.t.Fatal(err)
	}
	return block.Receipts[0]
}

// call sends a call of a contract, which must succeed.
func (w *world) call(from, to common.Address, contract, method string, args ...any) {
	w.t.Helper()
	of, err := contracts.ABI(contract)
	if err != nil {
		w.t.Fatal(err)
	}
	data, err := of.Pack(method, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	if r := w.mine(w.sign(from, to, data, 3_000_000)); r.Status != types.ReceiptStatusSuccessful {
		w.t.Fatalf("%s.%s reverted", contract, method)
	}
	w.head()
}

// read is a view of a contract at the head.
func (w *world) read(to common.Address, contract, method string, args ...any) []any {
	w.t.Helper()
	of, err := contracts.ABI(contract)
	if err != nil {
		w.t.Fatal(err)
	}
	data, err := of.Pack(method, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := w.chain.Call(w.t.Context(), w.head().Hash, chain.Call{To: to, Data: data})
	if err != nil {
		w.t.Fatalf("%s.%s: %v", contract, method, err)
	}
	values, err := of.Unpack(method, out)
	if err != nil {
		w.t.Fatal(err)
	}
	return values
}

type body map[string]any

// post asks for a transaction.
func (w *world) post(b any) *apitest.Response {
	w.t.Helper()
	text, ok := b.(string)
	if !ok {
		raw, err := json.Marshal(b)
		if err != nil {
			w.t.Fatal(err)
		}
		text = string(raw)
	}
	r := httptest.NewRequestWithContext(w.t.Context(), http.MethodPost, prepareRoute, strings.NewReader(text))
	r.Header.Set("Content-Type", "application/json")
	return w.Do(w.t, r)
}

// prepared asks for a transaction that must be prepared.
func (w *world) prepared(b body) Prepared {
	w.t.Helper()
	res := w.post(b)
	if res.Status != http.StatusOK {
		w.t.Fatalf("%v answered %d: %s", b, res.Status, res.Body)
	}
	var p Prepared
	res.Decode(w.t, &p)
	return p
}

// refused asks for what must be refused with a code.
func (w *world) refused(code string, b any) string {
	w.t.Helper()
	res := w.post(b)
	return w.isError(code, res)
}

func (w *world) isError(code string, res *apitest.Response) string {
	w.t.Helper()
	var v struct {
		Error struct {
			Code, Message string
			Retryable     bool
		}
	}
	res.Decode(w.t, &v)
	if v.Error.Code != code {
		w.t.Errorf("answered %d %s, want %s", res.Status, res.Body, code)
	}
	if want := (res.Status == 429 || res.Status == 503) && code != "DEPLOYMENT_MISMATCH"; v.Error.Retryable != want {
		w.t.Errorf("%s: retryable is %t", code, v.Error.Retryable)
	}
	return v.Error.Message
}

// sent signs a prepared transaction and puts it into the next block.
func (w *world) sent(p Prepared) *types.Receipt {
	w.t.Helper()
	gas, ok := new(big.Int).SetString(p.Transaction.Gas, 10)
	if !ok {
		w.t.Fatalf("gas %q", p.Transaction.Gas)
	}
	from, to := common.HexToAddress(p.Transaction.From), common.HexToAddress(p.Transaction.To)
	return w.mine(w.sign(from, to, hexutil.MustDecode(p.Transaction.Data), gas.Uint64()))
}

func get[T any](w *world, target string) T {
	w.t.Helper()
	res := w.Get(w.t, target)
	if res.Status != http.StatusOK {
		w.t.Fatalf("%s answered %d: %s", target, res.Status, res.Body)
	}
	var v T
	res.Decode(w.t, &v)
	return v
}

func addressOf(text string) common.Address { return common.HexToAddress(text) }
