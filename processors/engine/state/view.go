package state

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/topics"
)

// Snapshot is the store as of a commit, which may still be pending. Barriers without changes share one; it is
// reference-counted. One scan after the other uses the same iterator: a new one costs more than most scans.
type Snapshot struct {
	store *Store
	from  source
	refs  atomic.Int32
	idle  atomic.Pointer[pebble.Iterator]
}

// source is what a Snapshot reads.
type source interface {
	reader
	io.Closer
}

// Snapshot takes a snapshot of the committed state, with one reference.
func (s *Store) Snapshot() *Snapshot { return s.hold(s.db.NewSnapshot()) }

// SnapshotWith takes a snapshot of the committed state plus the content of an overlay, with one reference. It
// stays valid whether or not the overlay is committed.
func (s *Store) SnapshotWith(o *Overlay) (*Snapshot, error) {
	b := &batched{batch: s.db.NewIndexedBatch(), rows: make(map[string][]byte, len(o.dirty))}
	err := o.writeRows(b.batch)
	if err == nil {
		b.merged, err = b.batch.NewIter(nil)
	}
	if err != nil {
		return nil, errors.Join(wrap("snapshot with a batch", err), b.batch.Close())
	}
	for _, r := range o.dirty {
		b.rows[string(appendRowKey(nil, r.layer.table.ID, r.key))] = r.now
	}
	b.below = s.db.NewSnapshot()
	return s.hold(b), nil
}

func (s *Store) hold(from source) *Snapshot {
	s.open.Add(1)
	n := &Snapshot{store: s, from: from}
	n.refs.Store(1)
	return n
}

// batched reads a batch over the store as of the batch's creation. The batch alone would read the current
// store; clones of an iterator keep its point in time.
type batched struct {
	batch  *pebble.Batch
	merged *pebble.Iterator
	rows   map[string][]byte // rows in the batch, by key; nil: deleted
	below  *pebble.Snapshot
}

func (b *batched) NewIter(o *pebble.IterOptions) (*pebble.Iterator, error) {
	return b.merged.Clone(pebble.CloneOptions{IterOptions: o})
}

// Get finds a row without an iterator, which would take twice as long.
func (b *batched) Get(key []byte) ([]byte, io.Closer, error) {
	switch row, ok := b.rows[string(key)]; {
	case !ok:
		return b.below.Get(key)
	case row == nil:
		return nil, nil, pebble.ErrNotFound
	default:
		return row, io.NopCloser(nil), nil
	}
}

func (b *batched) Close() error {
	return errors.Join(b.merged.Close(), b.batch.Close(), b.below.Close())
}

// Retain adds a reference; the caller must hold one.
func (n *Snapshot) Retain() *Snapshot {
	n.refs.Add(1)
	return n
}

// Release drops a reference.
func (n *Snapshot) Release() {
	if n.refs.Add(-1) > 0 {
		return
	}
	if it := n.idle.Swap(nil); it != nil {
		_ = it.Close() // a scan has already returned its error
	}
	if err := n.from.Close(); err != nil {
		n.store.logger.Error("cannot close a snapshot", zap.Error(err))
	}
	n.store.open.Done()
}

// View reads the snapshot as the state at a block, and holds a reference until it is closed.
func (n *Snapshot) View(at topics.BlockRef) View {
	return &view{at: at, snap: n.Retain()}
}

type view struct {
	at    topics.BlockRef
	snap  *Snapshot
	close sync.Once
}

func (v *view) At() topics.BlockRef { return v.at }

func (v *view) Close() {
	v.close.Do(v.snap.Release)
}

func (v *view) Get(t *Table, key []byte) ([]byte, error) {
	return get(v.snap.from, appendRowKey(make([]byte, 0, 2+len(key)), t.ID, key))
}

func (v *view) Scan(t *Table, prefix, after []byte, fn func(key, row []byte) bool) error {
	lower, upper := bounds([headBytes]byte{spaceRow, t.ID}, prefix, after)
	return v.scan(lower, upper, walk, fn)
}

func (v *view) ScanBack(t *Table, prefix, before []byte, fn func(key, row []byte) bool) error {
	head := [headBytes]byte{spaceRow, t.ID}
	lower, upper := bounds(head, prefix, nil)
	if before = append(head[:], before...); len(before) > len(head) && bytes.Compare(before, upper) < 0 {
		upper = before
	}
	return v.scan(lower, upper, walkBack, fn)
}

func (v *view) ScanIndex(index byte, prefix, after []byte, fn func(entry, value []byte) bool) error {
	lower, upper := bounds([headBytes]byte{spaceIndex, index}, prefix, after)
	return v.scan(lower, upper, walk, fn)
}

// visitor iterates over the entries within the iterator's bounds.
type visitor func(it *pebble.Iterator, fn func(key, value []byte) bool) error

func (v *view) scan(lower, upper []byte, walk visitor, fn func(key, value []byte) bool) (err error) {
	it := v.snap.idle.Swap(nil)
	if it != nil {
		it.SetBounds(lower, upper)
	} else if it, err = v.snap.from.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper}); err != nil {
		return wrap("scan", err)
	}
	if err := walk(it, fn); err != nil || !v.snap.idle.CompareAndSwap(nil, it) {
		return ended(it, err)
	}
	return nil
}
