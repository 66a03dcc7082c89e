package hotcache

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

// keptViews is as many blocks as an engine's task keeps.
const keptViews = 64

var (
	families = market.Families(contracts.Deployment{PositionManager: common.Address{0x90}})
	tables   = families.Tables()
	apply    = families.Apply
)

// node owns partitions on real stores. A test writes the sequence of barriers and reverts that all
// partitions see, and says how far each has come: the writer is told as an engine tells it.
type node struct {
	read.Broadcast

	mu          sync.Mutex
	incarnation int64
	observer    engine.Observer
	sequence    []step
	parts       []*part
}

// step is a barrier with the events before it, or a revert to a block.
type step struct {
	at     topics.BlockRef
	events map[int32][]contracts.Event
	revert *topics.BlockRef // the block taken back; at is the one before it
}

type part struct {
	id    int32
	store *state.Store
	next  int // in sequence
	mark  query.Watermark
	views []held // the last is the latest
}

type held struct {
	at   topics.BlockRef
	snap *state.Snapshot
}

func newNode(t testing.TB, partitions int32, incarnation int64) (*node, func()) {
	t.Helper()
	n := &node{incarnation: incarnation, sequence: []step{{at: block(1, 0)}}}
	cache := state.NewCache(state.DefaultMemory(), 1)
	for p := range partitions {
		store, err := state.Open(state.Options{
			Dir: "partition", Tables: tables, Cache: cache, FS: vfs.NewMem(),
		})
		if err != nil {
			t.Fatal(err)
		}
		own := &part{id: p, store: store, mark: query.Watermark{Partition: p, Role: topics.RoleOwner, Incarnation: incarnation}}
		n.parts = append(n.parts, own)
		n.advance(t, p, 1)
	}
	return n, func() {
		for _, p := range n.parts {
			for _, v := range p.views {
				v.snap.Release()
			}
			if err := p.store.Close(); err != nil {
				t.Error(err)
			}
		}
		cache.Close()
	}
}

// observe opens the partitions for the writer.
func (n *node) observe(o engine.Observer) {
	n.observer = o
	for _, p := range n.parts {
		view := p.latest()
		o.Opened(p.owner(), view)
		view.Close()
	}
}

func (p *part) owner() engine.Partition {
	return engine.Partition{ID: p.id, Incarnation: p.mark.Incarnation, Reverts: p.mark.Reverts, Head: p.mark.At.Number}
}

func (p *part) latest() state.View {
	v := p.views[len(p.views)-1]
	return v.snap.View(v.at)
}

// land adds a block, each event to the partition that its deal belongs to.
func (n *node) land(at topics.BlockRef, events ...contracts.Event) {
	s := step{at: at, events: map[int32][]contracts.Event{}}
	for _, e := range events {
		p := topics.Partition(e.Entity().Key(), int32(len(n.parts)))
		s.events[p] = append(s.events[p], e)
	}
	n.sequence = append(n.sequence, s)
}

// revert adds the taking back of a block.
func (n *node) revert(block, head topics.BlockRef) {
	n.sequence = append(n.sequence, step{at: head, revert: &block})
}

// advance applies the next steps to a partition, in one commit, and tells the observer.
func (n *node) advance(t testing.TB, partition int32, steps int) {
	t.Helper()
	p := n.parts[partition]
	steps = min(steps, len(n.sequence)-p.next)
	if steps <= 0 {
		return
	}
	o := p.store.NewOverlay()
	for _, s := range n.sequence[p.next : p.next+steps] {
		if s.revert != nil {
			if err := o.Revert(*s.revert, false); err != nil {
				t.Fatalf("partition %d: revert block %d: %v", partition, s.revert.Number, err)
			}
			p.mark.Reverts++
			continue
		}
		o.Begin(s.at, true)
		for i, e := range s.events[partition] {
			if violation, err := apply(o, topics.EventMeta{Block: s.at, Tx: s.at.Hash, LogIndex: uint32(i)}, e); err != nil || violation != "" {
				t.Fatalf("block %d: %s: %q, %v", s.at.Number, e.Name(), violation, err)
			}
		}
	}
	if err := o.Settle(0, 0, func(state.Event) {}); err != nil {
		t.Fatal(err)
	}
	var changes []engine.Change
	_ = o.Rows(func(r state.Row) error {
		if !r.Same {
			changes = append(changes, engine.Change{Table: r.Table, Key: slices.Clone(r.Key), Row: r.Value})
		}
		return nil
	})
	if err := p.store.Commit(o, []byte("meta")); err != nil {
		t.Fatal(err)
	}
	p.next += steps
	at := n.sequence[p.next-1].at

	n.mu.Lock()
	p.views = append(p.views, held{at, p.store.Snapshot()})
	if len(p.views) > keptViews {
		p.views[0].snap.Release()
		p.views = p.views[1:]
	}
	p.mark.At, p.mark.Latest, p.mark.ObservedAt = at, at.Number, time.Unix(int64(at.Timestamp), 0)
	p.mark.Kept = append(slices.Clone(p.mark.Kept[max(0, len(p.mark.Kept)-keptViews+1):]), p.mark.Moment().Point())
	n.Notify()
	n.mu.Unlock()
	if n.observer != nil {
		view := p.latest()
		n.observer.Applied(p.owner(), view, changes)
		view.Close()
	}
}

// settle brings every partition to the end of the sequence.
func (n *node) settle(t testing.TB) {
	t.Helper()
	for _, p := range n.parts {
		n.advance(t, p.id, len(n.sequence))
	}
}

// View implements query.Source.
func (n *node) View(_ context.Context, partition int32, at *topics.BlockRef) (state.View, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, v := range slices.Backward(n.parts[partition].views) {
		if at == nil || v.at == *at {
			return v.snap.View(v.at), nil
		}
	}
	return nil, query.ErrUnavailable
}

// Watermarks implements query.Source.
func (n *node) Watermarks() []query.Watermark {
	n.mu.Lock()
	defer n.mu.Unlock()
	var marks []query.Watermark
	for _, p := range n.parts {
		marks = append(marks, p.mark)
	}
	return marks
}

// lowest is the earliest point of the sequence that any partition is at.
func (n *node) lowest() query.Watermark {
	marks := n.Watermarks()
	low := marks[0]
	for _, m := range marks {
		if m.Reverts < low.Reverts || m.Reverts == low.Reverts && m.At.Number < low.At.Number {
			low = m
		}
	}
	return low
}

// block makes a block; another fork's has another hash. Two blocks share a second.
func block(number, fork uint64) topics.BlockRef {
	return topics.BlockRef{
		Number: number, Timestamp: 1_000_000 + number/2,
		Hash: crypto.Keccak256Hash(fmt.Append(nil, number, ":", fork)),
	}
}

func word(n uint64) uint256.Int { return *uint256.NewInt(n) }

func address(n byte) common.Address { return common.BytesToAddress([]byte{0xa0, n}) }

// listing is a deal that differs from others by its ID alone.
func listing(id uint64) *contracts.DealListed {
	return &contracts.DealListed{
		DealID: word(id), Borrower: address(1), Token: address(0x10), AmountOrTokenID: word(5), Cap: word(1_000), MinPrice: word(900),
		Term: 7 * 86_400, ListedAt: 1_000_000 + id, FeeBps: 50, TermsHash: common.Hash{1},
	}
}
