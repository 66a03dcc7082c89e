package state

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/topics"
)

// ErrCorrupt means that what is on disk cannot be trusted: wipe it and restore it from the changelog.
var ErrCorrupt = errors.New("state on disk is corrupt")

// ErrNewer means that a newer build has written what this one cannot read. Nothing is wrong with it: leave it as it
// is, for a build that can.
var ErrNewer = errors.New("written by a newer build of lienstream: run that build, or rebuild with `lienstream processors --rebuild`")

// Memory that a store may hold, on top of the shared cache and its rowCache: memtables while one is flushed. A task
// writes a megabyte a second at most, so small ones flush seldom enough.
const (
	memTableBytes = 1 << 20
	memTables     = 3  // writes wait when as many are full
	restingTables = 2  // that a store keeps when nothing is written: the one in use, and one to be used again
	compactAt     = 12 // tables on top of each other; at Pebble's 4 a backfill spends an eighth of its time on it
	maxOpenFiles  = 64
)

// DefaultCacheBytes is the size of a Cache that suits the tasks of one process together.
const DefaultCacheBytes = 32 << 20

// Cache keeps blocks read from disk for all stores of a process.
type Cache struct{ blocks *pebble.Cache }

// NewCache makes a cache of so many bytes of blocks for as many stores as that. Close it after them.
//
// Pebble takes the stores' memtables out of its size: a cache without room for them would hold no block at all.
func NewCache(blockBytes int64, stores int) *Cache {
	return &Cache{pebble.NewCache(blockBytes + int64(stores)*restingTables*memTableBytes)}
}

// Close gives its memory back.
func (c *Cache) Close() { c.blocks.Unref() }

// Options of a store.
type Options struct {
	Dir    string
	Tables []*Table
	Cache  *Cache // nil: one of its own
	FS     vfs.FS // nil: the disk
	Logger *zap.Logger
}

// Store is the rows of one partition on Pebble, with their indexes and the undo of recent blocks.
// Writing belongs to one goroutine; snapshots may be read and released from any.
//
// Invariants:
//  1. what is on disk is a prefix of the commits: each is one batch, and batches are kept or lost in
//     their order. A crash loses the last ones, never a part of one;
//  2. an index holds exactly what Table.Index derives from the rows beside it;
//  3. meta was committed with the rows beside it.
//
// There is no write-ahead log, on purpose: the changelog already is one, and it outlives the disk. A
// second log on disk would double what a backfill writes, to save a restart the replay of two memtables.
type Store struct {
	db     *pebble.DB
	fs     vfs.FS
	dir    string
	tables [256]*Table
	rows   *rowCache      // of the writer
	slab   topics.Slab    // of the writer: events, and keys of changelog entries
	open   sync.WaitGroup // snapshots
	logger *zap.Logger

	tableOptions sstable.WriterOptions // of what a Load makes
}

// Open opens or makes the store in a directory. ErrCorrupt: wipe the directory. ErrNewer: do not.
func Open(o Options) (*Store, error) {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	s := &Store{fs: o.FS, dir: o.Dir, logger: o.Logger, rows: newRowCache(rowCacheBytes)}
	for _, t := range o.Tables {
		if s.tables[t.ID] != nil {
			return nil, fmt.Errorf("tables %s and %s share the ID %d", s.tables[t.ID].Name, t.Name, t.ID)
		}
		s.tables[t.ID] = t
	}
	opts := &pebble.Options{
		FS:                          o.FS,
		DisableWAL:                  true,
		MemTableSize:                memTableBytes,
		MemTableStopWritesThreshold: memTables,
		MaxOpenFiles:                maxOpenFiles,
		L0CompactionThreshold:       compactAt,
		L0StopWritesThreshold:       3 * compactAt,
		FormatMajorVersion:          pebble.FormatVirtualSSTables,
		Logger:                      pebbleLogger{o.Logger.Named("pebble").Sugar()},
	}
	// By default Pebble ends the process over a bad block; here the reader's error is acted on.
	opts.EventListener = &pebble.EventListener{
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			s.logger.Error("corrupt file", zap.String("path", i.Path), zap.Error(i.Details))
		},
		BackgroundError: func(err error) { s.logger.Error("cannot write the state to disk", zap.Error(err)) },
	}
	if o.Cache != nil {
		opts.Cache = o.Cache.blocks
	} else {
		opts.CacheSize = 8 << 20
	}
	// Else what is ingested over a memtable would wait in the log that there is none of.
	opts.Experimental.DisableIngestAsFlushable = func() bool { return true }
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // an apply asks for keys that are new
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
		s.rows.clear(true) // it is the first that is ever written
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

// Close waits for the snapshots that are in use, writes what is in memory to disk and closes. What a full
// disk does not take is in the changelog.
func (s *Store) Close() error {
	s.open.Wait()
	return errors.Join(wrap("flush", s.flush()), wrap("close", s.db.Close()))
}

// flushTimeout bounds a flush: Pebble tries for as long as the disk is full.
const flushTimeout = 2 * time.Second

var errFlush = errors.New("disk is not writable, it may be full")

// flush writes what is in memory to disk.
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

// Meta is what the last commit gave as meta; nil in a new store.
func (s *Store) Meta() ([]byte, error) { return get(s.db, keyMeta) }

// DiskBytes is what the store takes on disk.
func (s *Store) DiskBytes() uint64 { return s.db.Metrics().DiskSpaceUsage() }

func (s *Store) table(id byte) (*Table, error) {
	if t := s.tables[id]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("%w: no table has the ID %d", ErrNewer, id)
}

// reader is what get and scan read.
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

// scan calls fn for the keys that start with head‖prefix, without the head.
func scan(r reader, head [headBytes]byte, prefix, after []byte, fn func(key, value []byte) bool) error {
	lower, upper := bounds(head, prefix, after)
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return wrap("scan", err)
	}
	return ended(it, walk(it, fn))
}

// ended closes an iterator, whose Close would repeat an error that is known.
func ended(it *pebble.Iterator, err error) error {
	if again := it.Close(); err == nil {
		err = wrap("scan", again)
	}
	return err
}

// walk calls fn for what lies within the iterator's bounds.
func walk(it *pebble.Iterator, fn func(key, value []byte) bool) error {
	return visit(it, it.First(), it.Next, fn)
}

// walkBack does the same from the end.
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

// wrap marks the errors of Pebble that mean that a file is not what was written.
func wrap(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case pebble.IsCorruptionError(err):
		return fmt.Errorf("%s: %w: %w", what, ErrCorrupt, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// pebbleLogger keeps Pebble's chatter at debug. Fatalf is called where Pebble cannot go on (its manifest
// cannot be written): the process ends, and the next one finds a prefix of the commits.
type pebbleLogger struct{ *zap.SugaredLogger }

func (l pebbleLogger) Infof(format string, args ...any)  { l.Debugf(format, args...) }
func (l pebbleLogger) Errorf(format string, args ...any) { l.Warnf(format, args...) }
