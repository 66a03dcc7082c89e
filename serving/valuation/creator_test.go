package valuation

import (
	"math/big"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/serving/chain"
)

// asks makes the valuation read the chain from these endpoints.
func (w *world) asks(urls ...string) {
	w.t.Helper()
	on := chain.DefaultConfig()
	on.ChainID, on.Endpoints = w.dep.ChainID, urls
	var err error
	if w.service.chain.client, err = chain.New(on, nil, zap.NewNop(), prometheus.NewRegistry()); err != nil {
		w.t.Fatal(err)
	}
}

// firstOf is the transaction of a token's first log.
func (w *world) firstOf(token common.Address) common.Hash {
	w.t.Helper()
	logs, err := w.node.Client().FilterLogs(w.t.Context(), ethereum.FilterQuery{Addresses: []common.Address{token}})
	if err != nil || len(logs) == 0 {
		w.t.Fatalf("%d logs of %s: %v", len(logs), token, err)
	}
	return logs[0].TxHash
}

// TestCreator: a token's creator is the signer of the transaction of its first transfer, if that is of this chain.
func TestCreator(t *testing.T) {
	w := newWorld(t)
	by := w.deployer()
	token, _ := w.listMeme(by, by.address)
	first := w.firstOf(token)
	sign := func(chainID int64) *types.Transaction {
		tx, err := types.SignNewTx(by.key, types.LatestSignerForChainID(big.NewInt(chainID)), &types.DynamicFeeTx{ChainID: big.NewInt(chainID), Gas: 21_000})
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	elsewhere, other := sign(1), sign(int64(w.dep.ChainID))
	node := rpctest.NewLiar(t, w.node.HTTP(), 0)
	node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_getTransactionByHash" {
			switch string(req.Params[0]) {
			case `"` + elsewhere.Hash().Hex() + `"`:
				resp.Say(elsewhere)
			case `"` + (common.Hash{2}).Hex() + `"`:
				resp.Say(other)
			}
		}
		return false
	})
	w.asks(node.URL)
	for name, test := range map[string]struct {
		tx   common.Hash
		want common.Address
	}{
		"its first transfer":   {first, by.address},
		"of another chain":     {elsewhere.Hash(), common.Address{}},
		"of no transaction":    {common.Hash{1}, common.Address{}},
		"of another hash":      {common.Hash{2}, common.Address{}},
		"there is no transfer": {common.Hash{}, common.Address{}},
	} {
		got, err := w.service.chain.creator(t.Context(), token, test.tx, time.Now())
		if err != nil || got != test.want {
			t.Errorf("%s: %s, want %s: %v", name, got, test.want, err)
		}
	}
}

// TestCreatorDenied: where no node has the transaction they are not asked for each answer, and not never again.
func TestCreatorDenied(t *testing.T) {
	w := newWorld(t)
	by := w.deployer()
	token, _ := w.listMeme(by, by.address)
	first := w.firstOf(token)
	var asked atomic.Int64
	var denies atomic.Bool
	denies.Store(true)
	node := rpctest.NewLiar(t, w.node.HTTP(), 0)
	node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_getTransactionByHash" {
			if asked.Add(1); denies.Load() {
				resp.Say(nil)
			}
		}
		return false
	})
	w.asks(node.URL)
	now := time.Now()
	who := func(want common.Address, requests int64) {
		t.Helper()
		before := asked.Load()
		if got, err := w.service.chain.creator(t.Context(), token, first, now); err != nil || got != want || asked.Load()-before != requests {
			t.Errorf("%s after %d requests, want %s after %d: %v", got, asked.Load()-before, want, requests, err)
		}
	}
	who(common.Address{}, 2)
	who(common.Address{}, 0)
	denies.Store(false)
	now = now.Add(retryAfter - 1)
	who(common.Address{}, 0)
	now = now.Add(1)
	who(by.address, 1)
	denies.Store(true)
	now = now.Add(10 * retryAfter)
	who(by.address, 0)
	for i := range int64(maxCreations + 10) {
		w.service.chain.keep(common.BigToAddress(big.NewInt(i)), creation{})
	}
	if n := len(w.service.chain.creations); n != maxCreations {
		t.Errorf("%d creations are kept", n)
	}
}

