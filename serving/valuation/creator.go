package valuation

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/serving/chain"
)

const (
	// maxCreations bounds the tokens whose creation is kept.
	maxCreations = 4096
	// askAgainAfter is how long it is not asked again who created a token, where no node said so.
	askAgainAfter = time.Minute
)

// creation is the transaction of a token's first transfer, and who signed it.
type creation struct {
	tx    common.Hash
	from  common.Address // zero: no node has a transaction that says so
	until time.Time      // it is asked again then, if from is zero
}

// creationOf is a token's creation, if it was asked for before.
func (c *chainReader) creationOf(token common.Address) creation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.creations[token]
}

// keep keeps a token's creation, in place of another token's where there are too many.
func (c *chainReader) keep(token common.Address, known creation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.creations == nil {
		c.creations = map[common.Address]creation{}
	}
	if _, again := c.creations[token]; !again && len(c.creations) >= maxCreations {
		for other := range c.creations {
			delete(c.creations, other)
			break
		}
	}
	c.creations[token] = known
}

// creator is who signed the transaction of a token's first transfer, which minted it. The ingester has proved its hash
// beside the token's ledger, and the hash proves the signature, whatever a node says. Zero: unknown, because no such hash was
// proved, or no node that was asked lately has a transaction of this chain with it.
func (c *chainReader) creator(ctx context.Context, token common.Address, first common.Hash, now time.Time) (common.Address, error) {
	if first == (common.Hash{}) {
		return common.Address{}, nil
	}
	if known := c.creationOf(token); known.tx == first && (known.from != (common.Address{}) || now.Before(known.until)) {
		return known.from, nil
	}
	ctx, cancel := context.WithTimeout(chain.Apart(ctx), c.cfg.ReadTimeout)
	defer cancel()
	known := creation{tx: first, until: now.Add(askAgainAfter)}
	for range 2 { // of two nodes, where there are two
		c.metrics.fees.Inc()
		var err error
		if known.from, err = c.signer(ctx, first); err != nil {
			return common.Address{}, fmt.Errorf("ask who created token %s: %w", token, err)
		}
		if known.from != (common.Address{}) {
			break
		}
	}
	c.keep(token, known)
	return known.from, nil
}

// signer asks for a transaction of this chain by its hash, and is who signed it. Zero: the node has none.
func (c *chainReader) signer(ctx context.Context, hash common.Hash) (common.Address, error) {
	var raw json.RawMessage
	sent := &chain.Request{Method: "eth_getTransactionByHash", Params: []any{hash}, Result: &raw}
	if err := c.client.Batch(ctx, sent); err != nil {
		return common.Address{}, err
	}
	if sent.Err != nil {
		return common.Address{}, nil //nolint:nilerr // the node has none
	}
	return signerOf(raw, hash, new(big.Int).SetUint64(c.cfg.Deployment.ChainID)), nil
}

// signerOf is who signed a transaction of a chain, as a node has it. Zero: it is another one, or nobody did.
func signerOf(raw json.RawMessage, hash common.Hash, chainID *big.Int) common.Address {
	var tx types.Transaction
	if len(raw) == 0 || json.Unmarshal(raw, &tx) != nil {
		return common.Address{}
	}
	from, err := types.Sender(types.LatestSignerForChainID(chainID), &tx)
	if err != nil || tx.Hash() != hash || tx.ChainId().Cmp(chainID) != 0 {
		return common.Address{}
	}
	return from
}
