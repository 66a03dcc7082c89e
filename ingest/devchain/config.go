package devchain

import (
	"errors"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/state"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/contracts"
)

// Config of a chain in the process. The zero value of a field stands for its default, but for Port.
type Config struct {
	ChainID uint64 // 4663
	Host    string // address that the JSON-RPC server listens on: 127.0.0.1
	Port    int    // port of the JSON-RPC server, HTTP and WS alike; 0 is any free port
	Seed    uint64 // decides the keys of the actors and what blocks hold as randomness
	// GenesisTime is the timestamp of block 0 in seconds. The default lies years ahead, because
	// compressed time runs ahead of the clock and a head in the past looks like a dead node.
	GenesisTime uint64
	GasLimit    uint64 // gas of a block: 1,000,000,000, room for thousands of transactions
	// SafeBlocks and FinalizedBlocks are how far these two heads stay behind the latest one: 72 and 96.
	// Neither ever moves back, so a rewind that would drop a safe block is refused.
	SafeBlocks      uint64
	FinalizedBlocks uint64
	// Scratch is a folder to keep the chain's data in, instead of in memory. It goes into a folder of its
	// own there, which Close removes: a chain always begins at its genesis block.
	Scratch string
	// Prune keeps the state of the last 128 blocks only, more than can be dropped. A call as of an older one is an error
	// that says so. Blocks, receipts and logs are kept for good.
	Prune bool
	// Patience is how long Close waits for what is still in flight: ten seconds. go-ethereum's own server waits five for a connection that
	// was opened for a request that went by another one.
	Patience time.Duration
	// Alloc is put into block 0 besides the deployer's money.
	Alloc types.GenesisAlloc
}

// Defaults of Config and AnvilConfig.
const (
	DefaultChainID         = contracts.DefaultChainID
	DefaultPort            = 8545
	DefaultHost            = "127.0.0.1"
	defaultGenesisTime     = 2_000_000_000 // 18 May 2033
	defaultGasLimit        = 1_000_000_000
	defaultSafeBlocks      = 72
	defaultFinalizedBlocks = 96
	defaultPatience        = 10 * time.Second
)

func (c Config) withDefaults() Config {
	c.ChainID = or(c.ChainID, DefaultChainID)
	c.Host = or(c.Host, DefaultHost)
	c.GenesisTime = or(c.GenesisTime, defaultGenesisTime)
	c.GasLimit = or(c.GasLimit, defaultGasLimit)
	c.SafeBlocks = or(c.SafeBlocks, defaultSafeBlocks)
	c.FinalizedBlocks = or(c.FinalizedBlocks, defaultFinalizedBlocks)
	c.Patience = or(c.Patience, defaultPatience)
	return c
}

// or is v, or fallback when v is the zero value.
func or[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

// Validate names every fault of the configuration at once.
func (c Config) Validate() error {
	c = c.withDefaults()
	var faults []error
	if c.Port < 0 || c.Port > 65535 {
		faults = append(faults, fmt.Errorf("port %d: not between 0 and 65535", c.Port))
	}
	if c.GasLimit < 30_000_000 {
		faults = append(faults, fmt.Errorf("gasLimit %d: less than 30000000, too little to deploy the contracts", c.GasLimit))
	}
	if c.Prune && c.SafeBlocks >= state.TriesInMemory {
		faults = append(faults, fmt.Errorf("safeBlocks %d: pruned, the chain has no more than %d to drop", c.SafeBlocks, state.TriesInMemory-1))
	}
	if c.SafeBlocks > c.FinalizedBlocks {
		faults = append(faults, fmt.Errorf("safeBlocks %d: more than finalizedBlocks %d", c.SafeBlocks, c.FinalizedBlocks))
	}
	if _, taken := c.Alloc[common.Address{}]; taken {
		faults = append(faults, errors.New("alloc: balance for the zero address"))
	}
	return errors.Join(faults...)
}
