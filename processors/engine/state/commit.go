package state

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Row is a row in a commit.
type Row struct {
	Table *Table
	Key   []byte
	Value []byte // nil: deleted
	Same  bool   // same value as on disk: written and restored
}

// Len is the number of rows written.
func (o *Overlay) Len() int { return len(o.dirty) }

// Rows calls fn for the rows written, in the order of their first write. A key is valid until fn returns.
func (o *Overlay) Rows(fn func(Row) error) error {
	var key []byte
	for _, r := range o.dirty {
		key = append(key[:0], r.key...)
		if err := fn(Row{r.layer.table, key, r.now, r.equal()}); err != nil {
			return err
		}
	}
	return nil
}

// Applied is how many blocks have begun here.
func (o *Overlay) Applied() int { return o.applied }

// Changed calls fn for the rows that were written by blocks after the first so many: for each row once, with its value
// of now. Where that is not known, or the number is negative, it is all rows written.
func (o *Overlay) Changed(after int, fn func(Row)) {
	first := len(o.blocks)
	for first > 0 && o.blocks[first-1].id > after {
		first--
	}
	known := after >= 0 && len(o.blocks) == o.applied // none was reverted
	for _, b := range o.blocks[first:] {
		known = known && b.capture
	}
	changed := func(r *row) {
		slab := &o.store.slab
		fn(Row{r.layer.table, slab.Keep(append(slab.Next(), r.key...)), r.now, r.equal()})
	}
	if !known {
		for _, r := range o.dirty {
			changed(r)
		}
		return
	}
	for _, b := range o.blocks[first:] {
		for _, f := range b.rows {
			if r := o.tables[f.table].rows[f.key]; r.block == b.id { // no later block has changed it
				changed(r)
			}
		}
	}
}

// Events calls fn for the events to publish: first the retracted ones, newest first, then those of no block, then those of
// the blocks applied, in order.
func (o *Overlay) Events(fn func(e Event, removed bool)) {
	for _, e := range o.reverts {
		fn(e, true)
	}
	for _, e := range o.after {
		fn(e, false)
	}
	for _, b := range o.blocks {
		if b.published {
			continue
		}
		for _, e := range b.events {
			fn(e, false)
		}
	}
}

// Settles reports whether there are blocks on disk that Settle with these bounds would make final.
func (o *Overlay) Settles(from, to uint64) (bool, error) {
	if to <= from {
		return false, nil
	}
	numbers, err := o.undoBlocks(from, to)
	return len(numbers) > 0, err
}

// Settle makes every block above `from`, up to and including `to`, final: it calls fn for their events, in
// order, and drops their undo records. Call it once, at the end of a commit, even if the floor did not move: it
// also creates the undo records of the other blocks.
func (o *Overlay) Settle(from, to uint64, fn func(Event)) error {
	if err := o.settleStored(from, to, fn); err != nil {
		return err
	}
	for _, b := range o.blocks {
		if b.ref.Number <= to {
			b.settle(fn)
			continue
		}
		for part, value := range b.parts() {
			o.setUndo(string(undoKey(b.ref.Number, part)), value)
		}
	}
	return o.err
}

// settleStored is Settle for the blocks on disk.
func (o *Overlay) settleStored(from, to uint64, fn func(Event)) error {
	if to <= from {
		return nil
	}
	numbers, err := o.undoBlocks(from, to)
	if err != nil {
		return err
	}
	for _, n := range numbers {
		var u undo
		keys, err := o.loadUndo(n, &u)
		if err != nil {
			return err
		}
		u.settle(fn)
		for _, k := range keys {
			o.setUndo(k, nil)
		}
	}
	return nil
}

// settle calls fn for the events that are not in the topic of final events yet.
func (u *undo) settle(fn func(Event)) {
	if u.settled {
		return
	}
	for _, e := range u.events {
		fn(e)
	}
}

