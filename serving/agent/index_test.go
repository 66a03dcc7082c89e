package agent

import (
	"context"
	"encoding/json"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	ethereum "github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	marketapp "github.com/lienstream/lienstream/processors/market"
	"github.com/lienstream/lienstream/processors/market/changes"
	"github.com/lienstream/lienstream/processors/market/family"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

const partitions = 2

// index is a node that holds every partition: the real families on the real state, fed with the logs of a chain. It
// is a query.Source; the real router reads it.
type index struct {
	*changes.Log
	read.Broadcast

	t        testing.TB
	decoder  *contracts.Decoder
	families *family.Set
	stores   []*state.Store

	mu    sync.Mutex
	snaps []*state.Snapshot
	at    topics.BlockRef
	gone  bool
}

func newIndex(t testing.TB, dep contracts.Deployment) *index {
	t.Helper()
	x := &index{Log: changes.New(), t: t, decoder: contracts.NewDecoder(dep), families: marketapp.Families(dep)}
	cache := state.NewCache(state.DefaultMemory(), 1)
	for range partitions {
		store, err := state.Open(state.Options{
			Dir: "db", FS: vfs.NewMem(), Cache: cache, Tables: x.families.Tables(),
		})
		if err != nil {
			t.Fatal(err)
		}
		x.stores, x.snaps = append(x.stores, store), append(x.snaps, store.Snapshot())
	}
	t.Cleanup(func() {
		for p, store := range x.stores {
			x.snaps[p].Release()
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}
		cache.Close()
	})
	return x
}

// feed applies a block of the chain.
func (x *index) feed(at topics.BlockRef, logs []types.Log) {
	x.t.Helper()
	overlays := make([]*state.Overlay, partitions)
	for p, store := range x.stores {
		overlays[p] = store.NewOverlay()
		overlays[p].Begin(at, true)
	}
	for _, l := range logs {
		event := x.decoder.Decode(l.Address, l.Topics, l.Data)
		w := overlays[topics.Partition(event.Entity().Key(), partitions)]
		_, err := x.families.Apply(w, topics.EventMeta{Block: at, Tx: l.TxHash}, event)
		if err != nil {
			x.t.Fatalf("apply %T: %v", event, err)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.at = at
	x.Notify()
	for p, store := range x.stores {
		if err := overlays[p].Settle(0, 0, func(state.Event) {}); err != nil {
			x.t.Fatal(err)
		}
		if err := store.Commit(overlays[p], nil); err != nil {
			x.t.Fatal(err)
		}
		x.snaps[p].Release()
		x.snaps[p] = store.Snapshot()
	}
}

func (x *index) View(_ context.Context, p int32, at *topics.BlockRef) (state.View, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.gone || at != nil && at.Hash != x.at.Hash {
		return nil, query.ErrUnavailable
	}
	return x.snaps[p].View(x.at), nil
}

func (x *index) Watermarks() []query.Watermark {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.gone {
		return nil
	}
	marks := make([]query.Watermark, partitions)
	for p := range marks {
		marks[p] = query.Watermark{Partition: int32(p), Role: topics.RoleOwner, Incarnation: 1, At: x.at, Latest: x.at.Number, ObservedAt: time.Now()}
	}
	return marks
}

// claims replaces the block that the index says it is at.
func (x *index) claims(at topics.BlockRef) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.at = at
	x.Notify()
}

func (x *index) leaves(gone bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.gone = gone
	x.Notify()
}

func (x *index) reader(dep contracts.Deployment) query.Reader {
	x.t.Helper()
	routing := query.DefaultConfig()
	routing.Partitions, routing.Local, routing.Instance, routing.Patience = partitions, x, "here", time.Millisecond
	routing.Registerer = prometheus.NewRegistry()
	router, err := query.NewClient(routing, dep)
	if err != nil {
		x.t.Fatal(err)
	}
	return router
}

// catchUp feeds every block of the chain that the index does not have yet.
func (x *index) catchUp(node devchain.Backend) {
	x.t.Helper()
	client := node.Client()
	head, err := client.BlockNumber(x.t.Context())
	if err != nil {
		x.t.Fatal(err)
	}
	for n := x.at.Number + 1; n <= head; n++ {
		header, err := client.HeaderByNumber(x.t.Context(), new(big.Int).SetUint64(n))
		if err != nil {
			x.t.Fatal(err)
		}
		hash := header.Hash()
		logs, err := client.FilterLogs(x.t.Context(), ethereum.FilterQuery{BlockHash: &hash, Addresses: x.decoder.Addresses()})
		if err != nil {
			x.t.Fatal(err)
		}
		x.feed(topics.BlockRef{Number: n, Hash: hash, Timestamp: header.Time}, logs)
	}
}

// TestAnAnswerIsOfItsBlocks: an answer is given again while the chain and the index stand still, and in the second of
// its evidence only.
func TestAnAnswerIsOfItsBlocks(t *testing.T) {
	w := newWorld(t, newNode(t, 12), 12, 20)
	now := w.agent.now()
	w.agent.now = func() time.Time { return now }
	for _, target := range []string{"/v1/assets?limit=1", "/v1/listings?limit=2", "/v1/portfolio/" + w.actors[0].Hex()} {
		first := get[page[json.RawMessage]](w, target)
		now = now.Add(time.Second)
		again := get[page[json.RawMessage]](w, target)
		if again.Evidence.ObservedAt != first.Evidence.ObservedAt+1 {
			t.Errorf("%s: observed at %d, and a second later at %d", target, first.Evidence.ObservedAt, again.Evidence.ObservedAt)
		}
		again.Evidence.ObservedAt--
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("%s: %s", target, diff)
		}
		w.steps(1)
		head := w.head() // the index is behind
		if p := get[page[json.RawMessage]](w, target); p.Evidence.BlockHash != head.Hash.Hex() || p.Checkpoint.BlockHash != first.Checkpoint.BlockHash {
			t.Errorf("%s: at another head it says %+v, %+v", target, p.Evidence, p.Checkpoint)
		}
		w.index.catchUp(w.node)
		if p := get[page[json.RawMessage]](w, target); p.Checkpoint.BlockHash != head.Hash.Hex() {
			t.Errorf("%s: of another block of the index it says %+v", target, p.Checkpoint)
		}
		w.steps(1)
		w.sync()
	}
}

// TestTheHeadWasReplaced: the index and the nodes are on another branch than the head that the service still takes for the
// newest.
func TestTheHeadWasReplaced(t *testing.T) {
	w := newWorld(t, newNode(t, 13), 13, 20)
	mined := func(after uint64) topics.BlockRef {
		t.Helper()
		before, err := w.node.Client().HeaderByNumber(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := w.node.Mine(t.Context(), before.Time+after, nil)
		if err != nil {
			t.Fatal(err)
		}
		return topics.BlockRef{Number: b.Number, Hash: b.Hash, Timestamp: b.Timestamp}
	}
	for range 3 {
		mined(1)
	}
	replaced := w.sync()
	get[page[json.RawMessage]](w, "/v1/listings")
	if err := w.node.Rewind(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	for at := mined(2); at.Number < replaced.Number+3; at = mined(2) {
		if at.Number <= replaced.Number { // an index does not go back without a revert
			continue
		}
		w.index.claims(at)
		w.isError("UPSTREAM_UNAVAILABLE", w.Get(t, "/v1/listings"))
	}
	longer := w.sync()
	if err := w.node.Rewind(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	at := topics.BlockRef{Number: longer.Number, Hash: longer.Hash, Timestamp: longer.Timestamp}
	mined(3)
	if short := w.head(); short.Number >= at.Number {
		t.Fatalf("the chain is at %d, and the index at %d", short.Number, at.Number)
	}
	w.isError("STALE_INDEXER", w.Get(t, "/v1/listings")) // of the branch that was taken back, which is longer
	for w.head().Number < at.Number+2 {
		w.index.claims(mined(1))
	}
	if head := w.head(); get[page[json.RawMessage]](w, "/v1/listings").Evidence.BlockHash != head.Hash.Hex() {
		t.Error("not answered as of the new head")
	}
}
