package devchain

import (
	"context"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"
)

// droppable is how many of the last blocks a reorg may drop.
func (s *Scenario) droppable() uint64 {
	safe := behind(s.highest, s.market.backend.Traits().SafeBlocks)
	return min(s.head.Number-min(s.head.Number, safe), uint64(len(s.recent)))
}

// reorg drops depth blocks and mines others in their stead, all but the last. In one of four the new chain
// is left shorter than the old one.
func (s *Scenario) reorg(ctx context.Context, depth uint64) error {
	if depth == 0 {
		return nil
	}
	if err := s.Rewind(ctx, depth); err != nil {
		return err
	}
	mined := depth
	if s.random.IntN(4) == 0 {
		mined = uint64(s.random.Int64N(int64(depth)))
	}
	for range mined {
		if _, err := s.mine(ctx); err != nil {
			return err
		}
	}
	s.cfg.Logger.Debug("reorganised the chain", zap.Uint64("depth", depth), zap.Uint64("block", s.head.Number))
	return nil
}

// Rewind drops the last blocks, as a reorg does, and leaves it to Step to mine others. It refuses to drop
// a safe block, or one that is not the scenario's.
func (s *Scenario) Rewind(ctx context.Context, depth uint64) error {
	if depth > s.droppable() {
		return fmt.Errorf("rewind %d blocks from %d: %w", depth, s.head.Number, ErrBelowSafe)
	}
	if err := s.market.backend.Rewind(ctx, depth); err != nil {
		return err
	}
	kept := len(s.recent) - int(depth)
	dropped := slices.Clone(s.recent[kept:])
	s.recent = s.recent[:kept]
	s.model = s.base.clone()
	for _, block := range s.recent {
		s.model.applyBlock(block)
	}
	header, err := s.market.backend.Client().HeaderByNumber(ctx, nil)
	if err != nil {
		return fmt.Errorf("read the head: %w", err)
	}
	s.head = &Block{Number: header.Number.Uint64(), Hash: header.Hash(), Timestamp: header.Time}
	s.chooseReplay(dropped)
	s.metrics.reorgs.Inc()
	s.metrics.dropped.Add(float64(depth))
	return nil
}

// chooseReplay decides whose dropped transactions come again: about half of the senders, each with all or
// none of theirs, since nonces leave no gaps.
func (s *Scenario) chooseReplay(dropped []played) {
	s.replay, s.faithful = dropped, make(map[common.Address]bool)
	for _, a := range append([]account{s.market.admin}, s.market.actors...) {
		s.faithful[a.signer] = s.random.IntN(2) == 0
	}
}

// replayed are the transactions that come again of the dropped block in whose place the next one comes.
func (s *Scenario) replayed() []sent {
	if len(s.replay) == 0 {
		return nil
	}
	old := s.replay[0]
	s.replay = s.replay[1:]
	var again []sent
	for _, transaction := range old.sent {
		if s.faithful[transaction.sender] {
			again = append(again, transaction)
		}
	}
	return again
}
