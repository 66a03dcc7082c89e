package state

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/topics"
)

// ErrCorrupt: the state on disk is corrupt: wipe it and restore it from the changelog.
var ErrCorrupt = errors.New("state on disk is corrupt")

// ErrIO: the store cannot be read or written. What is on disk may be whole: try again.
var ErrIO = errors.New("disk error")

// ErrNewer: a newer build wrote what this one cannot read. The state is intact: leave it for that build.
var ErrNewer = errors.New("written by a newer build of lienstream: run that build, or rebuild with `lienstream processors --rebuild`")

// Memory says how much the stores of a process may keep.
type Memory struct {
	Blocks   int64 // of blocks read from disk, for all stores together
	MemTable int   // of each memtable, of which a store has up to memTables
	Rows     int   // of each store's cache of rows for the writer, and of that for readers
	Load     int   // of entries that a Load sorts before it spills them
}

// MemTables is how many bytes a store's memtables take at most.
func (m Memory) MemTables() int { return memTables * m.MemTable }

// DefaultMemory suits 16 stores that may take some 150 MB together.
func DefaultMemory() Memory {
	return Memory{Blocks: 32 << 20, MemTable: 1 << 20, Rows: 2 << 20, Load: 8 << 20}
}

const (
	memTables     = 3  // writes block when this many are full
	restingTables = 2  // kept by an idle store: the one in use and one to reuse
	compactAt     = 12 // level-0 tables that trigger a compaction; with Pebble's 4, a backfill spends an eighth of its time on it
	deferAt       = 12 // level-0 tables that do while compactions are deferred: twice as many, as Pebble counts those of compactAt twice
	maxOpenFiles  = 64
)

// Cache keeps blocks read from disk, for all stores of a process.
type Cache struct {
	blocks *pebble.Cache
	memory Memory
	loads  sortMemory
}

// NewCache makes a cache for this many stores, which keep to this memory. Close it after them.
//
// Pebble subtracts the stores' memtables from the size: a cache without room for them would hold no block at
// all.
func NewCache(m Memory, stores int) *Cache {
	return &Cache{blocks: pebble.NewCache(m.Blocks + int64(stores)*restingTables*int64(m.MemTable)), memory: m}
}

// Close releases the cache.
func (c *Cache) Close() { c.blocks.Unref() }

// Options of a store.
type Options struct {
	Dir    string
	Tables []*Table
	Cache  *Cache // nil: the store makes its own
	FS     vfs.FS // nil: the disk
	Logger *zap.Logger

	// Written is told how each write of a memtable or a compaction ended, from any goroutine. It must not use the store. nil: nobody.
	Written func(error)
}

// Store keeps the rows of one partition on Pebble, with their indexes and the undo records of recent blocks.
// Only one goroutine may write; snapshots may be read and released from any.
//
// Invariants:
//  1. the disk holds a prefix of the commits: each is one batch, and batches are persisted in order. A crash
//     loses the last ones, never a part of one;
//  2. an index holds exactly what Table.Index derives from the rows;
//  3. meta was committed together with the rows.
//
// There is no write-ahead log, on purpose: the changelog is one, and it survives the loss of the disk. A second
// log would double the disk writes of a backfill only to save replaying two memtables after a restart.
type Store struct {
	db     *pebble.DB
	fs     vfs.FS
	dir    string
	tables [256]*Table
	memory Memory
	loads  *sortMemory    // of the process
	rows   *rowCache      // of the writer
	reads  readCache      // of snapshots
	slab   topics.Slab    // memory of the writer for events and keys of changelog entries
	packed float64        // bytes of a batch by those it was expected to have, as of the last commit; 0: there was none
	open   sync.WaitGroup // snapshots in use
	defers atomic.Bool    // compactions
	owes   bool           // compactions: some may have been deferred
	logger *zap.Logger

	tableOptions sstable.WriterOptions // of the tables of a Load
}

