package devchain

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/rawdb"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/eth"
	"github.com/ethereum/go-ethereum/eth/ethconfig"
	"github.com/ethereum/go-ethereum/eth/filters"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/miner"
	"github.com/ethereum/go-ethereum/node"
	"github.com/ethereum/go-ethereum/p2p"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/rpc"
)

// nodeName is that of go-ethereum's folder.
const nodeName = "lienstream"

// What a chain on disk may use.
const (
	scratchCacheMiB = 64
	scratchFiles    = 256
	dirtyCacheMiB   = 32 // nodes of states that may still go; what is over it is written
)

// Errors of a rewind.
var (
	ErrBelowGenesis = errors.New("rewind below the genesis block")
	ErrBelowSafe    = errors.New("rewind below the safe block")
)

// Chain is go-ethereum in this process, without peers and without a consensus client: blocks are built,
// inserted and made canonical by hand, which gives chosen timestamps and contents, equal hashes from
// equal seeds, and reorgs of any depth above the finalized block.
//
// It keeps the state of every block, since readers call contracts at past blocks. In memory that is about
// 60 KiB for a block of the default scenario (13 KiB a transaction): 0.4 GiB an hour at two blocks a
// second, without bound. Whoever runs a chain for days sets Config.Scratch and Config.Prune: the heap then stays
// small, and a block takes some 4 KiB on disk instead of 40.
//
// Invariants:
//
//  1. A block's hash depends on its parent, its timestamp, its transactions, and how often the chain
//     was rewound before; on nothing else, neither the clock nor the build of the program.
//  2. Timestamps increase strictly, as go-ethereum insists. The real chain repeats them, and Anvil can.
//  3. The safe and the finalized block never move back and are never dropped.
//  4. Rewind empties the transaction pool: a dropped transaction comes back only by being mined again.
type Chain struct {
	cfg    Config
	dir    string // of the chain's data; "" is in memory
	free   func(dir string) (uint64, error)
	node   *node.Node
	eth    *eth.Ethereum
	client *ethclient.Client

	mu        sync.Mutex // serialises mining and rewinding
	rewinds   uint64
	finalized uint64
	safe      uint64

	closeOnce sync.Once
	closeErr  error
}

// New starts a chain that consists of its genesis block and answers JSON-RPC. The caller closes it.
func New(cfg Config) (*Chain, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("devchain config: %w", err)
	}
	cfg = cfg.withDefaults()
	var dir string // "": in memory
	if cfg.Scratch != "" {
		err := errors.Join(sweep(cfg.Scratch), room(cfg.Scratch, free))
		if err == nil {
			dir, err = os.MkdirTemp(cfg.Scratch, scratchPrefix)
		}
		if err != nil {
			return nil, fmt.Errorf("create the chain's directory: %w", err)
		}
	}
	stack, err := node.New(nodeConfig(cfg, dir))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create node: %w", err), os.RemoveAll(dir))
	}
	c := &Chain{cfg: cfg, dir: dir, free: free, node: stack}
	if c.eth, err = eth.New(stack, ethConfig(cfg)); err != nil {
		return nil, errors.Join(fmt.Errorf("create chain: %w", err), stack.Close(), os.RemoveAll(dir))
	}
	stack.RegisterAPIs([]rpc.API{{
		Namespace: "eth",
		Service:   filters.NewFilterAPI(filters.NewFilterSystem(c.eth.APIBackend, filters.Config{})),
	}})
	if err := stack.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start node: %w", err), stack.Close(), os.RemoveAll(dir))
	}
	c.eth.SetSynced()
	c.client = ethclient.NewClient(stack.Attach())
	return c, nil
}

func nodeConfig(cfg Config, dir string) *node.Config {
	modules := []string{"eth", "net", "web3", "debug", "txpool"}
	nc := node.DefaultConfig
	nc.Name = nodeName
	nc.DataDir = dir
	nc.IPCPath = "" // JSON-RPC over TCP alone
	nc.P2P = p2p.Config{NoDiscovery: true, NoDial: true}
	nc.UseLightweightKDF = true
	// One listener serves HTTP and WS when host and port are equal.
	nc.HTTPHost, nc.HTTPPort, nc.HTTPModules = cfg.Host, cfg.Port, modules
	nc.WSHost, nc.WSPort, nc.WSModules = cfg.Host, cfg.Port, modules
	nc.HTTPVirtualHosts, nc.WSOrigins, nc.HTTPCors = []string{"*"}, []string{"*"}, []string{"*"}
	return &nc
}

