package valuation

import (
	"context"
	"encoding/json"
	"maps"
	"math/big"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/holiman/uint256"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/processors/engine/read"
	enginestate "github.com/lienstream/lienstream/processors/engine/state"
	marketapp "github.com/lienstream/lienstream/processors/market"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/topics"
)

const partitions = 4

// world is a chain with the real contracts, the real families on the real state fed with its logs, and the service
// over both.
type world struct {
	read.Broadcast

	t        *testing.T
	node     *devchain.Chain
	market   *devchain.Market
	scenario *devchain.Scenario
	dep      contracts.Deployment
	decoder  *contracts.Decoder
	app      *marketapp.App
	stores   []*enginestate.Store
	uniswap  map[string]contracts.Artifact

	besides []types.Log // in the next block, for the pipeline alone
	crowd   int         // number of holders of a ledger, which share the first one's amount

	mu      sync.Mutex
	blocks  []topics.BlockRef // canonical, from the genesis on
	snaps   []map[common.Hash]*enginestate.Snapshot
	at      topics.BlockRef
	reverts uint64

	reader  query.Reader
	client  *chain.Client
	service *Service
}

// newWorld opens a market and lets its actors play for more than half an hour.
func newWorld(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("takes a chain")
	}
	uniswap, err := contracts.UniswapArtifacts("../../contracts/node_modules")
	if err != nil && os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip("Uniswap is not there: run make deps:", err)
	}
	w := &world{t: t, uniswap: uniswap}
	if w.node, err = devchain.New(devchain.Config{Seed: 1, GenesisTime: 2_000_000_000, SafeBlocks: 20, FinalizedBlocks: 40}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.node.Close() })
	if w.market, err = devchain.Deploy(t.Context(), w.node, devchain.MarketConfig{Seed: 1, NodeModules: "../../contracts/node_modules"}); err != nil {
		t.Fatal(err)
	}
	w.scenario, err = devchain.NewScenario(w.market, devchain.ScenarioConfig{Seed: 1, TimePerBlock: time.Minute, TxsPerBlock: 8})
	if err != nil {
		t.Fatal(err)
	}
	w.dep = w.market.Deployment
	w.decoder = contracts.NewDecoder(w.dep)
	w.app = marketapp.New(w.decoder, zap.NewNop(), prometheus.NewRegistry())
	cache := enginestate.NewCache(enginestate.DefaultMemory(), 1)
	t.Cleanup(cache.Close)
	for range partitions {
		store, err := enginestate.Open(enginestate.Options{Dir: "db", FS: vfs.NewMem(), Cache: cache, Tables: w.app.Tables()})
		if err != nil {
			t.Fatal(err)
		}
		w.stores = append(w.stores, store)
		w.snaps = append(w.snaps, map[common.Hash]*enginestate.Snapshot{})
	}
	t.Cleanup(func() {
		w.mu.Lock() // a state may still be read in advance
		snaps := w.snaps
		w.snaps = make([]map[common.Hash]*enginestate.Snapshot, partitions)
		w.mu.Unlock()
		for p, store := range w.stores {
			for _, snap := range snaps[p] {
				snap.Release()
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	w.serve()
	w.play(45)
	return w
}

func (w *world) serve() {
	routing := query.DefaultConfig()
	routing.Partitions, routing.Local, routing.Instance, routing.Patience = partitions, w, "here", 50*time.Millisecond
	routing.Registerer = prometheus.NewRegistry()
	router, err := query.NewClient(routing, w.dep)
	if err != nil {
		w.t.Fatal(err)
	}
	on := chain.DefaultConfig()
	on.ChainID, on.Endpoints = w.dep.ChainID, []string{w.node.HTTP()}
	if w.client, err = chain.New(on, nil, zap.NewNop(), prometheus.NewRegistry()); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = w.client.Run(ended) // closes the connections
	})
	cfg := DefaultConfig()
	cfg.HTTP.Listen, cfg.Deployment, cfg.MaxAge, cfg.MaxGap, cfg.MaxLag = "127.0.0.1:0", w.dep, 0, 0, 0
	cfg.HTTP.Client.Rate, cfg.HTTP.Client.Burst = 1e6, 1e6
	w.reader = router
	if w.service, err = New(cfg, router, w.client, zap.NewNop(), prometheus.NewRegistry()); err != nil {
		w.t.Fatal(err)
	}
}

// play lets the actors mine so many blocks.
func (w *world) play(blocks int) {
	w.t.Helper()
	for range blocks {
		if _, err := w.scenario.Step(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
	w.sync()
}

// sync takes the pipeline to the chain's head: what is no longer canonical is taken back, the rest applied.
func (w *world) sync() {
	w.t.Helper()
	ctx := w.t.Context()
	head, err := w.node.Client().BlockNumber(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	var gone []topics.BlockRef
	for n, block := range slices.Backward(w.blocks) {
		if uint64(n) <= head {
			header, err := w.node.Client().HeaderByNumber(ctx, new(big.Int).SetUint64(uint64(n)))
			if err != nil {
				w.t.Fatal(err)
			}
			if header.Hash() == block.Hash {
				break
			}
		}
		gone = append(gone, block)
	}
	w.blocks = w.blocks[:len(w.blocks)-len(gone)]
	for uint64(len(w.blocks)) <= head {
		header, err := w.node.Client().HeaderByNumber(ctx, big.NewInt(int64(len(w.blocks))))
		if err != nil {
			w.t.Fatal(err)
		}
		hash := header.Hash()
		logs, err := w.node.Client().FilterLogs(ctx, ethereum.FilterQuery{BlockHash: &hash})
		if err != nil {
			w.t.Fatal(err)
		}
		w.land(gone, topics.BlockRef{Number: header.Number.Uint64(), Hash: hash, Timestamp: header.Time}, logs)
		gone = nil
	}
}

func (w *world) land(gone []topics.BlockRef, at topics.BlockRef, logs []types.Log) {
	w.t.Helper()
	overlays := make([]*enginestate.Overlay, partitions)
	for p, store := range w.stores {
		overlays[p] = store.NewOverlay()
		for _, block := range gone {
			if err := overlays[p].Revert(block, true); err != nil {
				w.t.Fatal(err)
			}
		}
		overlays[p].Begin(at, true)
	}
	var joined []common.Address // as the ingester has it, see ingest/join.go
	logs, w.besides = append(logs, w.besides...), nil
	for _, l := range logs {
		event := w.decoder.Decode(l.Address, l.Topics, l.Data)
		if _, unknown := event.(*contracts.Unknown); unknown {
			continue
		}
		record := &topics.Log{
			Block: at, TxHash: l.TxHash, TxIndex: uint32(l.TxIndex), LogIndex: uint32(l.Index), Address: l.Address, Topics: l.Topics, Data: l.Data,
		}
		if err := w.app.Apply(overlays[topics.Partition(event.Entity().Key(), partitions)], record); err != nil {
			w.t.Fatal(err)
		}
		if set, ok := event.(*contracts.AssetSet); ok && set.Lane == contracts.LaneMeme {
			joined = append(joined, set.Token)
		}
	}
	for _, token := range joined {
		for _, l := range w.ledger(at, token) {
			if err := w.app.Apply(overlays[topics.Partition(contracts.TokenEntity(token).Key(), partitions)], l); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blocks = append(w.blocks, at)
	w.at, w.reverts = at, w.reverts+uint64(len(gone))
	w.Notify()
	for p, store := range w.stores {
		if err := overlays[p].Settle(0, 0, func(enginestate.Event) {}); err != nil {
			w.t.Fatal(err)
		}
		if err := store.Commit(overlays[p], nil); err != nil {
			w.t.Fatal(err)
		}
		w.snaps[p][at.Hash] = store.Snapshot()
	}
}

// balances are what the accounts hold of a token as of a block, by its transfers up to then, and the first of them.
func (w *world) balances(number uint64, token common.Address) (held map[common.Address]*big.Int, first common.Hash) {
	w.t.Helper()
	logs, err := w.node.Client().FilterLogs(w.t.Context(), ethereum.FilterQuery{
		ToBlock: new(big.Int).SetUint64(number), Addresses: []common.Address{token}, Topics: [][]common.Hash{{contracts.TransferTopic()}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	held = map[common.Address]*big.Int{}
	for i, l := range logs {
		if i == 0 {
			first = l.TxHash
		}
		amount := new(big.Int).SetBytes(l.Data)
		for k, add := range []func(*big.Int, *big.Int, *big.Int) *big.Int{(*big.Int).Sub, (*big.Int).Add} {
			account := common.BytesToAddress(l.Topics[1+k][:])
			if held[account] == nil {
				held[account] = new(big.Int)
			}
			add(held[account], held[account], amount)
		}
	}
	delete(held, common.Address{})
	maps.DeleteFunc(held, func(_ common.Address, amount *big.Int) bool { return amount.Sign() == 0 })
	return held, first
}

// ledger is that of a token as of a block, in parts.
func (w *world) ledger(at topics.BlockRef, token common.Address) (parts []*topics.Ledger) {
	held, first := w.balances(at.Number, token)
	var all []topics.Share
	for account, amount := range held {
		for i := range w.crowd {
			some := new(big.Int).Div(amount, big.NewInt(int64(1+i)*1000))
			amount = new(big.Int).Sub(amount, some)
			all = append(all, topics.Share{Account: common.BigToAddress(big.NewInt(int64(1e9 + len(all)))), Amount: *uint256.MustFromBig(some)})
		}
		all = append(all, topics.Share{Account: account, Amount: *uint256.MustFromBig(amount)})
	}
	if len(all) == 0 {
		return []*topics.Ledger{{Block: at, Token: token, Parts: 1, First: first}}
	}
	for some := range slices.Chunk(all, topics.MaxShares) {
		parts = append(parts, &topics.Ledger{Block: at, Token: token, Part: uint32(len(parts)), First: first, Shares: some})
	}
	for _, part := range parts {
		part.Parts = uint32(len(parts))
	}
	return parts
}

// View implements query.Source. Every block's state is kept.
func (w *world) View(_ context.Context, p int32, at *topics.BlockRef) (enginestate.View, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ref := w.at
	if at != nil {
		ref = *at
	}
	snap := w.snaps[p][ref.Hash]
	if snap == nil {
		return nil, query.ErrUnavailable
	}
	return snap.View(ref), nil
}

// Watermarks implements query.Source.
func (w *world) Watermarks() []query.Watermark {
	w.mu.Lock()
	defer w.mu.Unlock()
	marks := make([]query.Watermark, partitions)
	for p := range marks {
		marks[p] = query.Watermark{
			Partition: int32(p), Role: topics.RoleOwner, Incarnation: 1, At: w.at, Reverts: w.reverts, Latest: w.at.Number, ObservedAt: time.Now(),
		}
	}
	return marks
}

// get asks the service and reads a 200 into v.
func (w *world) get(target string, v any) {
	w.t.Helper()
	status, body := w.ask(target)
	if status != 200 {
		w.t.Fatalf("%s answered %d: %s", target, status, body)
	}
	if err := json.Unmarshal(body, v); err != nil {
		w.t.Fatalf("%s: %v in %s", target, err, body)
	}
}

func (w *world) ask(target string) (int, []byte) {
	w.t.Helper()
	recorder := httptest.NewRecorder()
	w.service.ServeHTTP(recorder, httptest.NewRequestWithContext(w.t.Context(), "GET", target, nil))
	return recorder.Code, recorder.Body.Bytes()
}

// state is the state of the latest block.
func (w *world) state() *state {
	w.t.Helper()
	s, err := w.service.states.current(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// call asks a contract of Uniswap's at the state's block.
func (w *world) call(name string, to common.Address, method string, args ...any) ([]any, error) {
	w.t.Helper()
	contract := w.uniswap[name].ABI
	data, err := contract.Pack(method, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	answer, err := w.client.Call(w.t.Context(), w.at.Hash, chain.Call{To: to, Data: data})
	if err != nil {
		return nil, err
	}
	values, err := contract.Methods[method].Outputs.Unpack(answer)
	if err != nil {
		w.t.Fatal(err)
	}
	return values, nil
}

// newService is the service without a chain or a pipeline.
func newService(t *testing.T) *Service {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Deployment.ChainID = 4663
	s, err := New(cfg, nil, nil, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type httpapiRoute = httpapi.Route