// Open opens or creates the store in a directory. ErrCorrupt: wipe the directory. ErrNewer: do not.
func Open(o Options) (*Store, error) {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	m, loads := DefaultMemory(), &sortMemory{}
	if o.Cache != nil {
		m, loads = o.Cache.memory, &o.Cache.loads
	}
	s := &Store{fs: o.FS, dir: o.Dir, logger: o.Logger, memory: m, loads: loads, rows: newRowCache(m.Rows), reads: readCache{limit: m.Rows}}
	for _, t := range o.Tables {
		if s.tables[t.ID] != nil {
			return nil, fmt.Errorf("tables %s and %s share the ID %d", s.tables[t.ID].Name, t.Name, t.ID)
		}
		s.tables[t.ID] = t
	}
	disk := &patientFS{FS: o.FS}
	if o.Written == nil {
		o.Written = func(error) {}
	}
	written := func(err error) { // of those that fail, BackgroundError is told
		if err == nil {
			o.Written(nil)
		}
	}
	opts := &pebble.Options{
		FS:                          disk,
		DisableWAL:                  true,
		MemTableSize:                uint64(m.MemTable),
		MemTableStopWritesThreshold: memTables,
		MaxOpenFiles:                maxOpenFiles,
		L0CompactionThreshold:       compactAt,
		L0StopWritesThreshold:       3 * compactAt,
		FormatMajorVersion:          pebble.FormatVirtualSSTables,
		Logger:                      pebbleLogger{o.Logger.Named("pebble").Sugar()},
	}
	// By default Pebble exits the process on a corrupt block; here the reader's error is handled.
	opts.EventListener = &pebble.EventListener{
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			s.logger.Error("corrupt file", zap.String("path", i.Path), zap.Error(i.Details))
		},
		BackgroundError: func(err error) {
			o.Written(err)
			if disk.refused() {
				s.logger.Error("cannot write the state to disk", zap.String("dir", s.dir), zap.String("error", err.Error()))
			}
		},
		FlushEnd:      func(i pebble.FlushInfo) { written(i.Err) },
		CompactionEnd: func(i pebble.CompactionInfo) { written(i.Err) },
	}
	if o.Cache != nil {
		opts.Cache = o.Cache.blocks
	} else {
		opts.CacheSize = 8 << 20
	}
	// No compaction at a time, and one from deferAt on. Pebble takes 0 for that, although it asks for more.
	opts.CompactionConcurrencyRange = func() (lower, upper int) {
		if s.defers.Load() {
			return 0, 1
		}
		return 1, 1
	}
	opts.Experimental.L0CompactionConcurrency = deferAt
	// Otherwise a table ingested over a memtable would depend on the write-ahead log, which does not exist.
	opts.Experimental.DisableIngestAsFlushable = func() bool { return true }
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // Apply often looks up new keys
	}
	if err := o.FS.RemoveAll(o.Dir + loading); err != nil {
		return nil, wrap("open", err)
	}
	db, err := pebble.Open(o.Dir, opts)
	if err != nil {
		return nil, wrap("open", err)
	}
	s.db = db
	opts.EnsureDefaults()
	s.tableOptions = opts.MakeWriterOptions(len(opts.Levels)-1, opts.FormatMajorVersion.MaxTableFormat())
	if err := s.checkVersion(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func (s *Store) checkVersion() error {
	v, err := get(s.db, keyVersion)
	if err != nil {
		return err
	}
	if v == nil {
		s.rows.clear(true) // a new store
		return wrap("write layout version", s.db.Set(keyVersion, []byte{layoutVersion}, pebble.NoSync))
	}
	if !slices.Equal(v, []byte{layoutVersion}) {
		if len(v) == 1 && v[0] > layoutVersion {
			return fmt.Errorf("%w: layout version %d, this build has %d", ErrNewer, v[0], layoutVersion)
		}
		return fmt.Errorf("%w: layout version %x, want %d", ErrCorrupt, v, layoutVersion)
	}
	return nil
}

// Close waits until no snapshot is in use, flushes the memtables and closes. What a full disk does not accept
// is still in the changelog.
func (s *Store) Close() error {
	s.open.Wait()
	return errors.Join(wrap("flush", s.flush()), wrap("close", s.db.Close()))
}

// flushTimeout bounds a flush: Pebble retries while the disk is full.
const flushTimeout = 2 * time.Second

var errFlush = errors.New("disk is not writable, it may be full")

// flush writes the memtables to disk.
func (s *Store) flush() error {
	done, err := s.db.AsyncFlush()
	if err != nil {
		return err
	}
	timeout := time.NewTimer(flushTimeout)
	defer timeout.Stop()
	select {
	case <-done:
		return nil
	case <-timeout.C:
		return errFlush
	}
}

// DeferCompactions makes Pebble compact only what makes reads slow or is mostly garbage. A large commit deletes so many index
// entries that Pebble compacts the table of each, and writes the whole store again. The first commit after deferring has ended
// makes up for it.
func (s *Store) DeferCompactions(on bool) {
	if s.defers.Swap(on); on && !s.owes {
		s.reads.clear()
	}
	s.owes = s.owes || on
}

// KeepRows sets how many bytes of rows are kept in memory for the writer.
func (s *Store) KeepRows(bytes int) { s.rows.resize(bytes) }

// Meta is the meta of the last commit; nil in a new store.
func (s *Store) Meta() ([]byte, error) { return get(s.db, keyMeta) }

func (s *Store) table(id byte) (*Table, error) {
	if t := s.tables[id]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("%w: no table has the ID %d", ErrNewer, id)
}

// reader is the source of get and scan.
type reader interface {
	Get(key []byte) (value []byte, closer io.Closer, err error)
	NewIter(o *pebble.IterOptions) (*pebble.Iterator, error)
}

// get returns a copy of a value, or nil.
func get(r reader, key []byte) ([]byte, error) {
	v, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, wrap("get", err)
	}
	out := append(make([]byte, 0, len(v)), v...)
	return out, wrap("get", closer.Close())
}