func ethConfig(cfg Config) *ethconfig.Config {
	rules := *params.AllDevChainProtocolChanges
	rules.ChainID = new(big.Int).SetUint64(cfg.ChainID)
	// Later forks cap the gas of a transaction and price some of it anew: ordinary ones would run out.
	rules.OsakaTime, rules.BogotaTime = nil, nil

	alloc := core.SystemContractAllocs()
	alloc[actorAddress(cfg.Seed, Deployer)] = types.Account{Balance: deployerFunds()}
	maps.Copy(alloc, cfg.Alloc)
	ec := ethconfig.Defaults
	ec.Genesis = &core.Genesis{
		Config: &rules, GasLimit: cfg.GasLimit, Alloc: alloc, Timestamp: cfg.GenesisTime, BaseFee: big.NewInt(params.GWei),
	}
	ec.NetworkId = cfg.ChainID
	ec.SyncMode = ethconfig.FullSync
	ec.TxPool.NoLocals = true
	ec.LogNoHistory = true // search logs by walking blocks: an index of a young chain costs more than it saves
	// Only the hash scheme can keep every state, so that eth_call works at every block.
	ec.NoPruning, ec.StateScheme = !cfg.Prune, rawdb.HashScheme
	// In memory, caches in front of the database would only hold things twice.
	ec.TrieCleanCache, ec.TrieDirtyCache, ec.SnapshotCache = 0, 0, 0
	if cfg.Prune {
		ec.TrieDirtyCache = dirtyCacheMiB
	}
	if cfg.Scratch != "" {
		ec.TrieCleanCache, ec.DatabaseCache, ec.DatabaseHandles = scratchCacheMiB, scratchCacheMiB, scratchFiles
	}
	ec.Miner.GasCeil = cfg.GasLimit
	ec.RPCGasCap = cfg.GasLimit
	return &ec
}

// HTTP is the address of the JSON-RPC API over HTTP.
func (c *Chain) HTTP() string { return c.node.HTTPEndpoint() }

// WS is the address of the JSON-RPC API over WebSocket; the port is that of HTTP.
func (c *Chain) WS() string { return c.node.WSEndpoint() }

// Client speaks to the node without a network between.
func (c *Chain) Client() *ethclient.Client { return c.client }

// Traits says in what this node differs from others.
func (c *Chain) Traits() Traits {
	return Traits{ChainID: new(big.Int).SetUint64(c.cfg.ChainID), SafeBlocks: c.cfg.SafeBlocks}
}

// Run keeps the chain until ctx is done, then closes it.
func (c *Chain) Run(ctx context.Context) error {
	<-ctx.Done()
	return c.Close()
}

// Close stops the node. It waits no longer than Config.Patience: go-ethereum waits for requests in flight, and a long chain writes its last
// states, which nobody will read. Its folder is swept by the next chain. It may be called more than once.
func (c *Chain) Close() error {
	c.closeOnce.Do(func() {
		c.client.Close()
		done := make(chan error, 1)
		go func() { done <- errors.Join(c.node.Close(), os.RemoveAll(c.dir)) }()
		select {
		case c.closeErr = <-done:
		case <-time.After(c.cfg.Patience):
			if c.dir == "" {
				c.closeErr = fmt.Errorf("close node: still running after %s", c.cfg.Patience)
			}
		}
	})
	return c.closeErr
}

