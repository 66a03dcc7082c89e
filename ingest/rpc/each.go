package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/ingest/follow"
)

// A node that says that receipts are too big has as many calls made as it says that there are transactions. So these are bounded by the gas that the
// header proves, and calls that no proof followed are worth a pause: whatever a node says, there are eachRate of them a second in the long run.
const (
	eachGas  = 21_000 // of a transaction, at least
	eachFree = 64     // transactions of a block that perhaps take none: a chain's own
	eachRate = 2
)

// errPaused: receipts are not asked for one by one for a while, because last time they were not the block's.
var errPaused = errors.New("receipts are not asked for one by one again yet")

// receiptsEach fetches the receipts of a block one by one, as many in one request as the endpoint returns, and decodes them in their
// order. What the endpoint says of which transactions these are shows in the root.
func (e *endpoint) receiptsEach(ctx context.Context, h *follow.Header, r *receipts) error {
	e.mu.Lock()
	until := e.eachAfter
	e.mu.Unlock()
	if time.Now().Before(until) {
		return fmt.Errorf("receipts of block %d: %w: %w", h.Number, errPaused, errTooBig)
	}
	asked := 20 // so that answers of other kinds are paid for, too
	err := e.fetchEach(ctx, h, r, &asked)
	if root := r.root(); err == nil && root != h.Receipts {
		err = lied("receipts_root", "receipts of block %d have root %s, the header %s", h.Number, root, h.Receipts)
	}
	if err != nil && ctx.Err() == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.eachAfter = time.Now().Add(time.Duration(asked) * time.Second / eachRate)
	}
	return err
}

// fetchEach counts the receipts that are asked for.
func (e *endpoint) fetchEach(ctx context.Context, h *follow.Header, r *receipts, asked *int) error {
	var hashes []common.Hash
	err := e.do(ctx, []call{{
		method: "eth_getBlockByHash", params: append(appendHex([]byte{'['}, h.Hash[:]), ",false]"...),
		result: func(s *scanner) (err error) {
			hashes, err = decodeTransactions(s)
			return err
		},
	}})
	if err != nil {
		return err
	}
	if most := eachFree + h.GasUsed/eachGas; uint64(len(hashes)) > most {
		return lied(lieRoot, "block %d has %d transactions, and gas for %d", h.Number, len(hashes), most)
	}
	calls, each, size := make([]call, len(hashes)), make([][]byte, len(hashes)), 0
	for i := range hashes {
		calls[i] = call{
			method: "eth_getTransactionReceipt", params: append(appendHex([]byte{'['}, hashes[i][:]), ']'),
			result: func(s *scanner) error { // in any order
				if s.null() {
					return errNoBlock
				}
				raw, err := s.raw()
				if err != nil {
					return err
				}
				if size += len(raw) - len(each[i]); size > e.client.cfg.MaxBody {
					return fmt.Errorf("receipts of block %d: %w", h.Number, errTooBig)
				}
				each[i] = bytes.Clone(raw)
				return nil
			},
		}
	}
	for part := range slices.Chunk(calls, e.client.cfg.MaxBatch) {
		*asked += len(part)
		if err := e.do(ctx, part); err != nil {
			return err
		}
	}
	r.reset()
	for i, raw := range each {
		if err := r.one(&scanner{b: raw}); err != nil {
			return malformedReply(fmt.Errorf("receipt %d: %w", i, err))
		}
	}
	return nil
}

// decodeTransactions decodes the hashes of a block's transactions.
func decodeTransactions(s *scanner) (hashes []common.Hash, err error) {
	if s.null() {
		return nil, errNoBlock
	}
	err = s.field("block", "transactions", func() error {
		hashes = nil
		return s.list("transactions", maxTransactions, func() error {
			hashes = append(hashes, common.Hash{})
			return s.fixed(hashes[len(hashes)-1][:])
		})
	})
	return hashes, err
}
