package ingest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/topics"
)

// faultTooMany is why the balances of a token cannot be had here; package contracts has the other reasons.
const faultTooMany = "too many holders"

// maxHolders bounds the holders of a ledger: it is in memory as a whole, and part of one block.
const maxHolders = 1 << 20

// ledger sums up the transfers of a token.
type ledger struct {
	decoder *contracts.Decoder
	token   common.Address
	first   common.Hash
	supply  uint256.Int
	held    held
	fault   string // nothing else is valid then
}

// add applies a log of the token, as the processors apply those that follow.
func (l *ledger) add(log *topics.Log) {
	switch e := l.decoder.Decode(log.Address, log.Topics, log.Data).(type) {
	case *contracts.TransferMalformed:
		l.fault = contracts.FaultMalformed
	case *contracts.TokenTransferred:
		if l.first == (common.Hash{}) {
			l.first = log.TxHash
		}
		l.fault, _ = e.Move(&l.supply, l.held) // memory does not fail
		if l.fault == "" && len(l.held) > maxHolders {
			l.fault = faultTooMany
		}
	}
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
		return []*topics.Ledger{{Block: at, Token: l.token, Parts: 1, First: l.first, Fault: l.fault}}
	}
	var all []*topics.Ledger
	for some := range slices.Chunk(accounts, topics.MaxShares) {
		part := &topics.Ledger{Block: at, Token: l.token, Part: uint32(len(all)), First: l.first}
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
	from, err := in.client.Created(ctx, token, at.Number)
	if err != nil {
		return nil, err
	}
	l := &ledger{decoder: in.decoder, token: token, held: held{}}
	h := history{in: in, client: in.client.Only(token), next: from, to: at.Number, settled: settled, size: firstRange}
	for h.next <= h.to { // after a fault too: what is published is of a history that is pinned at both ends
		blocks, err := h.read(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the history of token %s: %w", token, err)
		}
		for i := range blocks {
			for _, item := range blocks[i].Logs {
				if l.fault == "" {
					l.add(item.(*topics.Log))
				}
			}
		}
	}
	if h.last.Hash != at.Hash {
		return nil, fmt.Errorf("history of token %s ends at block %s, not %s: %w", token, h.last.Hash, at.Hash, rpc.ErrGone)
	}
	if from == 0 {
		return l.parts(at), nil
	}
	before, err := in.client.Existed(ctx, h.parent, []common.Address{token}) // by hash, where Created asked by number
	if err == nil && len(before) > 0 {
		err = fmt.Errorf("token %s existed before block %d: %w", token, from, rpc.ErrGone)
	}
	return l.parts(at), err
}

// history reads the blocks with the logs of one contract, in order, several ranges at a time.
type history struct {
	in       *Ingester
	client   *rpc.Client
	next, to uint64
	settled  uint64
	size     uint64
	parent   common.Hash // of the first block
	last     topics.BlockRef
}

// read returns the next blocks.
func (h *history) read(ctx context.Context) ([]follow.Block, error) {
	var fetches []follow.Fetch
	begin := h.next
	for len(fetches) < h.in.cfg.Ranges*len(h.in.cfg.RPC.Endpoints) && h.next <= h.to {
		f := follow.Fetch{Kind: follow.Range, From: h.next, To: min(h.to, h.next+min(h.size, h.in.cfg.RangeBlocks)-1)}
		if h.in.cfg.RPC.Proof == rpc.ProofSparse && h.next < h.settled {
			f.Kind, f.To = follow.Sparse, min(h.to, h.settled, h.next+min(h.size, h.in.cfg.SparseBlocks)-1)
		}
		fetches = append(fetches, f)
		h.next = f.To + 1
	}
	got := make([][]follow.Block, len(fetches))
	g, ctx := errgroup.WithContext(ctx)
	for i, f := range fetches {
		g.Go(func() (err error) {
			got[i], err = h.in.fetch(ctx, h.client, f, h.settled)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	records := 0
	for i := range got {
		first, last := &got[i][0], &got[i][len(got[i])-1]
		switch {
		case h.last.Hash == (common.Hash{}):
			h.parent = first.Parent
		case first.Parent != h.last.Hash:
			return nil, fmt.Errorf("block %d does not link to the range before it: %w", first.Number, rpc.ErrGone)
		}
		h.last = last.BlockRef
		for k := range got[i] {
			records += len(got[i][k].Logs)
		}
	}
	h.size = h.in.cfg.rangeSize(h.size, h.next-begin, records)
	return slices.Concat(got...), nil
}
