package ingest

import (
	"context"
	"encoding/binary"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics"
)

// barrierOf is the nth barrier of a topic; block numbers skip.
func barrierOf(n uint64) topics.BlockRef {
	b := topics.BlockRef{Number: 3 * n}
	binary.BigEndian.PutUint64(b.Hash[:], n+1)
	return b
}

// topicOf passes so many barriers, newest first, made on the way.
func topicOf(n uint64) func(func(*topics.BlockEnd) (bool, error)) error {
	return func(take func(*topics.BlockEnd) (bool, error)) error {
		for i := n; i > 0; i-- {
			if more, err := take(&topics.BlockEnd{Block: barrierOf(i - 1)}); err != nil || !more {
				return err
			}
		}
		return nil
	}
}

// However long the topic is and wherever the chain left it, the last common barrier is found by a few questions.
func TestSearchFindsTheLastCommonBarrier(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(1, 20_000).Draw(t, "barriers")
		fork := rapid.Uint64Range(0, n-1).Draw(t, "common")
		head := rapid.Uint64Range(fork, n+5).Draw(t, "head")
		asked := 0
		s := search{back: topicOf(n), head: 3 * head, onChain: func(_ context.Context, b topics.BlockRef) (bool, error) {
			if asked++; b.Number > 3*head {
				t.Fatalf("block %d is asked for above the head %d", b.Number, 3*head)
			}
			return b.Number <= 3*fork, nil
		}}
		found, err := s.run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if top := min(head, n-1); top == fork {
			if found != nil {
				t.Fatalf("reverts to %d, and nothing contradicts the topic", found.Number)
			}
		} else if found == nil || *found != barrierOf(fork) {
			t.Fatalf("found %v, want %v", found, barrierOf(fork))
		}
		if most := 4 * (1 + int(math.Log2(float64(n+1)))); asked > most {
			t.Fatalf("%d questions about %d barriers", asked, n)
		}
	})
}

// A node that asks for fewer requests ends no search: the question is asked again.
func TestSearchBesideABusyNode(t *testing.T) {
	chain := rpctest.NewSparse(7, 100, 10, types.Log{Address: common.Address{1}, Topics: []common.Hash{{9}}})
	t.Cleanup(chain.Close)
	var asked atomic.Int32
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 2 { // the first is for the chain's ID
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		chain.ServeHTTP(w, r)
	}))
	t.Cleanup(busy.Close)
	cfg := rpc.DefaultConfig()
	cfg.ChainID, cfg.Addresses, cfg.Endpoints = 7, []common.Address{{1}}, []rpc.Endpoint{{URL: chain.URL}, {URL: busy.URL}}
	client, err := rpc.New(cfg, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	in := &Ingester{client: client}
	in.cfg.RPC = cfg
	if on, err := in.onChain(t.Context(), topics.BlockRef{Number: 50, Hash: chain.Hash(50)}); err != nil || !on {
		t.Errorf("block 50 is on the chain: %t, %v", on, err)
	}
}

// What takes back millions of barriers takes as much memory as what takes back few.
func TestRewindIsBoundedInMemory(t *testing.T) {
	const barriers, common = 3_000_000, 40
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most := heap(), uint64(0)
	back, seen := topicOf(barriers), 0
	measured := func(take func(*topics.BlockEnd) (bool, error)) error {
		return back(func(b *topics.BlockEnd) (bool, error) {
			if seen++; seen%500_000 == 0 {
				most = max(most, heap())
			}
			return take(b)
		})
	}
	s := search{back: measured, head: math.MaxUint64, onChain: func(_ context.Context, b topics.BlockRef) (bool, error) {
		return b.Number <= barrierOf(common).Number, nil
	}}
	found, err := s.run(t.Context())
	if err != nil || found == nil || *found != barrierOf(common) {
		t.Fatalf("found %v, %v", found, err)
	}
	next := uint64(barriers - 1)
	err = reverts(measured, *found, func(all []follow.Revert) error {
		if len(all) > maxReverts {
			t.Errorf("%d reverts in a transaction", len(all))
		}
		for _, r := range all {
			if r.Block != barrierOf(next) || r.Head != barrierOf(next-1) {
				t.Fatalf("revert of %v to %v, want the %d.", r.Block, r.Head, next)
			}
			next--
		}
		return nil
	})
	if err != nil || next != common {
		t.Fatalf("reverted down to %d, %v", next, err)
	}
	runtime.KeepAlive(&s)
	if taken := int64(most) - int64(before); taken > 4<<20 {
		t.Errorf("%d bytes are held for %d barriers", taken, barriers)
	}
}

// A walk backwards finds what is in force, whatever was reverted, published again or repeated.
func TestWalkFindsBarriersInForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			records []topics.Raw
			stack   []*topics.BlockEnd
			number  byte
		)
		for range rapid.IntRange(0, 60).Draw(t, "records") {
			top := len(stack) - 1
			switch rapid.SampledFrom([]string{"barrier", "barrier", "barrier", "again", "repeat", "revert"}).Draw(t, "kind") {
			case "barrier", "again":
				b := &topics.BlockEnd{Block: topics.BlockRef{Number: uint64(len(stack)), Hash: common.Hash{1 + number}}, Linked: true}
				if again := rapid.Byte().Draw(t, "again"); again%2 == 0 && top >= 0 { // a block that was reverted comes back
					b.Block.Hash = common.Hash{0xff, byte(len(stack)), stack[top].Block.Hash[0]}
				}
				number++
				if top >= 0 {
					b.Previous = stack[top].Block
				}
				records, stack = append(records, b), append(stack, b)
			case "repeat":
				if top >= 0 {
					records = append(records, stack[top])
				}
			case "revert":
				if top > 0 {
					records = append(records, &topics.BlockRevert{Block: stack[top].Block, Head: stack[top-1].Block})
					stack = stack[:top]
				}
			}
		}
		var w walk
		for _, raw := range slices.Backward(records) {
			b, err := w.take(raw)
			if err != nil {
				t.Fatal(err)
			}
			if b == nil {
				continue
			}
			if top := len(stack) - 1; top < 0 || stack[top].Block != b.Block {
				t.Fatalf("found %v, in force are %d", b.Block, len(stack))
			}
			stack = stack[:len(stack)-1]
		}
		if len(stack) > 0 {
			t.Fatalf("%d barriers were not found", len(stack))
		}
	})
}
