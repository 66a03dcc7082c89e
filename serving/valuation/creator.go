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
	// retryAfter is the pause after a read of the chain whose result no node had.
	retryAfter = time.Minute
)

// creation is the transaction of a token's first transfer, and its signer.
type creation struct {
	tx    common.Hash
	from  common.Address // the signer; zero: no node returned the transaction
	until time.Time      // if from is zero: when to ask again
}

// creationOf is a token's creation, if it was read before.
func (c *chainReader) creationOf(token common.Address) creation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.creations[token]
}

// keep stores a token's creation. If there are too many, it replaces that of any other token.
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

// creator is the signer of the transaction of a token's first transfer, which minted it. The ingester has proved the
// transaction's hash, and the hash proves the signature, so no node needs to be trusted. Zero: unknown, because no such
// hash was proved, or no node that was asked lately has such a transaction of this chain.
func (c *chainReader) creator(ctx context.Context, token common.Address, first common.Hash, now time.Time) (common.Address, error) {
	if first == (common.Hash{}) {
		return common.Address{}, nil
	}
	if known := c.creationOf(token); known.tx == first && (known.from != (common.Address{}) || now.Before(known.until)) {
		return known.from, nil
	}
	ctx, cancel := context.WithTimeout(chain.WithOtherNode(ctx), c.cfg.ReadTimeout)
	defer cancel()
	known := creation{tx: first, until: now.Add(retryAfter)}
	for range 2 { // two nodes, if there are two
		c.metrics.fees.Inc()
		var err error
		if known.from, err = c.signer(ctx, first); err != nil {
			return common.Address{}, fmt.Errorf("read the creation of token %s: %w", token, err)
		}
		if known.from != (common.Address{}) {
			break
		}
	}
	c.keep(token, known)
	return known.from, nil
}

// signer fetches a transaction of this chain by its hash and returns its signer. Zero: the node lacks the transaction.
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

// signerOf is the signer of a node's transaction. Zero: it has another hash or chain, or no valid signature.
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
