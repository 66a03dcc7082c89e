// Package follow decides how a chain is followed: what to fetch next, whether it links to the known chain, what
// to publish and what to revert. It must not use the network, the clock or Kafka: the ingester passes heads and
// responses to it, and executes the commands that it returns.
//
// Only parent hashes count. A head is just a hint. A block is accepted if its parent is the last verified
// block. A block that does not link starts a walk down the new chain until it reaches a known block. Only when
// the whole new branch links is anything reverted.
//
// One endpoint may make up headers that link. So where several are configured (Config.Votes), a contradiction of the
// known chain is only a reason for a vote of all of them, and nothing is final before a vote.
package follow

import (
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/topics"
)

// Header holds the fields of a block header that following needs.
type Header struct {
	topics.BlockRef
	Parent       common.Hash
	Bloom        types.Bloom
	Receipts     common.Hash // receipts root, which proves the block's logs
	Transactions common.Hash // transactions root
	State        common.Hash // state root
	GasUsed      uint64      // by all transactions
}

// Block is a verified block with the logs of its hash, in order.
type Block struct {
	Header
	Logs []Item
}

// Item is a *topics.Log, a *topics.Probe or a *topics.Ledger.
type Item = topics.Raw

var (
	// ErrDeepReorg: the chain contradicts a block that was published as final. The processors cannot revert it,
	// only rebuild, so an operator has to confirm the new chain.
	ErrDeepReorg = errors.New("the chain contradicts a finalized block: if the chain is right, run `lienstream ingest --rewind` and then `lienstream processors --rebuild`")

	// ErrChainShort: the chain ends below what was published as final, because the node is still syncing or the
	// chain was reset. Wait for the first; treat the second like ErrDeepReorg.
	ErrChainShort = errors.New("the chain ends below the finalized block of the raw topic: the node is still syncing, or the chain was reset; if it was reset, use another --kafka-prefix")
)

// Config of a Machine. Start from DefaultConfig.
type Config struct {
	Start      uint64 // the first block that may have logs of the market
	Window     uint64 // minimum number of newest blocks that may be reverted
	MaxWindow  int    // maximum blocks above the finalized one that are remembered
	Dense      uint64 // maximum blocks of a range; 0: as many as Next allows
	Sparse     uint64 // maximum blocks of a range below Settled, fetched without its empty blocks; 0: none are
	MaxBranch  uint64 // headers fetched at once on the walk down a new chain
	Suspicions int    // how often a broken link below the finalized block is fetched again before it counts
	Votes      bool   // there are several endpoints, and only what they agree on becomes final or replaces known blocks
}

// DefaultConfig lacks the first block and the size of ranges.
func DefaultConfig() Config {
	return Config{Window: 128, MaxWindow: 1 << 17, MaxBranch: 64, Suspicions: 3}
}

// Validate reports all errors.
func (c *Config) Validate() error {
	var errs []error
	for _, n := range []struct {
		name  string
		value uint64
	}{
		{"reorg window", c.Window},
		{"blocks that are remembered", uint64(max(c.MaxWindow, 0))},
		{"headers at once", c.MaxBranch},
		{"suspicions", uint64(max(c.Suspicions, 0))},
	} {
		if n.value == 0 {
			errs = append(errs, fmt.Errorf("%s must be positive", n.name))
		}
	}
	return errors.Join(errs...)
}

// Kind of a Fetch.
type Kind uint8

const (
	// Range fetches the blocks From..To by number, headers and logs.
	Range Kind = iota
	// Headers fetches the headers From..To by number, without logs.
	Headers
	// Logs fetches the logs of Headers, by hash.
	Logs
	// Sparse is Range without the empty blocks between the first and the last.
	Sparse
	// Vote asks all endpoints for the header of the block From, and returns the one that most of them have.
	Vote
)

// String names the kind.
func (k Kind) String() string { return [...]string{"range", "headers", "logs", "sparse", "vote"}[k] }

// Fetch is a command: fetch these blocks and pass them to Fetched, in the order of the commands.
type Fetch struct {
	Kind     Kind
	From, To uint64
	Headers  []Header    // for Logs
	Sure     bool        // for Vote: one endpoint is not enough while others take part
	Top      common.Hash // for Headers: the hash of the last; zero: any

	epoch uint64
}

// String describes the command in logs.
func (f Fetch) String() string { return fmt.Sprintf("%s %d-%d", f.Kind, f.From, f.To) }