// ended closes an iterator; Close would return the known error again.
func ended(it *pebble.Iterator, err error) error {
	if again := it.Close(); err == nil {
		err = wrap("scan", again)
	}
	return err
}

// walk calls fn for the entries within the iterator's bounds.
func walk(it *pebble.Iterator, fn func(key, value []byte) bool) error {
	return visit(it, it.First(), it.Next, fn)
}

// walkBack does the same in descending order.
func walkBack(it *pebble.Iterator, fn func(key, value []byte) bool) error {
	return visit(it, it.Last(), it.Prev, fn)
}

func visit(it *pebble.Iterator, valid bool, move func() bool, fn func(key, value []byte) bool) error {
	for ; valid; valid = move() {
		v, err := it.ValueAndErr()
		if err != nil {
			return wrap("scan", err)
		}
		if !fn(it.Key()[headBytes:], v) {
			return nil
		}
	}
	return wrap("scan", it.Error())
}

// wrap marks errors of Pebble that mean a corrupt file.
func wrap(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case pebble.IsCorruptionError(err):
		return fmt.Errorf("%s: %w: %w", what, ErrCorrupt, err)
	}
	return fmt.Errorf("%s: %w: %w", what, ErrIO, err)
}

// pebbleLogger logs Pebble's messages at debug. Pebble calls Fatalf when it cannot continue (its manifest
// cannot be written): the process exits, and the next one finds a prefix of the commits.
type pebbleLogger struct{ *zap.SugaredLogger }

func (l pebbleLogger) Infof(format string, args ...any)  { l.Debugf(format, args...) }
func (l pebbleLogger) Errorf(format string, args ...any) { l.Warnf(format, args...) }