// undoBlocks lists the blocks in a range that have undo records on disk.
func (o *Overlay) undoBlocks(from, to uint64) ([]uint64, error) {
	it, err := o.store.db.NewIter(&pebble.IterOptions{LowerBound: undoKey(from+1, 0), UpperBound: successor(undoKey(to, 0)[:undoKeyBytes-2])})
	if err != nil {
		return nil, wrap("scan undo", err)
	}
	var numbers []uint64
	for it.First(); it.Valid(); it.Next() {
		n := binary.BigEndian.Uint64(it.Key()[1:])
		if len(numbers) == 0 || numbers[len(numbers)-1] != n {
			numbers = append(numbers, n)
		}
	}
	return numbers, wrap("scan undo", it.Close())
}

// Entries calls fn for every primary key that the commit changes: with these changelog entries Restore
// reproduces the rows and undo records. A nil value is a deletion.
func (o *Overlay) Entries(fn func(key, value []byte)) {
	for _, r := range o.dirty {
		if !r.equal() {
			slab := &o.store.slab
			fn(slab.Keep(appendRowKey(slab.Next(), r.layer.table.ID, r.key)), r.now)
		}
	}
	for _, k := range o.undoIDs {
		fn([]byte(k), o.undos[k])
	}
}

// Restore applies a changelog entry.
func (o *Overlay) Restore(key, value []byte) error {
	if err := o.store.checkEntry(key, value); err != nil {
		return err
	}
	if key[0] == spaceRow {
		o.foreign = true
		o.write(o.store.tables[key[1]], key[headBytes:], value)
		return o.err
	}
	o.setUndo(string(key), value)
	o.bytes += len(value) + rowOverheadBytes
	return nil
}

// checkEntry returns an error if this build cannot keep a changelog entry.
func (s *Store) checkEntry(key, value []byte) error {
	switch {
	case len(key) >= headBytes && key[0] == spaceRow:
		_, err := s.table(key[1])
		return err
	case len(key) == undoKeyBytes && key[0] == spaceUndo:
		if value == nil {
			return nil
		}
		return new(undo).decode(value)
	}
	return fmt.Errorf("%w: changelog key %x", ErrCorrupt, key)
}

// Commit writes the overlay, its index changes and meta as one batch. It does not wait for the disk. The
// overlay must not be used afterwards.
func (s *Store) Commit(o *Overlay, meta []byte) error {
	if o.err != nil {
		return o.err
	}
	size := o.batchBytes()
	b := s.db.NewBatchWithSize(int(float64(size)*cmp.Or(s.packed, 1)) + 256)
	defer b.Close()
	if err := o.writeRows(b); err != nil {
		return wrap("batch", err)
	}
	for _, k := range o.undoIDs {
		if err := set(b, []byte(k), o.undos[k]); err != nil {
			return wrap("batch undo", err)
		}
	}
	if err := set(b, keyMeta, meta); err != nil {
		return wrap("batch meta", err)
	}
	s.packed = min(max(0.5, float64(b.Len())/float64(size+1)*1.05), 2) // a batch that grows is copied
	err := b.Commit(pebble.NoSync)
	s.reads.committed(o.dirty) // or perhaps
	if err != nil {
		s.rows.clear(false)
		return wrap("commit", err)
	}
	if o.foreign {
		s.rows.clear(false)
	} else {
		for _, r := range o.dirty {
			s.rows.written(r.layer.table.ID, r.key, r.now)
		}
	}
	return s.compactDeferred()
}

// batchBytes is about what the commit's batch takes.
func (o *Overlay) batchBytes() (n int) {
	const most = 8 // that an entry has beside its key and value
	for _, r := range o.dirty {
		n += headBytes + len(r.key) + len(r.now) + most
		if r.layer.table.Index != nil { // most rows have one entry or two, made of their keys
			n += 2 * (len(r.key) + 4*most)
		}
	}
	for k, v := range o.undos {
		n += len(k) + len(v) + most
	}
	return n
}

