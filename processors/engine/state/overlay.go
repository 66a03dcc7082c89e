package state

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lienstream/lienstream/topics"
)

// ErrNotTop: the block to revert is not the last one applied.
var ErrNotTop = errors.New("reverted block is not the last one applied")

// Overlay is the content of the next commit: rows, undo records and events of the blocks since the last one, in
// memory over the store. Nothing is written until the commit; dropping the overlay discards it. It belongs to
// one goroutine.
//
// Invariants:
//  1. a read sees the last write, of this block or an earlier one, whether or not it is on disk;
//  2. blocks is a stack of the blocks applied here and not reverted, ascending; all blocks on disk are below
//     them;
//  3. the undo record of a block has each key once, with its value from before the block. Later blocks are
//     reverted first, so popping the stack restores exactly that state;
//  4. after an error it must be dropped.
type Overlay struct {
	store   *Store
	tables  [256]*layer
	dirty   []*row // in the order of the first write: a repeated commit is the same
	spare   []row  // allocated at once, because there are many
	blocks  []*block
	applied int // number of blocks ever begun
	reverts []Event
	after   []Event           // of no block here: they follow the last one on disk
	undos   map[string][]byte // undo parts to write; nil: to delete
	undoIDs []string          // their keys, in order
	bytes   int
	events  int  // bytes of events that are in blocks
	drained bool // some were
	emitted keeper
	used    [][]Event // slices of blocks that were drained, to be used again
	foreign bool      // restored rows alias records, which must not be kept
	idle    *pebble.Iterator
	sharing bool  // one scan after the other uses idle
	err     error // of a write, which cannot return it
}

// layer is the overlay of one table. Keys are sorted only when a scan needs them.
type layer struct {
	table  *Table
	rows   map[string]*row
	sorted []string // keys of written rows
	fresh  []string // unsorted ones
}

// row is a row that was read or written.
type row struct {
	layer *layer
	key   string
	disk  []byte // on disk; nil: none
	known bool   // disk is valid
	now   []byte
	dirty bool
	block int // the last block that saved its former value
}

type block struct {
	id      int
	ref     topics.BlockRef
	capture bool
	// published: the events are already in the topic at the head.
	published bool
	undo
}

// NewOverlay makes an empty overlay over the committed state.
func (s *Store) NewOverlay() *Overlay {
	return &Overlay{store: s, undos: map[string][]byte{}, emitted: &s.slab}
}

// keeper copies what events are made of.
type keeper interface{ Copy(b []byte) []byte }

// KeepEvents has the events kept in this memory, for a caller that uses it again once it was handed all of them.
func (o *Overlay) KeepEvents(in *topics.Scratch) { o.emitted = in }

// Begin starts a block. Without capture no undo record is kept, so the block can never be reverted.
func (o *Overlay) Begin(ref topics.BlockRef, capture bool) {
	o.applied++
	o.blocks = append(o.blocks, &block{id: o.applied, ref: ref, capture: capture, undo: undo{hash: ref.Hash}})
}

// Published marks the last block's events as already published in the topic at the head and, with final, in the
// topic of final events too: a rebuild does not publish them again.
func (o *Overlay) Published(final bool) {
	b := o.blocks[len(o.blocks)-1]
	b.published, b.settled = true, final
}

// Republished reports whether the last block here is one whose events were published before: what is emitted counts as one of them.
func (o *Overlay) Republished() bool {
	n := len(o.blocks)
	return n > 0 && o.blocks[n-1].published
}

// Silent reports whether the events of the block are already published and final, so that Emit can be skipped.
func (o *Overlay) Silent() bool {
	b := o.blocks[len(o.blocks)-1]
	return b.published && b.settled && !b.capture
}

// Empty reports whether a commit would write nothing.
func (o *Overlay) Empty() bool {
	for _, b := range o.blocks {
		if len(b.events) > 0 { // rows are in dirty
			return false
		}
	}
	return len(o.dirty) == 0 && len(o.undoIDs) == 0 && len(o.reverts) == 0 && len(o.after) == 0 && !o.drained
}

// Bytes is an estimate of the memory in use.
func (o *Overlay) Bytes() int { return o.bytes }

// Err is the first error of a write.
func (o *Overlay) Err() error { return o.err }

// Block is the block that is being applied.
func (o *Overlay) Block() topics.BlockRef { return o.blocks[len(o.blocks)-1].ref }

// Emit adds an event of the block. Where there is none here, the event is published with the next commit, and no revert takes
// it back; only the topic at the head has it.
func (o *Overlay) Emit(family string, key, value []byte) {
	if len(o.blocks) == 0 {
		e := Event{family, o.emitted.Copy(key), o.emitted.Copy(value)}
		o.after = append(o.after, e)
		o.bytes += e.bytes()
		return
	}
	if o.Silent() {
		return
	}
	b := o.blocks[len(o.blocks)-1]
	if n := len(o.used); b.events == nil && n > 0 {
		b.events, o.used = o.used[n-1], o.used[:n-1]
	} else if b.events == nil {
		b.events = make([]Event, 0, 8)
	}
	e := Event{family, o.emitted.Copy(key), o.emitted.Copy(value)}
	b.events = append(b.events, e)
	o.bytes += e.bytes()
	o.events += e.bytes()
}

// Get returns a row, or nil.
func (o *Overlay) Get(t *Table, key []byte) ([]byte, error) {
	r, err := o.row(o.layer(t), key, true)
	if err != nil {
		return nil, err
	}
	return r.now, nil
}

// Put writes a row.
func (o *Overlay) Put(t *Table, key, value []byte) {
	if value == nil {
		value = []byte{}
	}
	o.write(t, key, value)
}