// Revert is a barrier to revert.
type Revert struct {
	Block topics.BlockRef
	Head  topics.BlockRef // the barrier before it, which becomes the last
}

// Batch is a command: publish this as one transaction, in this order.
type Batch struct {
	Reverts   []Revert // newest first
	Blocks    []Block  // a barrier follows each
	Finalized uint64   // at most the number of a block before or in it: a restart could not recover a higher one
	Safe      uint64   // set by the ingester; 0: unknown
	Head      uint64   // set by the ingester
}

// Machine follows one chain.
//
// Invariants:
//
//  1. barriers is what the topic holds once every returned batch is committed: strictly ascending, each on the
//     verified chain. Of those at or below finalized only the newest is kept: the floor.
//  2. A block is accepted only if its parent is tip. ready holds verified blocks that were not returned yet;
//     only the last of them may be empty, since a later barrier covers empty blocks.
//  3. pending reverts were popped off barriers, newest first, and are returned before any other block.
//  4. finalized never decreases. It increases only when a block links, and never above tip minus the window,
//     whatever a head claims. No barrier at or below it is ever popped.
//  5. With Votes, finalized increases only to a block that Vouched named, and no block is replaced before a vote
//     was lost: at the height of tip, and for a final block at its own.
//  6. Responses to commands of an older epoch are ignored: after any failure the epoch increases and the
//     machine fetches again from tip.
type Machine struct {
	cfg Config

	barriers       []topics.BlockRef // returned; the first is the floor, which is never reverted
	links          []topics.BlockRef // verified blocks above finalized, and the newest one that is final, which no reorg may pass
	ready          []Block
	backlog        int // records in ready, by weight
	pending        []Revert
	started        bool // tip is valid
	tip            topics.BlockRef
	finalized      uint64
	publishedFinal uint64          // finalized, as published: at most the number of a barrier
	target         uint64          // what finalized becomes once a block links
	named          topics.BlockRef // the block that is called final
	whole          uint64          // empty blocks are wanted up to here

	head     Header // last announced head
	haveHead bool

	epoch    uint64
	inflight int
	asked    topics.BlockRef // the end of what was requested; its hash is zero if unknown

	branch    []Header // headers of a new chain on the walk down to a known block, oldest first
	forked    bool     // the branch meets the known chain at tip: its logs are fetched next
	rival     *Header  // a header that contradicts the known chain: a vote decides whether a branch begins
	voteAt    uint64   // the height of that vote
	suspected int      // consecutive times that a link to a final block was broken
}

// New returns a machine that continues from the topic's barriers, oldest first: all above finalized and one at
// or below it. None: the topic is empty.
func New(cfg Config, barriers []topics.BlockRef, finalized uint64) (*Machine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := &Machine{cfg: cfg}
	if len(barriers) == 0 {
		return m, nil
	}
	// The blocks that are final above the last barrier are unknown now, and the first endpoint asked must not decide
	// them. Earlier builds wrote such numbers.
	m.finalized = min(finalized, barriers[len(barriers)-1].Number)
	m.target, m.publishedFinal = m.finalized, finalized
	m.barriers = append(m.barriers, barriers...)
	m.links = append(m.links, barriers...)
	m.started = true
	m.tip = barriers[len(barriers)-1]
	m.asked = m.tip
	return m, nil
}

// Tip is the last verified block.
func (m *Machine) Tip() topics.BlockRef { return m.tip }

// Head is the last announced head.
func (m *Machine) Head() uint64 { return m.head.Number }

// Finalized is the number of the last final block.
func (m *Machine) Finalized() uint64 { return m.finalized }

// Floor is the number of the newest block that no reorg may pass; before there is one, of the topic's first.
func (m *Machine) Floor() uint64 {
	if !m.started {
		return m.cfg.Start - min(m.cfg.Start, 1)
	}
	return m.links[0].Number
}

// Settled is the number up to which the chain, as announced, is not expected to change.
func (m *Machine) Settled() uint64 { return m.target }

// Last is the newest barrier returned.
func (m *Machine) Last() (topics.BlockRef, bool) {
	if len(m.barriers) == 0 {
		return topics.BlockRef{}, false
	}
	return m.barriers[len(m.barriers)-1], true
}

// Backlog is the weight of verified blocks that were not returned yet.
func (m *Machine) Backlog() int { return m.backlog }