// compactDeferred makes up for deferred compactions: Pebble looks for them when it has flushed.
func (s *Store) compactDeferred() error {
	if !s.owes || s.defers.Load() {
		return nil
	}
	s.owes = false
	_, err := s.db.AsyncFlush()
	return wrap("flush", err)
}

// writeRows writes the rows and their index changes.
func (o *Overlay) writeRows(b *pebble.Batch) error {
	var (
		key []byte
		ix  indexer
	)
	for _, r := range o.dirty {
		if r.equal() {
			continue
		}
		key = appendRowKey(key[:0], r.layer.table.ID, r.key)
		if err := set(b, key, r.now); err != nil {
			return err
		}
		if err := ix.maintain(b, r); err != nil {
			return fmt.Errorf("index: %w", err)
		}
	}
	return nil
}

// Clear removes all rows, index entries and undo records, and sets meta. Snapshots stay valid.
func (s *Store) Clear(meta []byte) error {
	b := s.db.NewBatch()
	defer b.Close()
	err := errors.Join(b.DeleteRange([]byte{spaceRow}, []byte{spaceUndo + 1}, nil), b.Set(keyMeta, meta, nil))
	if err != nil {
		return wrap("clear", err)
	}
	err = b.Commit(pebble.NoSync)
	s.reads.clear()
	if err != nil {
		s.rows.clear(false)
		return wrap("clear", err)
	}
	s.rows.clear(true)
	return nil
}

func set(b *pebble.Batch, key, value []byte) error {
	if value == nil {
		return b.Delete(key, nil)
	}
	return b.Set(key, value, nil)
}

// indexer computes the index changes of a row. Its buffers are reused.
type indexer struct {
	key      []byte
	old, now IndexEntries
}

// IndexEntries are the index entries of a row.
type IndexEntries struct {
	buf []byte // encoded keys and values, one after the other
	all []indexEntry
}

type indexEntry struct{ from, value, to int } // offsets in buf: key, then value

// Put adds an entry, whose key is passed in parts. It copies its arguments.
func (x *IndexEntries) Put(index byte, value []byte, entry ...[]byte) {
	e := indexEntry{from: len(x.buf)}
	x.buf = append(x.buf, spaceIndex, index)
	for _, part := range entry {
		x.buf = append(x.buf, part...)
	}
	e.value = len(x.buf)
	x.buf = append(x.buf, value...)
	e.to = len(x.buf)
	x.all = append(x.all, e)
}

func (x *IndexEntries) key(e indexEntry) []byte   { return x.buf[e.from:e.value] }
func (x *IndexEntries) value(e indexEntry) []byte { return x.buf[e.value:e.to] }

// find returns the value of a key.
func (x *IndexEntries) find(key []byte) (value []byte, ok bool) {
	for _, e := range x.all {
		if bytes.Equal(x.key(e), key) {
			return x.value(e), true
		}
	}
	return nil, false
}

// derive sets x to the index entries of a row; none if the row is nil.
func (x *IndexEntries) derive(t *Table, key, row []byte) {
	x.buf, x.all = x.buf[:0], x.all[:0]
	if row != nil {
		t.Index(key, row, x)
	}
}

func (x *indexer) maintain(b *pebble.Batch, r *row) error {
	t := r.layer.table
	if t.Index == nil {
		return nil
	}
	x.key = append(x.key[:0], r.key...)
	x.old.derive(t, x.key, r.disk)
	x.now.derive(t, x.key, r.now)
	for _, e := range x.old.all {
		key := x.old.key(e)
		if _, stays := x.now.find(key); !stays {
			if err := b.Delete(key, nil); err != nil {
				return err
			}
		}
	}
	for _, e := range x.now.all {
		key, value := x.now.key(e), x.now.value(e)
		if was, ok := x.old.find(key); !ok || !bytes.Equal(was, value) {
			if err := b.Set(key, value, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
