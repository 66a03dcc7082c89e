package state

import (
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lienstream/lienstream/topics"
)

// Snapshot is the store as of a commit. Barriers that touched nothing share one; it is counted and
// released with its last holder.
type Snapshot struct {
	store *Store
	snap  *pebble.Snapshot
	refs  atomic.Int32
}

// Snapshot takes a snapshot of what is committed, held once.
func (s *Store) Snapshot() *Snapshot {
	s.open.Add(1)
	n := &Snapshot{store: s, snap: s.db.NewSnapshot()}
	n.refs.Store(1)
	return n
}

// Retain adds a holder; the caller must be one.
func (n *Snapshot) Retain() *Snapshot {
	n.refs.Add(1)
	return n
}

// Release takes a holder away.
func (n *Snapshot) Release() {
	if n.refs.Add(-1) > 0 {
		return
	}
	if err := n.snap.Close(); err != nil {
		n.store.logger.Error("close snapshot")
	}
	n.store.open.Done()
}

// View reads the snapshot as the state at a block, and holds it until it is closed.
func (n *Snapshot) View(at topics.BlockRef) View {
	return &view{at: at, snap: n.Retain()}
}

type view struct {
	at    topics.BlockRef
	snap  *Snapshot
	close sync.Once
}

func (v *view) At() topics.BlockRef { return v.at }

func (v *view) Close() { v.close.Do(v.snap.Release) }

func (v *view) Get(t *Table, key []byte) ([]byte, error) {
	return get(v.snap.snap, appendRowKey(make([]byte, 0, 2+len(key)), t.ID, key))
}

func (v *view) Scan(t *Table, prefix, after []byte, fn func(key, row []byte) bool) error {
	return scan(v.snap.snap, [2]byte{spaceRow, t.ID}, prefix, after, fn)
}

func (v *view) ScanIndex(index byte, prefix, after []byte, fn func(entry, value []byte) bool) error {
	return scan(v.snap.snap, [2]byte{spaceIndex, index}, prefix, after, fn)
}
