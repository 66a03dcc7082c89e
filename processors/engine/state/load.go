package state

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Memory that a Load holds: entries before they go to disk, index entries besides, and the size of the tables that it
// makes.
const (
	loadBytes      = 8 << 20
	loadIndexBytes = 4 << 20
	loadTableBytes = 16 << 20
)

// Load fills an empty store with the entries of a changelog. It keeps the last version of each key, writes what is left
// as tables, in order, and derives the indexes of that once: nothing is read to be written over. It belongs to the
// store's one writer, who commits nothing else meanwhile.
//
// Invariants:
//  1. the store stays empty until Commit, which gives it all, with the meta, at once;
//  2. what it writes before that is beside the store, and goes with Close or when the store is opened.
type Load struct {
	s       *Store
	dir     string
	entries sorter
	indexes sorter
	tables  []string // for the store
}

const loading = ".load"

// Load begins one. The store must have no meta: nothing was committed to it.
func (s *Store) Load() (*Load, error) { return s.load(loadBytes, loadIndexBytes) }

func (s *Store) load(limit, indexLimit int) (*Load, error) {
	l := &Load{s: s, dir: s.dir + loading}
	if err := errors.Join(s.fs.RemoveAll(l.dir), s.fs.MkdirAll(l.dir, 0o750)); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	l.entries = sorter{fs: s.fs, path: s.fs.PathJoin(l.dir, "entries."), limit: limit}
	l.indexes = sorter{fs: s.fs, path: s.fs.PathJoin(l.dir, "indexes."), limit: indexLimit}
	return l, nil
}

// Restore takes an entry, as Overlay.Restore does; it keeps neither slice.
func (l *Load) Restore(key, value []byte) error {
	if err := l.s.checkEntry(key, value); err != nil {
		return err
	}
	return l.entries.add(key, value)
}

// Clear forgets the entries.
func (l *Load) Clear() error { return l.entries.clear() }

// Commit gives the store what is left of the entries, and meta. The load is spent.
func (l *Load) Commit(ctx context.Context, meta []byte) error {
	if l.entries.empty() {
		return l.s.Commit(l.s.NewOverlay(), meta)
	}
	// Version and meta are part of it: a crash leaves all or nothing.
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
	return wrap("load", l.s.db.Ingest(ctx, l.tables))
}

// Close removes what is on disk beside the store.
func (l *Load) Close() error {
	return wrap("load", l.s.fs.RemoveAll(l.dir))
}

// tableWriter writes the tables of a load: keys ascend within a keyspace, and no table has keys of two that others lie
// between.
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

// end completes the table that is being written.
func (w *tableWriter) end() error {
	if w.table == nil {
		return nil
	}
	err := w.table.Close()
	w.table = nil
	return err
}
