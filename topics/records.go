package topics

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

// BlockRef names a block, and with it the state that an answer is true as of.
type BlockRef struct {
	Number    uint64
	Hash      common.Hash
	Timestamp uint64 // unix seconds; several blocks may share one
}

// UnprovedHeader is a header of the last barrier of each transaction, in partition 0, where the ingester believes what no
// endpoint can prove: a line each.
const UnprovedHeader = "unproved"

// Raw is a record of the raw topic: *Log, *Probe, *BlockEnd or *BlockRevert.
type Raw interface{ isRaw() }

// Log is a log as the chain emitted it, undecoded.
type Log struct {
	Block    BlockRef
	TxHash   common.Hash
	TxIndex  uint32
	LogIndex uint32
	Address  common.Address
	Topics   []common.Hash // at most 4
	Data     []byte
}

// Probe is what a token answered at a block, read by the ingester because no event tells it.
// It follows the log that made it necessary, in the same block and partition. A nil field: the token
// has no such function.
type Probe struct {
	Block           BlockRef
	LogIndex        uint32 // of the log that it follows
	Token           common.Address
	UIMultiplier    *uint256.Int
	NewUIMultiplier *uint256.Int
	EffectiveAt     *uint64
	Paused          *bool // paused() or oraclePaused()
}

// BlockEnd is a barrier: it is written to every partition after the block's records there. Empty blocks
// are coalesced, so numbers may skip. A repetition of the last barrier says that the chain is quiet and
// the ingester alive.
type BlockEnd struct {
	Block     BlockRef
	Parent    common.Hash
	Records   uint32 // of this block in this partition: what a reader must have seen since the last barrier
	Finalized uint64 // number below and at which nothing is reverted any more
	Safe      uint64 // number below and at which only a reorg of the chain below reverts; 0: no node tells
	Head      uint64 // the chain's head as the ingester saw it
	Commit    bool   // the last barrier of its transaction: where the tasks of all partitions commit alike

	// Previous is the barrier before this one in this partition that stands: a reader who stands elsewhere
	// lacks what lies between. No hash: this is the first. Linked: it is told; early barriers lack it.
	Previous BlockRef
	Linked   bool
}

// BlockRevert takes back what the barrier of Block ended, newest first; Head is the barrier before it.
type BlockRevert struct {
	Block BlockRef
	Head  BlockRef
}

func (*Log) isRaw()         {}
func (*Probe) isRaw()       {}
func (*BlockEnd) isRaw()    {}
func (*BlockRevert) isRaw() {}
