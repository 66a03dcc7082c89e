package ingest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/topics"
)

// faultTooMany is why the balances of a token cannot be had here; package contracts has the other reasons.
const faultTooMany = "too many holders"

// maxHeld bounds the accounts that a ledger has in memory while it is summed up; topics.MaxHolders those that have some in
// the end.
const maxHeld = 1 << 20

// ledger sums up the transfers of a token.
type ledger struct {
	decoder *contracts.Decoder
	token   common.Address
	first   *topics.Log   // the first transfer of an amount above zero
	header  follow.Header // of its block
	origin  common.Hash   // the transaction that wrote it
	supply  uint256.Int
	held    held
	fault   string // nothing else is valid then
}

// add applies a log of the token in a block, as the processors apply those that follow.
func (l *ledger) add(log *topics.Log, in *follow.Header) {
	switch e := l.decoder.Decode(log.Address, log.Topics, log.Data).(type) {
	case *contracts.TransferMalformed:
		l.fault = contracts.FaultMalformed
	case *contracts.TokenTransferred:
		if l.first == nil && !e.Amount.IsZero() {
			l.first, l.header = &topics.Log{TxIndex: log.TxIndex, LogIndex: log.LogIndex}, *in // not what it is a part of
		}
		l.fault, _ = e.Move(&l.supply, l.held) // memory does not fail
		if l.fault == "" && len(l.held) > maxHeld {
			l.fault = faultTooMany
		}
	}
}

// end is called after the last log.
func (l *ledger) end() {
	if l.fault == "" && len(l.held) > topics.MaxHolders {
		l.fault = faultTooMany
	}
}

// counts reports whether a log moves anything. Anybody can have a transfer of nothing written.
func (l *ledger) counts(log *topics.Log) bool {
	e, ok := l.decoder.Decode(log.Address, log.Topics, log.Data).(*contracts.TokenTransferred)
	return ok && !e.Amount.IsZero()
}

// held is who holds how much. None is zero.
type held map[common.Address]uint256.Int

func (h held) Held(account common.Address) (uint256.Int, error) { return h[account], nil }

func (h held) SetHeld(account common.Address, _, amount *uint256.Int) error {
	if amount.IsZero() {
		delete(h, account)
	} else {
		h[account] = *amount
	}
	return nil
}

// parts are the records of the ledger as of a block.
func (l *ledger) parts(at topics.BlockRef) []*topics.Ledger {
	accounts := slices.SortedFunc(maps.Keys(l.held), func(a, b common.Address) int { return bytes.Compare(a[:], b[:]) })
	if l.fault != "" || len(accounts) == 0 {
		return []*topics.Ledger{{Block: at, Token: l.token, Parts: 1, First: l.origin, Fault: l.fault}}
	}
	var all []*topics.Ledger
	for some := range slices.Chunk(accounts, topics.MaxShares) {
		part := &topics.Ledger{Block: at, Token: l.token, Part: uint32(len(all)), First: l.origin}
		for _, account := range some {
			part.Shares = append(part.Shares, topics.Share{Account: account, Amount: l.held[account]})
		}
		all = append(all, part)
	}
	for _, part := range all {
		part.Parts = uint32(len(all))
	}
	return all
}

// ledger reads a token's history from its creation up to and with a block, and sums it up. Its logs are fetched and
// proved as those of any history are, and its blocks link from one before the creation to the given one. It returns
// rpc.ErrGone where the chain has changed.
func (in *Ingester) ledger(ctx context.Context, token common.Address, at topics.BlockRef, settled uint64) ([]*topics.Ledger, error) {
	from, parent, err := in.begin(ctx, token, at.Number)
	if err != nil {
		return nil, err
	}
	l := &ledger{decoder: in.decoder, token: token, held: held{}}
	h := in.history(token, from, at.Number, settled)
	for h.next <= h.to { // after a fault too: what is published is of a history that is pinned at both ends
		blocks, err := h.read(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the history of token %s: %w", token, err)
		}
		for i := range blocks {
			for _, item := range blocks[i].Logs {
				if l.fault == "" {
					l.add(item.(*topics.Log), &blocks[i].Header)
				}
			}
		}
	}
	if from > 0 && h.parent != parent || h.last.Hash != at.Hash {
		return nil, fmt.Errorf("history of token %s from block %d ends at block %s, not %s: %w", token, from, h.last.Hash, at.Hash, rpc.ErrGone)
	}
	if l.end(); l.fault != "" {
		in.metrics.faulted.WithLabelValues(l.fault).Inc()
		in.log.Warn("the holders of a token stay unknown", zap.Stringer("token", token), zap.String("fault", l.fault), zap.Int("holders", len(l.held)))
	}
	if l.first != nil && l.fault == "" {
		if l.origin, err = h.client.Origin(ctx, &l.header, l.first, l.counts); err != nil {
			return nil, fmt.Errorf("find the origin of token %s: %w", token, err)
		}
	}
	return l.parts(at), nil
}

// begin is where the history of a token that exists at a block begins: the first block to read, and the parent that it has
// to have. It was found by number, and is confirmed by the hash of that parent. If any endpoint says that the token existed
// there, all of the chain is read. That takes long, but nobody can keep a token from joining by saying so.
func (in *Ingester) begin(ctx context.Context, token common.Address, upTo uint64) (from uint64, parent common.Hash, err error) {
	if from, err = in.client.Created(ctx, token, upTo); err != nil || from == 0 {
		return 0, common.Hash{}, err
	}
	first, err := in.client.Vote(ctx, from, false)
	if err != nil {
		return 0, common.Hash{}, fmt.Errorf("find the beginning of token %s: %w", token, err)
	}
	parent = first.Parent
	before, err := in.client.Existed(ctx, parent, []common.Address{token})
	if err != nil {
		return 0, common.Hash{}, err
	}
	if len(before) > 0 {
		in.log.Warn("an endpoint has code of a token before its creation: reading the whole chain", zap.Stringer("token", token), zap.Uint64("block", from))
		return 0, common.Hash{}, nil
	}
	return from, parent, nil
}
