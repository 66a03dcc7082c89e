package state

import (
	"bufio"
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// sorter sorts entries by key and keeps the last of each key. Entries beyond limit bytes are spilled to disk as
// sorted runs. Close removes them.
//
// A run is a list of entries sorted by key, each uvarint(len) key uvarint(0 | len+1) value, where 0 is a
// deletion; then an empty key and the crc32c(4) of everything before.
type sorter struct {
	fs      vfs.FS
	path    string // of runs, without their number
	limit   int
	memory  *sortMemory
	arena   []byte // keys and values of entries
	entries []sorted
	runs    []string // oldest first
	made    int      // number of runs ever made
}

// sorted is an entry in memory, as a position in the arena.
type sorted struct {
	head  uint64 // first bytes of the key, after its keyspace
	at    int
	key   uint32
	value uint32 // 1 + its length; 0: deleted
}

// sortMemory has the memory of sorters that are closed, for the next ones, until none is left.
type sortMemory struct {
	mu   sync.Mutex
	open int
	free []sorter
}

// sorter makes a sorter. Close it.
func (m *sortMemory) sorter(fs vfs.FS, path string, limit int) sorter {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open++
	return sorter{fs: fs, path: path, limit: limit, memory: m}
}

func (m *sortMemory) take() (arena []byte, entries []sorted) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.free); n > 0 {
		arena, entries = m.free[n-1].arena, m.free[n-1].entries
		m.free = m.free[:n-1]
	}
	return arena, entries
}

// close gives the memory back; runs stay where they are.
func (s *sorter) close() {
	m := s.memory
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.arena != nil {
		m.free = append(m.free, sorter{arena: s.arena[:0], entries: s.entries[:0]})
	}
	if m.open--; m.open == 0 {
		m.free = nil
	}
	s.memory, s.arena, s.entries = nil, nil, nil
}

const (
	// maxRuns bounds the number of open runs; sortedBytes is an estimate of what an entry takes besides its key
	// and value.
	maxRuns     = 64
	runBuffer   = 64 << 10
	sortedBytes = 24
	leastArena  = 256 << 10
)

func (s *sorter) add(key, value []byte) error {
	if s.arena == nil {
		s.arena, s.entries = s.memory.take()
	}
	if need := len(s.arena) + len(key) + len(value); need > cap(s.arena) {
		s.arena = slices.Grow(s.arena, max(need, min(s.limit, max(leastArena, 2*cap(s.arena))))-len(s.arena))
	}
	e := sorted{head: keyHead(key), at: len(s.arena), key: uint32(len(key))}
	s.arena = append(s.arena, key...)
	if value != nil {
		s.arena = append(s.arena, value...)
		e.value = uint32(len(value)) + 1
	}
	s.entries = append(s.entries, e)
	if len(s.arena)+len(s.entries)*sortedBytes < s.limit {
		return nil
	}
	return s.spill()
}

// keyHead is the first bytes of a key as a number, which mostly suffices to compare two keys.
func keyHead(key []byte) uint64 {
	var b [8]byte
	copy(b[:], key[min(len(key), 1):])
	return binary.BigEndian.Uint64(b[:])
}

func (s *sorter) empty() bool { return len(s.entries) == 0 && len(s.runs) == 0 }

func (s *sorter) key(e sorted) []byte { return s.arena[e.at : e.at+int(e.key)] }

func (s *sorter) value(e sorted) []byte {
	if e.value == 0 {
		return nil
	}
	from := e.at + int(e.key)
	return s.arena[from : from+int(e.value)-1]
}

// sort sorts the entries in memory and drops those with a later version.
func (s *sorter) sort() {
	slices.SortFunc(s.entries, func(a, b sorted) int {
		// Keys of two keyspaces may have the same head, and so may a key and a longer one.
		if a.head != b.head && s.arena[a.at] == s.arena[b.at] {
			if a.head < b.head {
				return -1
			}
			return 1
		}
		if c := bytes.Compare(s.key(a), s.key(b)); c != 0 {
			return c
		}
		return a.at - b.at
	})
	last := s.entries[:0]
	for i, e := range s.entries {
		if i+1 == len(s.entries) || e.head != s.entries[i+1].head || !bytes.Equal(s.key(e), s.key(s.entries[i+1])) {
			last = append(last, e)
		}
	}
	s.entries = last
}