// Mine puts a block on the head. Transactions that reached the pool over JSON-RPC follow the given ones,
// so that a person with a wallet can take part; when they do not fit they wait.
func (c *Chain) Mine(ctx context.Context, timestamp uint64, txs []*types.Transaction) (*Block, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	chain := c.eth.BlockChain()
	parent := chain.CurrentBlock()
	if err := room(c.dir, c.free); err != nil {
		return nil, fmt.Errorf("mine block %d: %w", parent.Number.Uint64()+1, err)
	}
	if timestamp <= parent.Time {
		return nil, fmt.Errorf("mine block %d: timestamp %d is not after %d, its parent's", parent.Number.Uint64()+1, timestamp, parent.Time)
	}
	pooled, err := c.pooled()
	if err != nil {
		return nil, fmt.Errorf("mine block %d: %w", parent.Number.Uint64()+1, err)
	}
	block, err := c.build(parent, timestamp, append(slices.Clip(txs), pooled...))
	if err != nil && len(pooled) > 0 {
		block, err = c.build(parent, timestamp, txs)
	}
	if err != nil {
		return nil, fmt.Errorf("build block %d: %w", parent.Number.Uint64()+1, err)
	}
	if _, err := chain.InsertBlockWithoutSetHead(ctx, block, false); err != nil {
		return nil, fmt.Errorf("insert block %d: %w", block.NumberU64(), err)
	}
	if err := c.setHead(block); err != nil {
		return nil, err
	}
	return &Block{
		Number: block.NumberU64(), Hash: block.Hash(), Parent: block.ParentHash(), Timestamp: block.Time(),
		Receipts: chain.GetReceiptsByHash(block.Hash()),
	}, nil
}

// pooled are the transactions of the pool that could be mined, by sender and nonce.
func (c *Chain) pooled() ([]*types.Transaction, error) {
	pool := c.eth.TxPool()
	if pending, queued := pool.Stats(); pending+queued == 0 {
		return nil, nil
	}
	if err := pool.Sync(); err != nil { // it learns of new heads in the background, and until then what it has taken is queued
		return nil, fmt.Errorf("synchronise transaction pool: %w", err)
	}
	pending, _ := pool.Content()
	var txs []*types.Transaction
	for _, sender := range sortedAddresses(pending) {
		txs = append(txs, pending[sender]...)
	}
	return txs, nil
}

func (c *Chain) build(parent *types.Header, timestamp uint64, txs []*types.Transaction) (*types.Block, error) {
	block, _, err := c.eth.Miner().BuildTestingPayload(&miner.BuildPayloadArgs{
		Parent:      parent.Hash(),
		Timestamp:   timestamp,
		Random:      c.random(parent.Hash()),
		Withdrawals: []*types.Withdrawal{},
		BeaconRoot:  &common.Hash{},
	}, txs, len(txs) == 0, []byte("lienstream")) // the default extra data names the build of the program
	return block, err
}

// random tells siblings apart: an empty block mined again after a rewind must have another hash.
func (c *Chain) random(parent common.Hash) common.Hash {
	var salt [16]byte
	binary.BigEndian.PutUint64(salt[:8], c.cfg.Seed)
	binary.BigEndian.PutUint64(salt[8:], c.rewinds)
	return crypto.Keccak256Hash(parent[:], salt[:])
}

// setHead makes block the head and moves the safe and the finalized block up to it.
func (c *Chain) setHead(block *types.Block) error {
	chain := c.eth.BlockChain()
	if _, err := chain.SetCanonical(block); err != nil {
		return fmt.Errorf("make block %d the head: %w", block.NumberU64(), err)
	}
	c.safe = max(c.safe, behind(block.NumberU64(), c.cfg.SafeBlocks))
	c.finalized = max(c.finalized, behind(block.NumberU64(), c.cfg.FinalizedBlocks))
	chain.SetSafe(chain.GetHeaderByNumber(c.safe))
	chain.SetFinalized(chain.GetHeaderByNumber(c.finalized))
	return nil
}

func behind(head, blocks uint64) uint64 { return head - min(head, blocks) }

// Rewind makes the block depth below the head the head. Subscribers hear of it as of any reorg: its logs
// come as removed, then the logs and the head of the block that is now the last are sent once more.
func (c *Chain) Rewind(_ context.Context, depth uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	chain := c.eth.BlockChain()
	head := chain.CurrentBlock().Number.Uint64()
	switch {
	case depth > head:
		return fmt.Errorf("rewind %d blocks from %d: %w", depth, head, ErrBelowGenesis)
	case head-depth < c.safe:
		return fmt.Errorf("rewind %d blocks from %d: %w", depth, head, ErrBelowSafe)
	}
	if err := c.setHead(chain.GetBlockByNumber(head - depth)); err != nil {
		return err
	}
	c.rewinds++
	if err := c.eth.TxPool().Sync(); err != nil {
		return fmt.Errorf("synchronise transaction pool: %w", err)
	}
	c.eth.TxPool().Clear()
	return nil
}
