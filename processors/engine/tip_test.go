package engine

import (
	"bytes"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// told notes for each block which rows an observer was told of.
type told struct {
	mu   sync.Mutex
	rows map[uint64]map[string]bool
}

func (*told) Opened(Partition, state.View) {}
func (*told) Closed(Partition)             {}

func (o *told) Applied(_ Partition, v state.View, changes []Change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range changes {
		if o.rows[v.At().Number] == nil {
			o.rows[v.At().Number] = map[string]bool{}
		}
		o.rows[v.At().Number][string(c.Key)] = true
	}
}

// Blocks that come soon after each other are visible at once, observers are told of each what it changed, and several
// of them are one commit.
func TestBlocksShareACommit(t *testing.T) {
	e := newEnv(t, 2)
	c := newChain(t, e.kafka, e.cat, 3)
	c.keys = 100
	o, m := &told{rows: map[uint64]map[string]bool{}}, &mirror{t: t, rows: map[int32]map[string]string{}, last: map[int32]Partition{}}
	cfg := e.config("a", vfs.NewMem())
	cfg.TipInterval = time.Second
	n := e.start(cfg, o, m)
	c.add(1)
	e.caughtUp(c, n)
	before := e.commits(0)
	const blocks = 64
	for i := range blocks {
		if i == blocks/2 {
			c.reorg(3)
		}
		c.add(1)
		e.caughtUp(c, n)
		e.invariantState(c, n)
	}
	if n := e.commits(0) - before; n > blocks/2 {
		t.Errorf("%d commits of %d blocks", n, blocks)
	}
	e.invariantTopics(c)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range c.blocks[blocks/2+8:] { // no commit spans these and the reorg
		want := map[string]bool{}
		for _, logs := range b.logs {
			for _, l := range logs {
				want[string(l.Address[:common.AddressLength])] = true
			}
		}
		if got := o.rows[b.ref.Number]; !maps.Equal(got, want) {
			t.Errorf("block %d changed %d rows, observers were told of %d", b.ref.Number, len(want), len(got))
		}
	}
}

// commits is how many commits a partition's changelog has.
func (e *env) commits(p int32) (n int) { return len(e.progress(p)) }

// progress is what the commits of a partition say.
func (e *env) progress(p int32) (all []progress) {
	for _, r := range e.readAll(e.cat.Changelog("market"), p) {
		if bytes.Equal(r.Key, keyProgress) {
			_, payload, err := unseal(r.Key, r.Value)
			check(e.t, err)
			at, _, err := decodeProgress(payload)
			check(e.t, err)
			all = append(all, at)
		}
	}
	return all
}

// A block's rows do not wait for the events of all blocks that it makes final: these follow, without another block.
func TestFinalEventsFollow(t *testing.T) {
	e := newEnv(t, 1)
	c := newChain(t, e.kafka, e.cat, 4)
	n := e.start(e.config("a", vfs.NewMem()))
	for range 20 {
		c.add(1)
		e.caughtUp(c, n)
	}
	for c.final == 0 || len(c.blocks[len(c.blocks)-1].logs[0]) == 0 {
		c.final += 10
		c.add(1)
		e.caughtUp(c, n)
	}
	e.invariantFinal(c, c.final)
	var floors []uint64
	for _, at := range e.progress(0) {
		if at.At.Same(c.head()) {
			floors = append(floors, at.Floor)
		}
	}
	if len(floors) != 2 || floors[0] >= c.final || floors[1] != c.final {
		t.Errorf("the commits of the block call %d final, want first less and then %d", floors, c.final)
	}
}