// spill moves the entries in memory to a run.
func (s *sorter) spill() error {
	s.sort()
	run := s.name()
	err := s.write(run, func(put func(key, value []byte) error) error {
		for _, e := range s.entries {
			if err := put(s.key(e), s.value(e)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.arena, s.entries = s.arena[:0], s.entries[:0]
	if s.runs = append(s.runs, run); len(s.runs) < maxRuns {
		return nil
	}
	all := s.name()
	if err := s.write(all, s.each); err != nil {
		return err
	}
	if err := s.removeRuns(); err != nil {
		return err
	}
	s.runs = append(s.runs, all)
	return nil
}

func (s *sorter) name() string {
	s.made++
	return fmt.Sprint(s.path, s.made)
}

func (s *sorter) write(path string, fill func(put func(key, value []byte) error) error) (err error) {
	f, err := s.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("sorted run: %w", err)
	}
	defer func() { err = errors.Join(err, wrap("sorted run", f.Close())) }()
	w := bufio.NewWriterSize(f, runBuffer)
	var (
		b   []byte
		sum uint32
	)
	put := func(key, value []byte) error {
		b = appendBytes(b[:0], key)
		if value == nil {
			b = append(b, 0)
		} else {
			b = binary.AppendUvarint(b, uint64(len(value))+1)
			b = append(b, value...)
		}
		sum = crc32.Update(sum, castagnoli, b)
		_, err := w.Write(b)
		return err
	}
	if err := fill(put); err != nil {
		return fmt.Errorf("sorted run: %w", err)
	}
	if _, err := w.Write(binary.BigEndian.AppendUint32([]byte{0}, sum)); err != nil {
		return fmt.Errorf("sorted run: %w", err)
	}
	return wrap("sorted run", w.Flush())
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// each calls fn for every key in order, with its last value; nil: it was deleted. Both slices are valid until
// fn returns.
func (s *sorter) each(fn func(key, value []byte) error) (err error) {
	s.sort()
	if len(s.runs) == 0 {
		for _, e := range s.entries {
			if err := fn(s.key(e), s.value(e)); err != nil {
				return err
			}
		}
		return nil
	}
	var h runHeap
	defer func() {
		for _, r := range h {
			err = errors.Join(err, r.close())
		}
	}()
	open := append(slices.Clone(s.runs), "") // what is in memory is the newest
	for age, path := range open {
		r := &run{age: age}
		if path == "" {
			r.memory, r.left = s, s.entries
		} else if r.file, err = s.fs.Open(path, vfs.SequentialReadsOption); err != nil {
			return fmt.Errorf("sorted run: %w", err)
		} else {
			r.in = bufio.NewReaderSize(r.file, runBuffer)
		}
		h = append(h, r)
		if err := r.next(); err != nil {
			return err
		}
	}
	heap.Init(&h)
	var last []byte
	for first := true; h[0].key != nil; first = false {
		r := h[0]
		if first || !bytes.Equal(last, r.key) { // otherwise a newer run had it
			if err := fn(r.key, r.value); err != nil {
				return err
			}
			last = append(last[:0], r.key...)
		}
		if err := r.next(); err != nil {
			return err
		}
		heap.Fix(&h, 0)
	}
	return nil
}

func (s *sorter) removeRuns() error {
	var err error
	for _, r := range s.runs {
		err = errors.Join(err, s.fs.Remove(r))
	}
	s.runs = nil
	return err
}

// clear drops all entries.
func (s *sorter) clear() error {
	s.arena, s.entries = s.arena[:0], s.entries[:0]
	return s.removeRuns()
}
