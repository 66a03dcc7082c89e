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
	at    uint64 // the commit
	far   bool   // far behind the head, where rows are read once
	refs  atomic.Int32
	idle  atomic.Pointer[pebble.Iterator]
}

// source is what a Snapshot reads.
type source interface {
	reader
	io.Closer
}

// Snapshot takes a snapshot of the committed state, with one reference.
func (s *Store) Snapshot() *Snapshot { return s.hold(s.reads.now(), s.db.NewSnapshot()) }

// SnapshotWith takes a snapshot of the committed state plus the content of an overlay, with one reference. It
// stays valid whether or not the overlay is committed.
func (s *Store) SnapshotWith(o *Overlay) (*Snapshot, error) {
	b := &batched{batch: s.db.NewIndexedBatch(), rows: make(map[string][]byte, len(o.dirty)), groups: map[string]struct{}{}}
	err := o.writeRows(b.batch)
	if err == nil {
		b.merged, err = b.batch.NewIter(nil)
	}
	if err != nil {
		return nil, errors.Join(wrap("snapshot with a batch", err), b.batch.Close())
	}
	for _, r := range o.dirty {
		key := string(appendRowKey(nil, r.layer.table.ID, r.key))
		b.rows[key] = r.now
		if g := r.layer.table.Group; g > 0 && g < len(r.key) {
			b.groups[key[:headBytes+g]] = struct{}{}
		}
	}
	at := s.reads.now()
	b.below = s.db.NewSnapshot()
	return s.hold(at, b), nil
}

func (s *Store) hold(at uint64, from source) *Snapshot {
	s.open.Add(1)
	n := &Snapshot{store: s, from: from, at: at, far: s.defers.Load()}
	n.refs.Store(1)
	return n
}

// batched reads a batch over the store as of the batch's creation. The batch alone would read the current
// store; clones of an iterator keep its point in time.
type batched struct {
	batch  *pebble.Batch
	merged *pebble.Iterator
	rows   map[string][]byte // rows in the batch, by key; nil: deleted
	groups map[string]struct{}
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
	n := v.snap
	key = appendRowKey(make([]byte, 0, headBytes+len(key)), t.ID, key)
	if n.far || n.pending(key) {
		return get(n.from, key)
	}
	r, ok := n.store.reads.get(n.at, key)
	if !ok {
		var err error
		if r.row, err = get(n.from, key); err != nil {
			return nil, err
		}
		n.store.reads.put(n.at, key, r)
	}
	return bytes.Clone(r.row), nil
}

// pending reports whether the row or a row of the group is part of a commit that may be pending.
func (n *Snapshot) pending(key []byte) bool {
	b, ok := n.from.(*batched)
	if !ok {
		return false
	}
	_, row := b.rows[string(key)]
	_, group := b.groups[string(key)]
	return row || group
}

// group calls fn for the rows of a group, the last one first; known is false where it has to be scanned.
func (v *view) group(t *Table, name []byte, fn func(key, row []byte) bool) (known bool, err error) {
	n := v.snap
	head := appendRowKey(make([]byte, 0, headBytes+len(name)), t.ID, name)
	if n.far || n.pending(head) {
		return false, nil
	}
	r, ok := n.store.reads.get(n.at, head)
	if !ok {
		lower, upper := bounds([headBytes]byte{spaceRow, t.ID}, name, nil)
		err := v.scan(lower, upper, walkBack, func(key, row []byte) bool {
			if r.large = len(r.group) == maxGroup; !r.large {
				r.group = append(r.group, groupRow{bytes.Clone(key), append([]byte{}, row...)})
			}
			return !r.large
		})
		if err != nil {
			return false, err
		}
		if r.large {
			r.group = nil
		}
		n.store.reads.put(n.at, head, r)
	}
	for i := range r.group {
		if !fn(r.group[i].key, r.group[i].row) {
			break
		}
	}
	return !r.large, nil
}

func (v *view) Scan(t *Table, prefix, after []byte, fn func(key, row []byte) bool) error {
	lower, upper := bounds([headBytes]byte{spaceRow, t.ID}, prefix, after)
	return v.scan(lower, upper, walk, fn)
}

func (v *view) ScanBack(t *Table, prefix, before []byte, fn func(key, row []byte) bool) error {
	if t.Group > 0 && len(prefix) == t.Group && before == nil {
		if known, err := v.group(t, prefix, fn); known || err != nil {
			return err
		}
	}
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
