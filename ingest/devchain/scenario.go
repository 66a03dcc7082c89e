package devchain

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/lienstream/lienstream/contracts"
)

// Scenario plays a market's actors. They choose at random among what the contracts would let them do, so
// nearly every transaction succeeds; a few are wrong on purpose.
//
// Invariants:
//
//  1. With an equal seed, market and configuration, the n-th Step mines equal transactions on any node that keeps
//     equal time, and blocks of equal hashes on Chain.
//  2. A reorg never reaches below the node's safe block nor below the block that the scenario began on.
//  3. The scenario alone mines and rewinds; it would not notice another doing so.
//  4. What it holds is bounded: the open things of the market, and the events of the last blocks that a
//     reorg could still drop.
type Scenario struct {
	cfg     ScenarioConfig
	market  *Market
	metrics *metrics
	random  *rand.Rand
	actions []action

	model   *model // as of the head
	base    *model // as of the newest block that can no longer be dropped
	recent  []played
	highest uint64 // of all heads so far
	head    *Block

	replay   []played                // blocks dropped by the last reorg, whose transactions may come again
	faithful map[common.Address]bool // senders whose dropped transactions come again
}

// played is a block of the scenario's.
type played struct {
	number    uint64
	timestamp uint64
	sent      []sent
	events    []contracts.Event
}

// sent is a transaction of an actor's.
type sent struct {
	sender common.Address
	tx     *types.Transaction
	label  string // what it calls
}

func (p played) transactions() []*types.Transaction {
	txs := make([]*types.Transaction, len(p.sent))
	for i, s := range p.sent {
		txs[i] = s.tx
	}
	return txs
}

// NewScenario prepares to play on a market that Deploy made. A market takes one scenario.
func NewScenario(market *Market, cfg ScenarioConfig) (*Scenario, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("scenario config: %w", err)
	}
	cfg = cfg.withDefaults()
	s := &Scenario{
		cfg: cfg, market: market, metrics: newMetrics(cfg.Registerer),
		random: rand.New(rand.NewPCG(cfg.Seed, 4663)),
		model:  market.model.clone(), base: market.model.clone(),
		head: market.head, highest: market.head.Number,
	}
	s.actions = actions(market)
	return s, nil
}

// Run mines blocks at the configured rate until ctx is done, which is no error.
func (s *Scenario) Run(ctx context.Context) error {
	pace := rate.NewLimiter(rate.Limit(s.cfg.Rate), 1)
	for {
		if err := pace.Wait(ctx); err != nil {
			return nil //nolint:nilerr // Wait fails only because ctx ends
		}
		if _, err := s.Step(ctx); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // the node was asked after the end
			}
			return err
		}
	}
}

// Step mines one block. When a reorg is due it first drops blocks, and mines as many others below the one
// that it returns that the chain is, most of the time, as long as it was.
func (s *Scenario) Step(ctx context.Context) (*Block, error) {
	if s.cfg.Reorgs && s.random.IntN(s.cfg.ReorgEvery) == 0 {
		depth := s.random.IntN(3) + 1
		if s.random.IntN(2) == 0 {
			depth = s.random.IntN(s.cfg.MaxReorgDepth) + 1
		}
		if err := s.reorg(ctx, min(uint64(depth), uint64(s.cfg.MaxReorgDepth), s.droppable())); err != nil {
			return nil, err
		}
	}
	return s.mine(ctx)
}

// mine plans a block, mines it and learns from it.
func (s *Scenario) mine(ctx context.Context) (*Block, error) {
	timestamp := s.nextTimestamp()
	block := played{timestamp: timestamp, sent: s.replayed()}
	if err := s.plan(&block); err != nil {
		return nil, err
	}
	mined, err := s.market.backend.Mine(ctx, timestamp, block.transactions())
	if err != nil {
		return nil, err
	}
	block.number = mined.Number
	for i, receipt := range mined.Receipts {
		if receipt.Status != types.ReceiptStatusSuccessful && i < len(block.sent) {
			s.metrics.reverted.Inc()
			s.cfg.Logger.Debug("transaction reverted", zap.Uint64("block", mined.Number), zap.String("call", block.sent[i].label))
		}
		for _, log := range receipt.Logs {
			block.events = append(block.events, s.market.event(log))
		}
	}
	s.metrics.transactions.Add(float64(len(block.sent)))
	s.metrics.blocks.Inc()
	s.metrics.events.Add(float64(len(block.events)))
	s.learn(mined, block)
	return mined, nil
}

// nextTimestamp is that of the next block. Where the node lets it, one in ten blocks repeats its parent's.
func (s *Scenario) nextTimestamp() uint64 {
	mean := uint64(s.cfg.TimePerBlock / time.Second)
	step := mean/2 + s.random.Uint64N(mean+1)
	if s.market.backend.Traits().EqualTimestamps && s.random.IntN(10) == 0 {
		step = 0
	}
	return s.head.Timestamp + step
}

// learn takes a mined block into the models.
func (s *Scenario) learn(mined *Block, block played) {
	s.head = mined
	s.highest = max(s.highest, mined.Number)
	s.model.applyBlock(block)
	s.recent = append(s.recent, block)
	safe := behind(s.highest, s.market.backend.Traits().SafeBlocks)
	for len(s.recent) > 0 && s.recent[0].number <= safe {
		s.base.applyBlock(s.recent[0])
		s.recent = s.recent[1:]
	}
}

// applyBlock takes a block into the model.
func (m *model) applyBlock(block played) {
	for _, transaction := range block.sent {
		m.nonces[transaction.sender]++
		m.halt(transaction.tx)
	}
	for _, event := range block.events {
		m.apply(event)
	}
}
