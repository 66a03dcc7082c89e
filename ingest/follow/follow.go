// Package follow decides how a chain is followed: what to fetch next, whether it links to what is known,
// what to publish and what to take back. It must not touch the network, the clock or Kafka: the ingester
// feeds it heads and answers, and carries out what it returns.
//
// The chain is believed by its parent hashes alone. A head is a hint of where to look; a block joins
// when its parent is the last verified block, and a block that does not link starts a walk down the new
// chain until it meets a block that is known. Only then, with the whole new branch linked, is anything
// reverted.
package follow

import (
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/topics"
)

// Header is what following needs of a block's header.
type Header struct {
	topics.BlockRef
	Parent   common.Hash
	Bloom    types.Bloom
	Receipts common.Hash // root of the trie of receipts: what proves the block's logs
}

// Block is a verified block: its logs are those of its hash, in order.
type Block struct {
	Header
	Logs []Item
}

// Item is a *topics.Log or a *topics.Probe.
type Item = topics.Raw

var (
	// ErrDeepReorg means that the chain contradicts a block that was published as final. The processors
	// cannot undo that, only rebuild: a person has to say that this is the chain to follow.
	ErrDeepReorg = errors.New("the chain contradicts a finalized block: if the chain is right, run `lienstream ingest --rewind` and then `lienstream processors --rebuild`")

	// ErrChainShort means that the chain ends below what was published as final: a node that is still
	// syncing, or a chain that was started over. Wait for the first, treat the second as ErrDeepReorg.
	ErrChainShort = errors.New("the chain ends below the finalized block of the raw topic: the node is still syncing, or the chain was reset; if it was reset, use another --kafka-prefix")
)

// Config of a Machine.
type Config struct {
	Start      uint64 // the first block that may hold a log of ours
	Window     uint64 // blocks below the head that may be reverted, at the least
	MaxWindow  int    // blocks above the finalized one that are remembered, at the most
	Dense      uint64 // blocks of a range, at the most; 0: as many as Next is told
	Sparse     uint64 // blocks of a range below what is settled, whose empty blocks are left out; 0: none are
	MaxBranch  uint64 // headers fetched at once on the walk down a new chain
	Suspicions int    // how often a link below the finalized block is fetched again before it is believed broken
}

func (c Config) withDefaults() Config {
	if c.Window == 0 {
		c.Window = 128
	}
	if c.MaxWindow == 0 {
		c.MaxWindow = 1 << 17
	}
	if c.MaxBranch == 0 {
		c.MaxBranch = 64
	}
	if c.Suspicions == 0 {
		c.Suspicions = 3
	}
	return c
}

// Kind of a Fetch.
type Kind uint8

const (
	// Range asks for the blocks From..To by number, headers and logs.
	Range Kind = iota
	// Headers asks for the headers From..To by number, without logs.
	Headers
	// Logs asks for the logs of Headers, by hash.
	Logs
	// Sparse is Range without the blocks between the ends that have no logs.
	Sparse
)

// String names the kind.
func (k Kind) String() string { return [...]string{"range", "headers", "logs", "sparse"}[k] }

// Fetch is a command: get these blocks and give them to Fetched, in the order of the commands.
type Fetch struct {
	Kind     Kind
	From, To uint64
	Headers  []Header // of Logs

	epoch uint64
}

// String is the command as a person reads it.
func (f Fetch) String() string { return fmt.Sprintf("%s %d-%d", f.Kind, f.From, f.To) }

// Revert is a barrier to take back.
type Revert struct {
	Block topics.BlockRef
	Head  topics.BlockRef // the barrier before it
}

// Batch is a command: publish this, in this order, as one transaction.
type Batch struct {
	Reverts   []Revert // newest first
	Blocks    []Block  // each ends with a barrier
	Finalized uint64
	Safe      uint64 // whoever publishes it knows; 0: nobody does
	Head      uint64
}

