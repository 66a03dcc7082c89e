package query_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/holiman/uint256"
	"go.uber.org/goleak"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	marketapp "github.com/lienstream/lienstream/processors/market"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manager is the PositionManager.
var manager = common.Address{0x90, 0x51}

var (
	families = marketapp.Families(contracts.Deployment{PositionManager: manager})
	tables   = families.Tables()
	apply    = families.Apply
)

// keptViews is as many blocks as an engine's task keeps.
const keptViews = 64

// toldViews is as many of them as it tells of.
const toldViews = 16

// node is a Source whose partitions move when a test says so, each on a store of its own.
type node struct {
	read.Broadcast

	mu     sync.Mutex
	parts  map[int32]*part
	stands read.Point // what a reader answers as of
	undo   bool       // blocks can be taken back
}

// Keep implements read.Keeper.
func (n *node) Keep(at read.Point) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stands = at
}

type part struct {
	store *state.Store
	mark  query.Watermark
	views []held // the last is the latest
}

type held struct {
	at      topics.BlockRef
	reverts uint64
	snap    *state.Snapshot
}

func (h *held) point() read.Point { return read.Point{Reverts: h.reverts, Number: h.at.Number} }

func newNode(t testing.TB, role topics.HolderRole, incarnation int64, partitions ...int32) *node {
	n := &node{parts: map[int32]*part{}}
	cache := state.NewCache(state.DefaultMemory(), 1)
	t.Cleanup(cache.Close)
	for _, p := range partitions {
		store, err := state.Open(state.Options{Dir: "partition", Tables: tables, Cache: cache, FS: vfs.NewMem()})
		if err != nil {
			t.Fatal(err)
		}
		own := &part{store: store, mark: query.Watermark{Partition: p, Role: role, Incarnation: incarnation}}
		n.parts[p] = own
		t.Cleanup(func() {
			for _, v := range own.views {
				v.snap.Release()
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
		n.advance(t, p, block(0))
	}
	return n
}

// block makes a block of the chain; a fork has other hashes.
func block(number uint64, fork ...byte) topics.BlockRef {
	return topics.BlockRef{
		Number: number, Timestamp: 1_000_000 + number,
		Hash: crypto.Keccak256Hash(fmt.Append(fork, number)),
	}
}

// advance applies a block to one partition.
func (n *node) advance(t testing.TB, partition int32, at topics.BlockRef, events ...contracts.Event) {
	t.Helper()
	p := n.parts[partition]
	o := p.store.NewOverlay()
	o.Begin(at, n.undo)
	for i, e := range events {
		violation, err := apply(o, topics.EventMeta{Block: at, Tx: at.Hash, LogIndex: uint32(i)}, e)
		if err != nil || violation != "" {
			t.Fatalf("block %d: %s: %q, %v", at.Number, e.Name(), violation, err)
		}
	}
	if err := errors.Join(o.Settle(0, 0, func(state.Event) {}), p.store.Commit(o, []byte("meta"))); err != nil {
		t.Fatal(err)
	}
	snap := p.store.Snapshot()

	n.mu.Lock()
	defer n.mu.Unlock()
	defer n.Notify()
	p.views = append(p.views, held{at, p.mark.Reverts, snap})
	if len(p.views) > keptViews {
		i := 0
		if p.views[0].point() == n.stands {
			i = 1
		}
		p.views[i].snap.Release()
		p.views = slices.Delete(p.views, i, i+1)
	}
	p.mark.At, p.mark.Latest, p.mark.ObservedAt = at, at.Number+1, time.Unix(int64(at.Timestamp), 0)
}

// land applies a block to every partition that the node holds, each with the events that belong to it.
func (n *node) land(t testing.TB, partitions int32, at topics.BlockRef, events ...contracts.Event) {
	t.Helper()
	byPartition := map[int32][]contracts.Event{}
	for _, e := range events {
		p := topics.Partition(e.Entity().Key(), partitions)
		byPartition[p] = append(byPartition[p], e)
	}
	for p := range n.parts {
		n.advance(t, p, at, byPartition[p]...)
	}
}

func (n *node) View(_ context.Context, partition int32, at *topics.BlockRef) (state.View, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, ok := n.parts[partition]
	if !ok {
		return nil, query.ErrUnavailable
	}
	for _, v := range slices.Backward(p.views) {
		if at == nil || v.at.Number == at.Number && v.at.Hash == at.Hash {
			return v.snap.View(v.at), nil
		}
	}
	return nil, query.ErrUnavailable
}

func (n *node) Watermarks() []query.Watermark {
	n.mu.Lock()
	defer n.mu.Unlock()
	marks := make([]query.Watermark, 0, len(n.parts))
	for _, p := range n.parts {
		mark := p.mark
		mark.Kept = nil
		for _, v := range p.views[max(0, len(p.views)-toldViews):] {
			mark.Kept = append(mark.Kept, v.point())
		}
		if slices.ContainsFunc(p.views, func(v held) bool { return v.point() == n.stands }) {
			mark.Kept = append(mark.Kept, n.stands)
		}
		marks = append(marks, mark)
	}
	return marks
}

func span(n int32) (all []int32) {
	for p := range n {
		all = append(all, p)
	}
	return all
}

func word(n uint64) uint256.Int { return *uint256.NewInt(n) }

func address(n byte) common.Address { return common.BytesToAddress([]byte{0xa0, n}) }

// listing is a deal that differs by its ID alone; a test changes what it is about.
func listing(id uint64) *contracts.DealListed {
	return &contracts.DealListed{
		DealID: word(id), Borrower: address(1), Token: address(0x10), AmountOrTokenID: word(5), Cap: word(1_000), MinPrice: word(900),
		Term: 604_800, ListedAt: 1_000_000 + id, FeeBps: 50, TermsHash: common.Hash{1},
	}
}
