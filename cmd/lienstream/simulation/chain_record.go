package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/devchain"
)

// recording is a recorded chain: its blocks, and how its head moved. go-ethereum does not run in a bubble of synctest,
// so it is recorded once, before all runs.
type recording struct {
	deployment contracts.Deployment
	blocks     map[common.Hash]*block
	steps      []step
	ends       []int                    // steps that runs end at
	calls      map[string]hexutil.Bytes // of probes: block, token and selector
	tokens     []common.Address         // that were registered so far, in any branch
	ledger     *ledger
	states     *states

	also func(context.Context, *rpc.Client, *recording, *types.Header) error // sees each block; nil: nobody does
}

// block is a block as nodes tell it.
type block struct {
	header   *types.Header
	json     json.RawMessage
	whole    json.RawMessage // with its transactions
	receipts json.RawMessage
	logs     []types.Log
	logsJSON []json.RawMessage // the same
	txs      []hexutil.Bytes   // as they were signed
}

// encodeLogs has the logs as nodes tell them.
func (b *block) encodeLogs() error {
	for i := range b.logs {
		text, err := json.Marshal(&b.logs[i])
		if err != nil {
			return err
		}
		b.logsJSON = append(b.logsJSON, text)
	}
	return nil
}

// joining are blocks from which on the tokens join that do so while things break, with ledgers of several parts.
var joining = []uint64{95, 120}

// step replaces the chain from block number `from` on.
type step struct {
	from  uint64
	added []common.Hash
}

// Of the recorded chain. Reorgs are deep enough to go below what several commits span.
const (
	reorgEvery   = 15
	reorgDepth   = 6
	timePerBlock = 2 * time.Hour // so that deals become due
)

// record runs the market's scenario on go-ethereum.
func (r *recording) record(ctx context.Context, seed uint64, blocks int, modules string) error {
	chain, err := devchain.New(devchain.Config{Seed: seed})
	if err != nil {
		return err
	}
	r.blocks, r.calls = map[common.Hash]*block{}, map[string]hexutil.Bytes{}
	r.states = newStates(ctx, chain) // until close
	return r.run(ctx, chain, seed, blocks, modules)
}

func (r *recording) run(ctx context.Context, chain *devchain.Chain, seed uint64, blocks int, modules string) error {
	market, err := devchain.Deploy(ctx, chain, devchain.MarketConfig{NodeModules: modules, Seed: seed, Late: joining})
	if err != nil {
		return err
	}
	r.deployment = market.Deployment
	scenario, err := devchain.NewScenario(market, devchain.ScenarioConfig{
		Seed: seed, Reorgs: true, ReorgEvery: reorgEvery, MaxReorgDepth: reorgDepth, TimePerBlock: timePerBlock,
	})
	if err != nil {
		return err
	}
	var canonical []common.Hash
	for i := 0; i <= blocks; i++ {
		if i > 0 {
			if _, err := scenario.Step(ctx); err != nil {
				return err
			}
		}
		if canonical, err = r.move(ctx, chain.Client(), canonical); err != nil {
			return err
		}
	}
	if r.ends = r.highest(ends); len(r.ends) != len(ends) {
		return fmt.Errorf("%d steps have no end for each of %v", len(r.steps), ends)
	}
	r.ledger = ledgerOf(r)
	return nil
}

// move notes where the chain's head is now.
func (r *recording) move(ctx context.Context, client *ethclient.Client, canonical []common.Hash) ([]common.Hash, error) {
	h, err := client.HeaderByNumber(ctx, nil)
	var path []*types.Header // from the head down to where it leaves the chain so far
	for err == nil {
		n := h.Number.Uint64()
		if n < uint64(len(canonical)) && canonical[n] == h.Hash() {
			break
		}
		if path = append(path, h); n == 0 {
			break
		}
		h, err = client.HeaderByHash(ctx, h.ParentHash)
	}
	if err != nil || len(path) == 0 {
		return canonical, err
	}
	s := step{from: path[len(path)-1].Number.Uint64()}
	for _, h := range slices.Backward(path) {
		if r.blocks[h.Hash()] == nil {
			if err := r.keep(ctx, client, h); err != nil {
				return nil, fmt.Errorf("record block %d: %w", h.Number, err)
			}
		}
		s.added = append(s.added, h.Hash())
	}
	r.steps = append(r.steps, s)
	return append(canonical[:s.from:s.from], s.added...), nil
}

// keep records a block and what tokens answer as of it.
func (r *recording) keep(ctx context.Context, client *ethclient.Client, h *types.Header) error {
	hash := h.Hash()
	b := &block{header: h}
	var err error
	if b.json, err = json.Marshal(h); err != nil {
		return err
	}
	if err := client.Client().CallContext(ctx, &b.receipts, "eth_getBlockReceipts", hash); err != nil {
		return err
	}
	if err := client.Client().CallContext(ctx, &b.whole, "eth_getBlockByHash", hash, true); err != nil {
		return err
	}
	whole, err := client.BlockByHash(ctx, hash)
	if err != nil {
		return err
	}
	for _, tx := range whole.Transactions() {
		raw, err := tx.MarshalBinary()
		if err != nil {
			return err
		}
		b.txs = append(b.txs, raw)
	}
	if b.logs, err = client.FilterLogs(ctx, ethereum.FilterQuery{BlockHash: &hash}); err != nil {
		return err
	}
	if err := b.encodeLogs(); err != nil {
		return err
	}
	r.blocks[hash] = b
	decoder := contracts.NewDecoder(r.deployment)
	for i := range b.logs {
		l := &b.logs[i]
		if e, ok := decoder.Decode(l.Address, l.Topics, l.Data).(*contracts.AssetSet); ok && !slices.Contains(r.tokens, e.Token) {
			r.tokens = append(r.tokens, e.Token)
		}
	}
	if r.also != nil {
		if err := r.also(ctx, client.Client(), r, h); err != nil {
			return err
		}
	}
	return r.probe(ctx, client.Client(), hash)
}

// probe asks every token what an ingester may ask it as of any block.
func (r *recording) probe(ctx context.Context, client *rpc.Client, block common.Hash) error {
	var batch []rpc.BatchElem
	var keys []string
	for _, token := range r.tokens {
		for _, f := range []string{"uiMultiplier()", "newUIMultiplier()", "effectiveAt()", "paused()", "oraclePaused()"} {
			selector := contracts.Selector(f)
			keys = append(keys, callKey(block, token, selector))
			batch = append(batch, rpc.BatchElem{Method: "eth_call", Result: new(hexutil.Bytes), Args: []any{
				map[string]any{"to": token, "data": hexutil.Bytes(selector)}, map[string]any{"blockHash": block},
			}})
		}
	}
	for part := range slices.Chunk(batch, 100) {
		if err := client.BatchCallContext(ctx, part); err != nil {
			return err
		}
	}
	for i := range batch {
		if batch[i].Error == nil { // else it refused
			r.calls[keys[i]] = *batch[i].Result.(*hexutil.Bytes)
		}
	}
	return nil
}

func callKey(block common.Hash, to common.Address, data []byte) string {
	return fmt.Sprintf("%x/%x/%x", block, to, data)
}

// descends reports whether a block is another one or above it.
func (r *recording) descends(h common.Hash, from *types.Header) bool {
	for b := r.blocks[h]; b != nil && b.header.Number.Cmp(from.Number) > 0; b = r.blocks[h] {
		h = b.header.ParentHash
	}
	return h == from.Hash()
}
