// Package devchain is a chain to develop and test against: an EVM node with the market's contracts and
// the real Uniswap v4 on it, and actors who use them for ever.
//
// Only package roles imports it, for `up`: whoever reads the chain reads it through JSON-RPC, as from any other
// node, and never through a Go value of this package.
//
// The parts, each usable alone:
//
//	Chain, Anvil   two nodes behind one interface, Backend: mine these transactions at that time, rewind
//	Deploy         puts the contracts, pools, liquidity and funded actors on a Backend: a Market
//	Scenario       plays the actors on a Market, block by block, with reorgs when asked
//
// A chain made from the same seed has the same block hashes, so a failure seen once is seen again.
package devchain

import (
	"context"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
)

// Backend is a node that mines what it is told, when it is told. Its methods may not be called at the
// same time, apart from Client, HTTP and WS.
type Backend interface {
	// Mine puts a block with exactly these transactions, in this order, on the head. A transaction that
	// reverts is mined like any other; one that cannot be in a block at all (a wrong nonce, no money
	// for its gas) is an error, and nothing is mined.
	Mine(ctx context.Context, timestamp uint64, txs []*types.Transaction) (*Block, error)
	// Rewind makes the block depth below the head the head. The next Mine starts a sibling chain.
	Rewind(ctx context.Context, depth uint64) error
	// Client speaks to the node's JSON-RPC API.
	Client() *ethclient.Client
	// HTTP and WS are the addresses of the node's JSON-RPC API.
	HTTP() string
	WS() string
	// Traits says in what this node differs from others.
	Traits() Traits
}

// Traits are the differences between nodes that a scenario has to know.
type Traits struct {
	ChainID         *big.Int
	SafeBlocks      uint64 // blocks this far below the highest head are never dropped
	EqualTimestamps bool   // whether a block may have the timestamp of its parent
}

// Block is what Mine mined.
type Block struct {
	Number    uint64
	Hash      common.Hash
	Parent    common.Hash
	Timestamp uint64
	Receipts  types.Receipts // in the order of the transactions
}

// Logs are the block's logs in order.
func (b *Block) Logs() []*types.Log {
	var logs []*types.Log
	for _, r := range b.Receipts {
		logs = append(logs, r.Logs...)
	}
	return logs
}
