package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/trie"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// maxTransactions bounds the decoded transactions of a block: as many take 1.4 billion gas.
const maxTransactions = 1 << 16

// classicType is the type of Arbitrum's transactions before Nitro, whose hash is not that of their bytes.
const classicType = 0x78

// errUnsigned: the endpoint does not have a block's transactions in signed form. It may be honest: nodes describe
// transactions in different ways, and strangers choose what is in a block.
var errUnsigned = errors.New("endpoint lacks the transactions of the block in signed form")

// errSpared: the endpoint was not asked, because of the cost.
var errSpared = fmt.Errorf("%w (not asked)", errUnsigned)

// rawTransactions are a block's transactions in signed form. It implements types.DerivableList: a transaction of any
// type is hashed in that form.
type rawTransactions [][]byte

func (r rawTransactions) Len() int                           { return len(r) }
func (r rawTransactions) EncodeIndex(i int, w *bytes.Buffer) { w.Write(r[i]) }

// namedTransaction is the transaction of a log, according to receipts.
type namedTransaction struct {
	at   uint32
	hash common.Hash
}

// appendNamed appends the transactions of logs.
func appendNamed(all []namedTransaction, logs []topics.Log) []namedTransaction {
	for i := range logs {
		if n := (namedTransaction{logs[i].TxIndex, logs[i].TxHash}); len(all) == 0 || all[len(all)-1] != n {
			all = append(all, n)
		}
	}
	return all
}

// same checks the transactions of logs against the hashes of the block's transactions.
func same(h *follow.Header, named []namedTransaction, hashes []common.Hash) error {
	for _, n := range named {
		if int(n.at) >= len(hashes) || n.hash != hashes[n.at] {
			return lied(lieHash, "transaction %d of block %d is not %s", n.at, h.Number, n.hash)
		}
	}
	return nil
}

// blockCall fetches the transactions of a block into `into`.
func blockCall(h *follow.Header, into **described) call {
	return call{
		method: "eth_getBlockByHash", params: append(appendHex([]byte{'['}, h.Hash[:]), ",true]"...),
		result: func(s *scanner) (err error) {
			was := *s
			if *into, err = decodeDescribed(s); err != nil {
				*into, *s = nil, was
				return s.skip()
			}
			return nil
		},
		failed: func(answer *Error) bool {
			switch answer.class() {
			case classRange, classBatch, classRate:
				return false
			default:
				return true
			}
		},
	}
}

// blocks fetches the transactions of blocks in one request, as the endpoint describes them. nil: it does not, or they
// are too large for one response.
func (e *endpoint) blocks(ctx context.Context, headers []follow.Header) ([]*described, error) {
	all, calls := make([]*described, len(headers)), make([]call, len(headers))
	for i := range headers {
		calls[i] = blockCall(&headers[i], &all[i])
	}
	err := e.do(ctx, calls)
	if err != nil && classify(err) == classRange {
		err = nil
		for i := range headers {
			if all[i] == nil && len(headers) > 1 && err == nil {
				var one []*described
				if one, err = e.blocks(ctx, headers[i:i+1]); err == nil {
					all[i] = one[0]
				}
			}
		}
	}
	return all, err
}

// hashes returns the hashes of a block's transactions, proved by its header's root. n is their number, as the receipts
// prove. Transactions that the description does not reproduce are fetched in signed form, as mayFetch allows. Only
// signed transactions with another root are a lie. disputed: endpoints name different ones.
func (e *endpoint) hashes(ctx context.Context, h *follow.Header, d *described, n int, disputed bool) ([]common.Hash, error) {
	if d == nil {
		d = &described{make(rawTransactions, n), make([]common.Hash, n)}
	}
	if len(d.raw) != n {
		return nil, lied(lieRoot, "block %d has %d transactions and %d receipts", h.Number, len(d.raw), n)
	}
	var others []int
	for i, raw := range d.raw {
		if raw == nil {
			others = append(others, i)
		}
	}
	if len(others) > 0 {
		if err := e.mayFetch(h, len(others), disputed); err != nil {
			return nil, err
		}
		if err := e.asSigned(ctx, h, d, others); err != nil {
			return nil, err
		}
	}
	for _, i := range others {
		if d.raw[i][0] == classicType {
			return nil, fmt.Errorf("%w: transaction %d of block %d is of type %#x", errUnsigned, i, h.Number, classicType)
		}
	}
	if root := types.DeriveSha(d.raw, trie.NewStackTrie(nil)); root != h.Transactions {
		err := fmt.Errorf("transactions of block %d have root %s, the header %s", h.Number, root, h.Transactions)
		return nil, &lie{kind: lieRoot, err: err, calls: len(others)}
	}
	for _, i := range others {
		d.hashes[i] = crypto.Keccak256Hash(d.raw[i])
	}
	return d.hashes, nil
}
