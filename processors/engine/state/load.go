package state

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// loadTableBytes is the size of the tables that a Load writes.
const loadTableBytes = 16 << 20

// Load fills an empty store from a changelog. It keeps the last version of each key, writes the result as
// sorted tables, and derives the indexes once, so no row is read back or overwritten. Only the store's writer
// may use it, and must not commit anything else meanwhile.
//
// Invariants:
//  1. the store stays empty until Commit, which adds all data and the meta at once;
//  2. files written before that are outside the store, and are removed by Close or when the store is opened.
type Load struct {
	s       *Store
	dir     string
	entries sorter
	indexes sorter
	tables  []string // to add to the store
}

const loading = ".load"

// Load begins a load. The store must have no meta: nothing was committed to it.
func (s *Store) Load() (*Load, error) { return s.load(s.memory.Load, s.memory.Load/2) }

func (s *Store) load(limit, indexLimit int) (*Load, error) {
	l := &Load{s: s, dir: s.dir + loading}
	if err := errors.Join(s.fs.RemoveAll(l.dir), s.fs.MkdirAll(l.dir, 0o750)); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	l.entries = s.loads.sorter(s.fs, s.fs.PathJoin(l.dir, "entries."), limit)
	l.indexes = s.loads.sorter(s.fs, s.fs.PathJoin(l.dir, "indexes."), indexLimit)
	return l, nil
}

// Restore takes a changelog entry, like Overlay.Restore; it keeps neither slice.
func (l *Load) Restore(key, value []byte) error {
	if err := l.s.checkEntry(key, value); err != nil {
		return err
	}
	return l.entries.add(key, value)
}

// Clear drops the entries.
func (l *Load) Clear() error { return l.entries.clear() }

// Commit adds the remaining entries and meta to the store. The load must not be used afterwards.
func (l *Load) Commit(ctx context.Context, meta []byte) error {
	if l.entries.empty() {
		return l.s.Commit(l.s.NewOverlay(), meta)
	}
	// Version and meta are part of the batch: a crash leaves all or nothing.
	w := &tableWriter{load: l}
	err := errors.Join(w.add(keyMeta, meta), w.add(keyVersion, []byte{layoutVersion}))
	var entries IndexEntries
	if err == nil {
		err = l.entries.each(func(key, value []byte) error {
			if value == nil {
				return nil
			}
			if t := l.s.tables[key[1]]; key[0] == spaceRow && t.Index != nil {
				entries.derive(t, key[headBytes:], value)
				for _, e := range entries.all {
					if err := l.indexes.add(entries.key(e), entries.value(e)); err != nil {
						return err
					}
				}
			}
			return w.add(key, value)
		})
	}
	if err == nil {
		err = l.indexes.each(w.add)
	}
	if err = errors.Join(err, w.end()); err != nil {
		return wrap("load", err)
	}
	l.s.rows.clear(false)
	err = l.s.db.Ingest(ctx, l.tables)
	l.s.reads.clear()
	return wrap("load", err)
}

// Close removes the files outside the store.
func (l *Load) Close() error {
	l.entries.close()
	l.indexes.close()
	return wrap("load", l.s.fs.RemoveAll(l.dir))
}

// tableWriter writes the tables of a load: keys ascend within a keyspace, and tables do not overlap.
type tableWriter struct {
	load  *Load
	table *sstable.Writer
	space byte
}

func (w *tableWriter) add(key, value []byte) error {
	if w.table != nil && (key[0] > spaceRow && key[0] != w.space || w.table.Raw().EstimatedSize() >= loadTableBytes) {
		if err := w.end(); err != nil {
			return err
		}
	}
	if w.table == nil {
		s := w.load.s
		path := s.fs.PathJoin(w.load.dir, fmt.Sprintf("%d.sst", len(w.load.tables)))
		f, err := s.fs.Create(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		w.table = sstable.NewWriter(objstorageprovider.NewFileWritable(f), s.tableOptions)
		w.load.tables = append(w.load.tables, path)
	}
	w.space = key[0]
	return w.table.Set(key, value)
}

// end finishes the current table.
func (w *tableWriter) end() error {
	if w.table == nil {
		return nil
	}
	err := w.table.Close()
	w.table = nil
	return err
}