// Announce passes a head and the number of the finalized block; for a chain without finality pass the head's number.
// taken: the head is followed. It may return ErrChainShort.
//
// With Votes a head is followed only if it does not contradict the known chain nor replace a higher head: heads are
// claims, which must not stop running fetches.
func (m *Machine) Announce(h Header, final uint64) (taken bool, err error) {
	if m.started && h.Number < m.links[0].Number {
		return false, fmt.Errorf("head %d, finalized block %d: %w", h.Number, m.links[0].Number, ErrChainShort)
	}
	if m.cfg.Votes {
		if (m.Contested() || !m.Contradicts(h)) && (!m.haveHead || h.Number >= m.head.Number || m.Contradicts(m.head)) {
			m.head, m.haveHead, taken = h, true, true
		}
		if m.haveHead {
			m.target = max(m.finalized, min(m.below(max(m.head.Number, m.tip.Number)), final))
		}
		return taken, nil
	}
	m.head, m.haveHead = h, true
	m.target = max(m.finalized, min(m.below(h.Number), final)) // an earlier, higher head may have been made up
	if h.Hash == m.tip.Hash {
		m.finalize()
	}
	return true, nil
}

// below is the number a window below another one.
func (m *Machine) below(n uint64) uint64 { return n - min(n, m.cfg.Window) }

// Distrust forgets the head and all outstanding fetches, after a fetch that no endpoint could answer because
// the block is gone or the nodes disagree. The next head restarts from the last verified block.
func (m *Machine) Distrust() {
	m.haveHead = false
	m.restart()
}

// Refetch forgets all outstanding fetches, because different logs are wanted now.
func (m *Machine) Refetch() { m.restart() }

// Whole makes all blocks up to a number wanted, also empty ones: no range up to there is sparse.
func (m *Machine) Whole(number uint64) { m.whole = number }

func (m *Machine) restart() {
	m.epoch++
	m.inflight = 0
	m.branch, m.forked, m.rival = nil, false, nil
	m.asked = m.tip
}

// finalize raises the finalized number to the announced one. It is called only when a block links: until then, blocks
// that are final by now may have been reorganised without notice. With Votes it waits for Vouched instead.
func (m *Machine) finalize() {
	if !m.cfg.Votes {
		m.settle(m.due())
	}
}

// Names takes the block that is called final, and reports whether the verified chain has another one at its number:
// then nothing becomes final until a block of the verified chain is named. With Votes, votes decide instead, and it
// reports false.
func (m *Machine) Names(final topics.BlockRef) (other bool) {
	m.named = final
	return m.misnamed()
}

func (m *Machine) misnamed() bool {
	ours, ok := m.find(m.named.Number)
	return ok && m.isNamed() && ours.Hash != m.named.Hash
}

// isNamed reports whether the block that is called final decides what becomes final, and its hash is known.
func (m *Machine) isNamed() bool { return !m.cfg.Votes && m.named.Hash != (common.Hash{}) }

// namesUnknown reports whether the block that is called final lies between barriers that were read from the topic: whether
// it is on the verified chain is then unknown.
func (m *Machine) namesUnknown() bool {
	_, ok := m.find(m.named.Number)
	return !ok && m.isNamed() && m.named.Number > m.links[0].Number && m.named.Number < m.tip.Number
}

// due is the number up to which blocks should be final.
func (m *Machine) due() (n uint64) {
	if n = min(m.target, m.below(m.tip.Number)); m.misnamed() || m.namesUnknown() {
		n = m.finalized
	}
	room := m.cfg.MaxWindow
	if m.cfg.Votes {
		room /= 2 // the rest is for blocks that come during the vote
	}
	if excess := len(m.links) - room; excess > 0 {
		n = max(n, m.links[excess-1].Number)
	}
	return max(n, m.finalized)
}

// settle makes blocks final and drops what is below.
func (m *Machine) settle(finalized uint64) {
	m.finalized = max(m.finalized, finalized)
	m.barriers = dropBelow(m.barriers, m.finalized)
	m.links = dropBelow(m.links, m.finalized)
}

// dropBelow drops all refs at or below n except the newest of them.
func dropBelow(refs []topics.BlockRef, n uint64) []topics.BlockRef {
	k := 0
	for k+1 < len(refs) && refs[k+1].Number <= n {
		k++
	}
	return refs[k:]
}