// TestCreatorDeniedByOne: one of two nodes that has no transaction hides nothing.
func TestCreatorDeniedByOne(t *testing.T) {
	w := newWorld(t)
	by := w.deployer()
	token, _ := w.listMeme(by, by.address)
	denier, honest := rpctest.NewLiar(t, w.node.HTTP(), 0), rpctest.NewLiar(t, w.node.HTTP(), 0)
	denier.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_getTransactionByHash" {
			resp.Say(nil)
		}
		return false
	})
	urls := []string{denier.URL, honest.URL}
	for range 2 {
		w.asks(urls...)
		if _, err := w.service.chain.client.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.service.chain.creations = nil
		if got, err := w.service.chain.creator(t.Context(), token, w.firstOf(token), time.Now()); err != nil || got != by.address {
			t.Errorf("%s, want %s: %v", got, by.address, err)
		}
		slices.Reverse(urls)
	}
}

// TestCreatorShare: what the creator has is none, part or all of the supply; a creator without any is known too.
func TestCreatorShare(t *testing.T) {
	w := newWorld(t)
	by := w.deployer()
	token, _ := w.listMeme(by, by.address)
	supply := new(big.Int).Lsh(big.NewInt(1), 100)
	give := func(amount *big.Int) {
		w.mine(60, by.call(token, own(t, "TrapToken"), "transfer", common.Address{0x99}, amount))
	}
	share := func(want int64) {
		t.Helper()
		var b factsBody
		if w.get("/assets/"+token.Hex()+"/facts", &b); b.CreatorBps == nil || *b.CreatorBps != want {
			t.Errorf("the creator has %v, want %d bps; unknown: %v", b.CreatorBps, want, b.Unknown)
		}
	}
	has := func() *big.Int {
		held, _ := w.balances(w.at.Number, token)
		return held[by.address]
	}
	give(new(big.Int).Sub(has(), new(big.Int).Div(supply, big.NewInt(4))))
	share(2500)
	give(new(big.Int).Sub(has(), big.NewInt(1)))
	share(0)
	give(has())
	share(0)
}

// TestManyLockers: as many lockers as the configuration may name are left out of the largest holders; more are refused.
func TestManyLockers(t *testing.T) {
	w := newWorld(t)
	by := w.deployer()
	token, _ := w.listMeme(by, by.address)
	cfg := w.service.cfg
	for i := range int64(maxLockers) {
		cfg.Lockers = append(cfg.Lockers, common.BigToAddress(big.NewInt(1000+i)).Hex())
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	w.service.cfg.Lockers = cfg.Lockers
	var txs []*types.Transaction
	for i := range int64(maxLockers) {
		txs = append(txs, by.call(token, own(t, "TrapToken"), "transfer", common.BigToAddress(big.NewInt(1000+i)), new(big.Int).Lsh(big.NewInt(1), 90)))
	}
	for some := range slices.Chunk(txs, 50) {
		w.mine(60, some...)
	}
	w.mine(60, by.call(token, own(t, "TrapToken"), "transfer", common.Address{0x99}, new(big.Int).Div(new(big.Int).Lsh(big.NewInt(1), 100), big.NewInt(10_000))))
	var b factsBody
	w.get("/assets/"+token.Hex()+"/facts", &b)
	if b.Holders == nil || *b.Holders < maxLockers || b.TopTenBps == nil || b.CreatorBps == nil || *b.TopTenBps != *b.CreatorBps+1 {
		t.Errorf("%v of the supply is with the ten largest, %v with the creator; unknown: %v", b.TopTenBps, b.CreatorBps, b.Unknown)
	}
	cfg.Lockers = append(cfg.Lockers, deadAddress.Hex())
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "lockers: 245 are more than 244") {
		t.Errorf("%d lockers: %v", len(cfg.Lockers), err)
	}
}
