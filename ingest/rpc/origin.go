package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/trie"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// maxTransactions bounds the transactions of a block that are fetched to prove one: as many take 1.4 billion gas.
const maxTransactions = 1 << 16

// unableTries is how often each endpoint may answer with an error of its own before a transaction counts as one that cannot be
// proved. Who does not answer, or asks for fewer requests, says nothing of what it can: the caller's time bounds that.
const unableTries = 8

// Origin returns the hash of the transaction that wrote a log, the first of the wanted ones of its block that counts. No
// receipt proves it: all transactions of the block are fetched as they were signed, and hash to the transactions root of its
// header. Where no endpoint has them like that, all are asked, and must agree: at least two, or with ProofOff one. Zero:
// they do not. ErrGone: the block's receipts have another such log.
func (c *Client) Origin(ctx context.Context, h *follow.Header, log *topics.Log, counts func(*topics.Log) bool) (common.Hash, error) {
	if c.cfg.Proof == ProofOff {
		return c.agreed(ctx, h, log.TxIndex)
	}
	logs, err := c.proved(ctx, []follow.Header{*h})
	if err != nil {
		return common.Hash{}, err
	}
	first := slices.IndexFunc(logs, func(l topics.Log) bool { return counts(&l) })
	if first < 0 || logs[first].LogIndex != log.LogIndex {
		return common.Hash{}, fmt.Errorf("log %d of block %d is not the first in its receipts: %w", log.LogIndex, h.Number, ErrGone)
	}
	hash, err := c.signed(ctx, h, logs[first].TxIndex)
	if err != nil || hash != (common.Hash{}) {
		return hash, err
	}
	return c.agreed(ctx, h, logs[first].TxIndex)
}

// signed returns the proved hash of a transaction; zero: no endpoint has what proves it.
func (c *Client) signed(ctx context.Context, h *follow.Header, at uint32) (hash common.Hash, err error) {
	tries, unable := 0, map[*endpoint]bool{}
	err = c.try(ctx, choice{block: h.Number}, func(ctx context.Context, e *endpoint) (err error) {
		if hash, err = e.signed(ctx, h, at); err == nil {
			return nil
		}
		switch classify(err) {
		case classLie, classGone:
			return err
		case classMethod, classState:
			unable[e] = true
		case classRate:
		default:
			if _, away := errors.AsType[net.Error](err); !away {
				tries++
			}
		}
		if len(unable) == len(c.endpoints) || tries >= unableTries*len(c.endpoints) {
			return ctx.Err()
		}
		return err
	})
	if err != nil {
		return common.Hash{}, fmt.Errorf("prove transaction %d of block %d: %w", at, h.Number, err)
	}
	return hash, nil
}

// signed fetches all transactions of a block as they were signed, and returns the hash of one.
func (e *endpoint) signed(ctx context.Context, h *follow.Header, at uint32) (common.Hash, error) {
	var n uint64
	err := e.do(ctx, []call{{
		method: "eth_getBlockTransactionCountByHash", params: append(appendHex([]byte{'['}, h.Hash[:]), ']'),
		result: func(s *scanner) (err error) {
			if s.null() {
				return errNoBlock
			}
			n, err = s.quantity(64)
			return err
		},
	}})
	if err != nil {
		return common.Hash{}, err
	}
	if n <= uint64(at) || n > maxTransactions {
		return common.Hash{}, lied("transactions_root", "block %d has %d transactions, and one at index %d", h.Number, n, at)
	}
	raw, size := make(rawTransactions, n), 0
	calls := make([]call, n)
	for i := range calls {
		p := append(appendHex([]byte{'['}, h.Hash[:]), ',')
		calls[i] = call{
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
	if err := e.do(ctx, calls); err != nil {
		return common.Hash{}, err
	}
	if root := types.DeriveSha(raw, trie.NewStackTrie(nil)); root != h.Transactions {
		return common.Hash{}, lied("transactions_root", "transactions of block %d have root %s, the header %s", h.Number, root, h.Transactions)
	}
	return crypto.Keccak256Hash(raw[at]), nil
}

// rawTransactions implements types.DerivableList: a transaction of any type is hashed as it was signed.
type rawTransactions [][]byte

func (r rawTransactions) Len() int                           { return len(r) }
func (r rawTransactions) EncodeIndex(i int, w *bytes.Buffer) { w.Write(r[i]) }

// agreed returns the hash of a transaction that all endpoints name; zero: they do not.
func (c *Client) agreed(ctx context.Context, h *follow.Header, at uint32) (common.Hash, error) {
	said := map[*endpoint]common.Hash{}
	err := c.try(ctx, choice{block: h.Number}, func(ctx context.Context, e *endpoint) error {
		first, err := e.named(ctx, h, at)
		if class := classify(err); err != nil && (class == classMethod || class == classState) {
			return ctx.Err() // one is silent: not all agree
		} else if err != nil {
			return err
		}
		said[e] = first
		c.others(ctx, e, func(ctx context.Context, o *endpoint, mu *sync.Mutex) error {
			hash, err := o.named(ctx, h, at)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				said[o] = hash
			}
			return err
		})
		return ctx.Err()
	})
	if err != nil {
		return common.Hash{}, fmt.Errorf("ask for transaction %d of block %d: %w", at, h.Number, err)
	}
	distinct := map[common.Hash]bool{}
	var one common.Hash
	for _, one = range said {
		distinct[one] = true
	}
	if len(distinct) == 1 && len(said) == len(c.endpoints) && (len(said) > 1 || c.cfg.Proof == ProofOff) {
		return one, nil
	}
	c.log.Warn("a transaction cannot be proved: no endpoint has eth_getRawTransactionByBlockHashAndIndex, and not all agree",
		zap.Uint64("block", h.Number), zap.Uint32("index", at), zap.Int("endpoints", len(c.endpoints)), zap.Int("answers", len(said)), zap.Int("hashes", len(distinct)))
	return common.Hash{}, nil
}

// named is what an endpoint says is the hash of a transaction.
func (e *endpoint) named(ctx context.Context, h *follow.Header, at uint32) (hash common.Hash, err error) {
	p := append(appendHex([]byte{'['}, h.Hash[:]), ',')
	return hash, e.do(ctx, []call{{
		method: "eth_getTransactionByBlockHashAndIndex", params: append(appendQuantity(p, uint64(at)), ']'),
		result: func(s *scanner) (err error) {
			hash, err = decodeTransaction(s)
			return err
		},
	}})
}

// decodeTransaction decodes the hash of a transaction.
func decodeTransaction(s *scanner) (common.Hash, error) {
	if s.null() {
		return common.Hash{}, errNoBlock
	}
	raw, err := s.raw()
	if err != nil {
		return common.Hash{}, err
	}
	var tx struct{ Hash common.Hash }
	if err := json.Unmarshal(raw, &tx); err != nil {
		return common.Hash{}, fmt.Errorf("transaction: %w", err)
	}
	return tx.Hash, nil
}
