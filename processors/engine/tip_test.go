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
func (e *env) commits(p int32) (n int) {
	for _, r := range e.readAll(e.cat.Changelog("market"), p) {
		if bytes.Equal(r.Key, keyProgress) {
			n++
		}
	}
	return n
}