// Machine follows one chain.
//
// Invariants:
//
//  1. barriers is what the topic holds once every batch handed out is committed: strictly ascending, each
//     on the chain that was verified. Of those at or below finalized only the newest is kept: the floor.
//  2. A block joins only if its parent is tip. ready holds verified blocks that were not handed out; an
//     empty one only as the last, since a later block tells the same.
//  3. pending reverts were popped off barriers newest first and are handed out before any other block.
//  4. finalized never falls, rises only when a block links and never above tip less the window, whatever a head
//     claims; and no barrier at or below it is ever popped.
//  5. Answers to commands of an older epoch are ignored: whatever goes wrong, the epoch moves on and the
//     machine asks again from tip.
type Machine struct {
	cfg Config

	barriers  []topics.BlockRef // handed out; the first is the floor that is never reverted
	links     []topics.BlockRef // every verified block above finalized, and the newest below: no reorg may pass it
	ready     []Block
	backlog   int // records in ready
	pending   []Revert
	started   bool // tip is set
	tip       topics.BlockRef
	finalized uint64
	target    uint64 // what finalized becomes once a block links

	head     Header // as last announced
	haveHead bool

	epoch    uint64
	inflight int
	asked    topics.BlockRef // the end of what was asked for; its hash is zero where it is not known

	branch    []Header // a new chain on its way down to a known block, oldest first
	forked    bool     // the branch meets the known chain at tip: its logs are next
	suspected int      // consecutive times that a final link did not hold
}

// New returns a machine that goes on from the barriers that the topic holds, oldest first: all above
// finalized and the one at or below it. None: the topic is empty.
func New(cfg Config, barriers []topics.BlockRef, finalized uint64) *Machine {
	m := &Machine{cfg: cfg.withDefaults(), finalized: finalized, target: finalized}
	if len(barriers) == 0 {
		return m
	}
	m.barriers = append(m.barriers, barriers...)
	m.links = append(m.links, barriers...)
	m.started = true
	m.tip = barriers[len(barriers)-1]
	m.asked = m.tip
	return m
}

// Tip is the last verified block.
func (m *Machine) Tip() topics.BlockRef { return m.tip }

// Head is the head as last announced.
func (m *Machine) Head() uint64 { return m.head.Number }

// Finalized is the number at and below which nothing is reverted any more.
func (m *Machine) Finalized() uint64 { return m.finalized }

// Settled is the number at and below which the chain, as announced, is not expected to change.
func (m *Machine) Settled() uint64 { return m.target }

// Last is the newest barrier handed out.
func (m *Machine) Last() (topics.BlockRef, bool) {
	if len(m.barriers) == 0 {
		return topics.BlockRef{}, false
	}
	return m.barriers[len(m.barriers)-1], true
}

// Backlog counts the records of verified blocks that were not handed out.
func (m *Machine) Backlog() int { return m.backlog }

// Announce tells the machine of a head, and of the number that the chain calls final; a chain that knows
// no such thing says the head's own. ErrChainShort: see there.
func (m *Machine) Announce(h Header, final uint64) error {
	if m.started && h.Number < m.links[0].Number {
		return fmt.Errorf("head %d, finalized block %d: %w", h.Number, m.links[0].Number, ErrChainShort)
	}
	m.head, m.haveHead = h, true
	below := uint64(0)
	if h.Number > m.cfg.Window {
		below = h.Number - m.cfg.Window
	}
	m.target = max(m.target, min(below, final))
	if h.Hash == m.tip.Hash {
		m.finalize()
	}
	return nil
}

// Distrust forgets the head and everything asked for: a fetch could not be answered, since the block is
// gone or the nodes contradict each other. The next head starts anew from the last verified block.
func (m *Machine) Distrust() {
	m.haveHead = false
	m.restart()
}

func (m *Machine) restart() {
	m.epoch++
	m.inflight = 0
	m.branch, m.forked = nil, false
	m.asked = m.tip
}

// finalize moves the finalized number up to what was announced and forgets what lies below it. Only a
// block that links calls it: until then the chain may have been reorganised, while nobody looked, at
// blocks that are final by now.
func (m *Machine) finalize() {
	if m.tip.Number > m.cfg.Window {
		m.finalized = max(m.finalized, min(m.target, m.tip.Number-m.cfg.Window))
	}
	if excess := len(m.links) - m.cfg.MaxWindow; excess > 0 {
		m.finalized = max(m.finalized, m.links[excess-1].Number)
	}
	m.barriers = dropBelow(m.barriers, m.finalized)
	m.links = dropBelow(m.links, m.finalized)
}

// dropBelow drops what lies at or below n, but for the newest such.
func dropBelow(refs []topics.BlockRef, n uint64) []topics.BlockRef {
	k := 0
	for k+1 < len(refs) && refs[k+1].Number <= n {
		k++
	}
	return refs[k:]
}
