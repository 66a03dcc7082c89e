package engine

import (
	"maps"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// follows an owner by what it is told alone.
type mirror struct {
	t testing.TB

	mu     sync.Mutex
	rows   map[int32]map[string]string
	last   map[int32]Partition
	opened int
}

func (m *mirror) scan(v state.View) map[string]string {
	rows := map[string]string{}
	err := v.Scan(toyTable, nil, nil, func(k, row []byte) bool { rows[string(k)] = string(row); return true })
	if err != nil {
		m.t.Error(err)
	}
	return rows
}

func (m *mirror) Opened(p Partition, v state.View) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, open := m.rows[p.ID]; open {
		m.t.Errorf("partition %d opened twice", p.ID)
	}
	m.opened++
	m.rows[p.ID], m.last[p.ID] = m.scan(v), p
}

func (m *mirror) Applied(p Partition, v state.View, changes []Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rows := m.rows[p.ID]
	for _, c := range changes {
		if c.Row == nil {
			delete(rows, string(c.Key))
		} else {
			rows[string(c.Key)] = string(c.Row)
		}
	}
	if last := m.last[p.ID]; p.Incarnation != last.Incarnation || p.Reverts < last.Reverts {
		m.t.Errorf("%+v after %+v", p, last)
	}
	m.last[p.ID] = p
	if !maps.Equal(rows, m.scan(v)) {
		m.t.Errorf("partition %d at block %d: changes do not add up to the view", p.ID, v.At().Number)
	}
}

func (m *mirror) Closed(p Partition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.rows, p.ID)
}

// What an observer is told adds up to the views, across reorgs and crashes, and ends with Closed.
func TestObserver(t *testing.T) {
	e := newEnv(t, 2)
	c := newChain(t, e.kafka, e.cat, 2)
	m := &mirror{t: t, rows: map[int32]map[string]string{}, last: map[int32]Partition{}}
	cr := newCrasher(2, 20)
	cfg := e.config("a", vfs.NewMem())
	cfg.crash = cr.crash
	n := e.start(cfg, m)
	for range 20 {
		e.scenario(c, 3)
		e.caughtUp(c, n)
	}
	n.stop(t)
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.rows) > 0 || m.opened < 4 {
		t.Fatalf("%d partitions still open, opened %d times", len(m.rows), m.opened)
	}
}
