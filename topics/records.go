package topics

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

// BlockRef identifies a block, and the state as of it.
type BlockRef struct {
	Number    uint64
	Hash      common.Hash
	Timestamp uint64 // unix seconds; several blocks may share one
}

// Same reports whether both are the same block: by number and hash.
func (b BlockRef) Same(c BlockRef) bool { return b.Number == c.Number && b.Hash == c.Hash }

// UnprovedHeader is a header of the last barrier of each transaction, in partition 0: what the ingester cannot
// verify, one line each.
const UnprovedHeader = "unproved"

// Raw is a record of the raw topic: *Log, *Probe, *Ledger, *BlockEnd or *BlockRevert.
type Raw interface{ isRaw() }

// Log is a raw log as the chain emitted it.
type Log struct {
	Block    BlockRef
	TxHash   common.Hash
	TxIndex  uint32
	LogIndex uint32
	Address  common.Address
	Topics   []common.Hash // at most 4
	Data     []byte        // at most MaxLogData: the beginning of what is longer
}

// MaxLogData is the maximum size of a log's data. No event of the market is that long, but strangers write logs that are wanted for their
// topic, and where gas allows some that no record has room for.
const MaxLogData = 1 << 20

// Probe is a token's answers at a block, read by the ingester because no event reports them. It follows the log
// that triggered it, in the same block and partition. A nil field: the token has no such function.
type Probe struct {
	Block           BlockRef
	LogIndex        uint32 // of the log that it follows
	Token           common.Address
	UIMultiplier    *uint256.Int
	NewUIMultiplier *uint256.Int
	EffectiveAt     *uint64
	Paused          *bool // paused() or oraclePaused()
}

// Ledger is a part of who holds how much of a token at the end of a block, summed up by the ingester from every
// Transfer of the token since its creation. From the next block on the raw topic has the token's Transfer logs; earlier
// ones are not in it. The first part comes with that block, and each other with the next one, empty or not.
type Ledger struct {
	Block  BlockRef // that the part comes with
	Token  common.Address
	Part   uint32      // from 0 on
	Parts  uint32      // 0: it says First, of a ledger that came without
	First  common.Hash // the transaction of the first Transfer of more than nothing; zero: there was none, or it is unknown yet
	Fault  string      // why the token's balances cannot be had; empty: they can
	Shares []Share     // none is zero; ascending by account over all parts
	Since  uint64      // the block as of whose end all parts are; 0: they all come with one block
}

// Share is what an account holds of a token, in raw units.
type Share struct {
	Account common.Address
	Amount  uint256.Int
}

// MaxShares is the maximum number of shares in a Ledger, which bounds the size of its record.
const MaxShares = 8192

// MaxHolders is the maximum number of accounts in a token's ledger, over all parts, and at any time before. The ingester sums
// them up in memory.
const MaxHolders = 1 << 20

// BlockEnd is a barrier: it is written to every partition after the block's records there. Empty blocks have no
// barrier of their own, so numbers may skip. A repeated barrier is a heartbeat of the ingester on an idle
// chain.
type BlockEnd struct {
	Block     BlockRef
	Parent    common.Hash
	Records   uint32 // records of this block in this partition, that is since the last barrier
	Finalized uint64 // number of the last final block
	Safe      uint64 // number of the last block that only a reorg of the parent chain can revert; 0: unknown
	Head      uint64 // the chain's head as the ingester saw it
	Commit    bool   // the last barrier of its transaction, where the tasks of all partitions commit

	// Previous is the barrier in force before this one in this partition: a reader whose last barrier is
	// another one lacks records. No hash: this is the first. Linked: Previous is set; early barriers lack it.
	Previous BlockRef
	Linked   bool
}

// BlockRevert reverts the block of the barrier Block; newest blocks come first. Head is the barrier before it.
type BlockRevert struct {
	Block BlockRef
	Head  BlockRef
}

func (*Log) isRaw()         {}
func (*Probe) isRaw()       {}
func (*Ledger) isRaw()      {}
func (*BlockEnd) isRaw()    {}
func (*BlockRevert) isRaw() {}
