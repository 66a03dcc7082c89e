package rpc

import (
	"bytes"
	"context"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/trie"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

const (
	// maxTransactions bounds the transactions of a block that are fetched to prove one: as many take 1.4 billion gas.
	maxTransactions = 1 << 16
	// firstListByte begins an RLP list: a transaction of the first type, which has no type byte.
	firstListByte = 0xc0
)

// rawTransactions are a block's transactions as they were signed. It implements types.DerivableList: a transaction of any type is
// hashed as it was signed.
type rawTransactions [][]byte

func (r rawTransactions) Len() int                           { return len(r) }
func (r rawTransactions) EncodeIndex(i int, w *bytes.Buffer) { w.Write(r[i]) }

// hashes returns the transactions' hashes, if their root is the header's.
func (r rawTransactions) hashes(h *follow.Header) ([]common.Hash, error) {
	if root := types.DeriveSha(r, trie.NewStackTrie(nil)); root != h.Transactions {
		return nil, lied(lieRoot, "transactions of block %d have root %s, the header %s", h.Number, root, h.Transactions)
	}
	all := make([]common.Hash, len(r))
	for i := range r {
		all[i] = crypto.Keccak256Hash(r[i])
	}
	return all, nil
}

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
func blockCall(h *follow.Header, raw *rawTransactions) call {
	return call{
		method: "eth_getBlockByHash", params: append(appendHex([]byte{'['}, h.Hash[:]), ",true]"...),
		result: func(s *scanner) (err error) {
			*raw, err = decodeSigned(s)
			return err
		},
	}
}

// blocks fetches the transactions of blocks in one request, as the endpoint describes them, encoded as they were signed; nil: of a
// block there are more than it returns at once. An empty one is not known by its type, or not as this chain has it.
func (e *endpoint) blocks(ctx context.Context, headers []follow.Header) ([]rawTransactions, error) {
	raw, calls := make([]rawTransactions, len(headers)), make([]call, len(headers))
	for i := range headers {
		calls[i] = blockCall(&headers[i], &raw[i])
	}
	err := e.do(ctx, calls)
	if err != nil && classify(err) == classRange {
		err = nil
		for i := range headers {
			if raw[i] == nil && len(headers) > 1 && err == nil {
				var one []rawTransactions
				if one, err = e.blocks(ctx, headers[i:i+1]); err == nil {
					raw[i] = one[0]
				}
			}
		}
	}
	return raw, err
}

// hashes returns the hashes of a block's transactions, which its header's root proves. n is how many there are, as the receipts prove: so
// many at most are fetched as they were signed, where their types need it or the endpoint does not return them all at once.
func (e *endpoint) hashes(ctx context.Context, h *follow.Header, raw rawTransactions, n int) ([]common.Hash, error) {
	var others []int
	known := true
	switch {
	case raw == nil:
		raw, known = make(rawTransactions, n), n == 0
		for i := range raw {
			others = append(others, i)
		}
	case len(raw) != n:
		return nil, lied(lieRoot, "block %d has %d transactions and %d receipts", h.Number, len(raw), n)
	default:
		for i := range raw {
			if len(raw[i]) == 0 || raw[i][0] > types.SetCodeTxType && raw[i][0] < firstListByte {
				others = append(others, i)
				known = known && len(raw[i]) > 0
			}
		}
	}
	if known {
		hashes, err := raw.hashes(h)
		if err == nil || len(others) == 0 {
			return hashes, err
		}
	}
	if err := e.asSigned(ctx, h, raw, others); err != nil {
		return nil, err
	}
	return raw.hashes(h)
}

// asSigned fetches transactions of a block as they were signed, those of these indices.
func (e *endpoint) asSigned(ctx context.Context, h *follow.Header, raw rawTransactions, indices []int) error {
	calls, size := make([]call, len(indices)), 0
	for k, i := range indices {
		raw[i] = nil
		p := append(appendHex([]byte{'['}, h.Hash[:]), ',')
		calls[k] = call{
			method: "eth_getRawTransactionByBlockHashAndIndex", params: append(appendQuantity(p, uint64(i)), ']'),
			result: func(s *scanner) error {
				v, err := s.digits()
				if err != nil {
					return err
				}
				if size += len(v)/2 - len(raw[i]); len(v) == 0 || size > e.client.cfg.MaxBody {
					return fmt.Errorf("transaction %d of block %d: %w", i, h.Number, errTooBig)
				}
				raw[i] = make([]byte, len(v)/2)
				return unhex(raw[i], v)
			},
		}
	}
	return e.do(ctx, calls)
}
