package rpc

import (
	"bytes"
	"context"
	"fmt"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/ingest/follow"
)

// receiptsEach fetches the receipts of a block one by one, as many in one request as the endpoint returns, and decodes them in their
// order. What the endpoint says of which transactions these are shows in the root.
func (e *endpoint) receiptsEach(ctx context.Context, h *follow.Header, r *receipts) error {
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
	if err := e.do(ctx, calls); err != nil {
		return err
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
