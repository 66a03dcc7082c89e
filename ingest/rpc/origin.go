package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// Origin returns the hash of the transaction that wrote a log, which must be the first of the wanted ones in its block
// for which counts is true. Without a proof all endpoints must agree, at least two, or with ProofOff one. Zero: they
// do not. ErrGone: the receipts have another such log.
func (c *Client) Origin(ctx context.Context, h *follow.Header, log *topics.Log, counts func(*topics.Log) bool) (common.Hash, error) {
	if c.cfg.Proof == ProofOff {
		return c.agreed(ctx, h, log.TxIndex)
	}
	a := newAttempt()
	logs, err := c.provedIn(ctx, a, []follow.Header{*h})
	if err != nil {
		return common.Hash{}, err
	}
	first := slices.IndexFunc(logs, func(l topics.Log) bool { return counts(&l) })
	if first < 0 || logs[first].LogIndex != log.LogIndex {
		return common.Hash{}, fmt.Errorf("log %d of block %d is not the first in its receipts: %w", log.LogIndex, h.Number, ErrGone)
	}
	if n := a.agreed[h.Hash]; n == 1 || n > 0 && n < len(c.endpoints) {
		return common.Hash{}, nil // nothing proves it, and not all agree
	}
	return logs[first].TxHash, nil
}

// agreed returns the hash of a transaction that all endpoints name; zero: they do not.
func (c *Client) agreed(ctx context.Context, h *follow.Header, at uint32) (common.Hash, error) {
	said := map[*endpoint]common.Hash{}
	err := c.try(ctx, choice{block: h.Number}, func(ctx context.Context, e *endpoint) error {
		first, err := e.named(ctx, h, at)
		if class := classify(err); err != nil && (class == classMethod || class == classState) {
			return ctx.Err() // no answer, so not all agree
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
	if len(distinct) == 1 && len(said) == len(c.endpoints) {
		return one, nil
	}
	c.log.Warn("endpoints do not agree on a transaction",
		zap.Uint64("block", h.Number), zap.Uint32("index", at), zap.Int("endpoints", len(c.endpoints)), zap.Int("answers", len(said)), zap.Int("hashes", len(distinct)))
	return common.Hash{}, nil
}

// named returns the hash of a transaction according to the endpoint.
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