// Delete removes a row.
func (o *Overlay) Delete(t *Table, key []byte) { o.write(t, key, nil) }

// rowOverheadBytes is an estimate of what a row takes besides its key and value.
const rowOverheadBytes = 200

func (o *Overlay) layer(t *Table) *layer {
	l := o.tables[t.ID]
	if l == nil {
		l = &layer{table: t, rows: map[string]*row{}}
		o.tables[t.ID] = l
	}
	return l
}

// row finds a row, and reads it from disk if required.
func (o *Overlay) row(l *layer, key []byte, read bool) (*row, error) {
	r := l.rows[string(key)]
	if r == nil {
		if len(o.spare) == 0 {
			o.spare = make([]row, min(max(8, len(l.rows)), 64))
		}
		r, o.spare = &o.spare[0], o.spare[1:]
		r.layer, r.key = l, string(key)
		l.rows[r.key] = r
		o.bytes += len(key) + rowOverheadBytes
	}
	if read && !r.known && !r.dirty {
		disk, known := o.store.rows.get(l.table.ID, r.key)
		if !known {
			var buf [96]byte
			var err error
			if disk, err = get(o.store.db, appendRowKey(buf[:0], l.table.ID, key)); err != nil {
				return nil, fmt.Errorf("table %s: %w", l.table.Name, err)
			}
			o.store.rows.put(l.table.ID, r.key, disk)
		}
		r.disk, r.now, r.known = disk, disk, true
		o.bytes += len(disk)
	}
	return r, nil
}

func (o *Overlay) write(t *Table, key, value []byte) {
	var top *block
	if n := len(o.blocks); n > 0 {
		top = o.blocks[n-1]
	}
	capture := top != nil && top.capture
	l := o.layer(t)
	// The row on disk is needed for the undo record and to remove its index entries.
	r, err := o.row(l, key, capture || t.Index != nil)
	if err != nil {
		o.err = errors.Join(o.err, err)
		return
	}
	if capture && r.block != top.id {
		r.block = top.id
		top.rows = append(top.rows, former{t.ID, r.key, r.now})
	} else if r.dirty {
		o.bytes -= len(r.now) // the former value is no longer referenced
	}
	r.now = value
	o.bytes += len(value)
	if !r.dirty {
		r.dirty = true
		o.dirty = append(o.dirty, r)
		l.fresh = append(l.fresh, r.key)
	}
}

// Revert reverts the last block. If the block has no records here, there is nothing to revert. quiet: its
// events were already retracted.
func (o *Overlay) Revert(ref topics.BlockRef, quiet bool) error {
	if n := len(o.blocks); n > 0 {
		top := o.blocks[n-1]
		switch {
		case top.ref.Number > ref.Number, top.ref.Number == ref.Number && top.ref.Hash != ref.Hash:
			return fmt.Errorf("%w: block %d %s, last is %d %s", ErrNotTop, ref.Number, ref.Hash, top.ref.Number, top.ref.Hash)
		case top.ref.Number == ref.Number && !top.capture:
			return fmt.Errorf("%w: block %d has no undo record", ErrCorrupt, ref.Number)
		case top.ref.Number == ref.Number:
			o.blocks = o.blocks[:n-1]
			for _, e := range top.events {
				o.events -= e.bytes()
			}
			if top.published { // unpublished events are just dropped
				o.takeBack(top.events, quiet)
			}
			return o.restore(top.rows)
		default:
			return nil
		}
	}
	var u undo
	keys, err := o.loadUndo(ref.Number, &u)
	if err != nil || len(keys) == 0 {
		return err
	}
	if u.hash != ref.Hash {
		return fmt.Errorf("%w: undo record of block %d has hash %s, not %s", ErrCorrupt, ref.Number, u.hash, ref.Hash)
	}
	for _, k := range keys {
		o.setUndo(k, nil)
	}
	o.takeBack(u.events, quiet)
	return o.restore(u.rows)
}

// takeBack records the retraction of events, newest first, like the blocks.
func (o *Overlay) takeBack(events []Event, quiet bool) {
	if quiet {
		return
	}
	for _, e := range slices.Backward(events) {
		o.reverts = append(o.reverts, e)
	}
}

// restore writes former values back.
func (o *Overlay) restore(rows []former) error {
	blocks := o.blocks
	o.blocks = nil // a revert has no undo record
	defer func() { o.blocks = blocks }()
	for _, r := range rows {
		t, err := o.store.table(r.table)
		if err != nil {
			return err
		}
		o.write(t, []byte(r.key), r.row)
	}
	return o.err
}

// loadUndo reads the parts of a block's undo record, and returns their keys.
func (o *Overlay) loadUndo(number uint64, u *undo) (keys []string, err error) {
	for part := 0; ; part++ {
		key := undoKey(number, part)
		b, written := o.undos[string(key)]
		if !written {
			if b, err = get(o.store.db, key); err != nil {
				return nil, err
			}
		}
		if b == nil {
			return keys, nil
		}
		if err := u.decode(b); err != nil {
			return nil, fmt.Errorf("block %d part %d: %w", number, part, err)
		}
		keys = append(keys, string(key))
	}
}

func (o *Overlay) setUndo(key string, value []byte) {
	if _, ok := o.undos[key]; !ok {
		o.undoIDs = append(o.undoIDs, key)
	}
	o.undos[key] = value
}

// equal reports whether the row has the same value as on disk.
func (r *row) equal() bool {
	return r.known && (r.disk == nil) == (r.now == nil) && bytes.Equal(r.disk, r.now)
}
