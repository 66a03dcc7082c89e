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

// maxTransactions bounds the transactions of a block that are decoded to prove one: as many take 1.4 billion gas.
const maxTransactions = 1 << 16

// classicType is of transactions of Arbitrum before Nitro, whose hash is not that of their bytes.
const classicType = 0x78

// errUnsigned: the endpoint does not have a block's transactions as they were signed. It may be honest: which ways to describe one there are is
// a matter of the node, and what is in a block of strangers.
var errUnsigned = errors.New("it does not have the transactions of the block as they were signed")

// errSpared: it was not asked for these, for what that costs.
var errSpared = fmt.Errorf("%w, and was not asked", errUnsigned)

// rawTransactions are a block's transactions as they were signed. It implements types.DerivableList: a transaction of any type is
// hashed as it was signed.
type rawTransactions [][]byte

func (r rawTransactions) Len() int                           { return len(r) }
func (r rawTransactions) EncodeIndex(i int, w *bytes.Buffer) { w.Write(r[i]) }

// naming is what receipts say is the transaction of a log.
type naming struct {
	at   uint32
	hash common.Hash
}

// namings appends the transactions of logs.
func namings(all []naming, logs []topics.Log) []naming {
	for i := range logs {
		if n := (naming{logs[i].TxIndex, logs[i].TxHash}); len(all) == 0 || all[len(all)-1] != n {
			all = append(all, n)
		}
	}
	return all
}

// same checks what receipts say against the hashes of a block's transactions.
func same(h *follow.Header, named []naming, hashes []common.Hash) error {
	for _, n := range named {
		if int(n.at) >= len(hashes) || n.hash != hashes[n.at] {
			return lied(lieHash, "transaction %d of block %d is not %s", n.at, h.Number, n.hash)
		}
	}
	return nil
}

// blockCall is for the transactions of a block.
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

// blocks fetches the transactions of blocks in one request, as the endpoint describes them; nil: it does not, for whatever reason, or there are more
// than it returns at once.
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

// hashes returns the hashes of a block's transactions, which its header's root proves. n is how many there are, as the receipts prove. Those that
// the endpoint does not describe as they were signed are fetched like that, as many as mayFetch allows: only what is signed and does not match is
// a lie. disputed: endpoints name different ones.
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
