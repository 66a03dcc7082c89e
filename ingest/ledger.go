package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/topics"
)

// Reasons why the balances of a token are unknown; package contracts has the others.
const (
	faultTooMany = "too many holders"
	faultAtOnce  = "too many holders of tokens that join at once"
	faultAgain   = "its history was not the same when it was read again"
)

// ledger sums up the transfers of a token.
type ledger struct {
	decoder *contracts.Decoder
	token   common.Address
	first   *first      // transfer of an amount above zero
	origin  common.Hash // the transaction that wrote it
	supply  uint256.Int
	held    held
	fault   string // if set, nothing else is valid
}

// add applies a log of the token in a block, as the processors apply those that follow.
func (l *ledger) add(log *topics.Log, in *follow.Header) {
	switch e := l.decoder.Decode(log.Address, log.Topics, log.Data).(type) {
	case *contracts.TransferMalformed:
		l.fault = contracts.FaultMalformed
	case *contracts.TokenTransferred:
		l.begins(log, in)
		l.fault, _ = e.Move(&l.supply, l.held) // memory does not fail
		if l.fault == "" && len(l.held) > topics.MaxHolders {
			l.fault = faultTooMany
		}
	}
}

// begins records the first log that moves an amount.
func (l *ledger) begins(log *topics.Log, in *follow.Header) {
	if l.first == nil && l.counts(log) {
		l.first = &first{log: &topics.Log{TxIndex: log.TxIndex, LogIndex: log.LogIndex}, header: *in}
	}
}

// counts reports whether a log moves an amount above zero. Anyone can emit transfers of nothing.
func (l *ledger) counts(log *topics.Log) bool {
	e, ok := l.decoder.Decode(log.Address, log.Topics, log.Data).(*contracts.TokenTransferred)
	return ok && !e.Amount.IsZero()
}

// held is the balance of each account. None is zero.
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

// parts are the records of the ledger as of a block, with equal numbers of shares, but for the last. parts is how
// many; 0: as many as needed for at most size shares in each. The balances are released.
func (l *ledger) parts(at topics.BlockRef, parts, size int) []*topics.Ledger {
	if l.fault != "" || len(l.held) == 0 {
		return []*topics.Ledger{l.part(at)}
	}
	shares := make([]topics.Share, 0, len(l.held))
	for account, amount := range l.held {
		shares = append(shares, topics.Share{Account: account, Amount: amount})
	}
	l.held = nil
	slices.SortFunc(shares, func(a, b topics.Share) int { return a.Account.Cmp(b.Account) })
	if parts == 0 {
		parts = ceil(len(shares), size)
	}
	all := make([]*topics.Ledger, 0, parts)
	for some := range slices.Chunk(shares, ceil(len(shares), parts)) {
		part := l.part(at)
		part.Part, part.Shares = uint32(len(all)), some
		all = append(all, part)
	}
	if len(all) > 1 {
		for _, part := range all {
			part.Parts, part.Since = uint32(len(all)), at.Number
		}
	}
	return all
}

func ceil(n, by int) int { return (n + by - 1) / by }

func (l *ledger) part(at topics.BlockRef) *topics.Ledger {
	return &topics.Ledger{Block: at, Token: l.token, Parts: 1, First: l.origin, Fault: l.fault}
}

// ledger reads a token's history from its creation up to and including a block, and sums it up. Its logs are fetched
// and proved as any history is, and its blocks link from one before the creation to the given one. It returns
// rpc.ErrGone if the chain has changed. unknown is the first transfer, if its transaction is unknown. of is the number
// of parts: see parts.
func (in *Ingester) ledger(ctx context.Context, token common.Address, at topics.BlockRef, settled uint64, of int) (parts []*topics.Ledger, unknown *first, err error) {
	from, parent, err := in.begin(ctx, token, at.Number)
	if err != nil {
		return nil, nil, err
	}
	l := &ledger{decoder: in.decoder, token: token, held: held{}}
	h := in.history(token, from, at.Number, settled)
	for h.next <= h.to { // also after a fault, which must come from a history that links at both ends
		blocks, err := h.read(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("read the history of token %s: %w", token, err)
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
		return nil, nil, fmt.Errorf("history of token %s from block %d ends at block %s, not %s: %w", token, from, h.last.Hash, at.Hash, rpc.ErrGone)
	}
	if l.fault != "" {
		in.faulted(token, l.fault, len(l.held))
	}
	if l.first != nil && l.fault == "" {
		if l.origin, err = in.originOf(ctx, h.client, l.first, l.counts); err != nil {
			return nil, nil, fmt.Errorf("find the origin of token %s: %w", token, err)
		}
		if l.origin == (common.Hash{}) {
			unknown = l.first
		}
	}
	return l.parts(at, of, in.cfg.LedgerShares), unknown, nil
}

func (in *Ingester) faulted(token common.Address, fault string, holders int) {
	in.metrics.faulted.WithLabelValues(fault).Inc()
	in.log.Warn("the holders of a token stay unknown", zap.Stringer("token", token), zap.String("fault", fault), zap.Int("holders", holders))
}

// begin finds where the history of a token begins: the first block to read, and the parent that it must have. It is
// found by number, and confirmed by the hash of that parent. If any endpoint reports that the token existed before, or
// none answers, the whole chain is read: that takes long, but no endpoint can keep a token from joining.
func (in *Ingester) begin(ctx context.Context, token common.Address, upTo uint64) (from uint64, parent common.Hash, err error) {
	if from, err = in.client.Created(ctx, token, upTo); err != nil {
		return 0, common.Hash{}, err
	}
	if from == 0 {
		in.log.Warn("no endpoint says when a token was created: reading the whole chain", zap.Stringer("token", token))
		return 0, common.Hash{}, nil
	}
	first, err := in.client.Vote(ctx, from, false)
	if err != nil {
		return 0, common.Hash{}, fmt.Errorf("find the beginning of token %s: %w", token, err)
	}
	parent = first.Parent
	proved, claimed, err := in.client.Existed(ctx, parent, []common.Address{token})
	unknown := errors.Is(err, rpc.ErrNoState)
	if errors.Is(err, rpc.ErrGone) {
		have, _ := in.client.Had(ctx, parent)
		unknown = have > 0
	}
	if unknown {
		in.log.Warn("no endpoint says whether a token has code before its creation: reading the whole chain", zap.Stringer("token", token), zap.Uint64("block", from), zap.Error(err))
		return 0, common.Hash{}, nil
	}
	if err != nil {
		return 0, common.Hash{}, err
	}
	if len(proved)+len(claimed) > 0 {
		in.log.Warn("an endpoint reports code of a token before its creation: reading the whole chain", zap.Stringer("token", token), zap.Uint64("block", from))
		return 0, common.Hash{}, nil
	}
	return from, parent, nil
}
