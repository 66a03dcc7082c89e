// Package state keeps keyed rows on Pebble: tables with derived indexes, a block overlay with undo, and
// immutable views of past blocks. It knows no entity and no Kafka.
package state

import (
	"github.com/lienstream/lienstream/topics"
)

// Table is a keyspace of rows. Its ID is part of every key on disk and in the changelog: never reuse one.
type Table struct {
	ID   byte
	Name string

	// Index derives the secondary index entries of a row. They are kept in step with the rows on
	// Pebble and are in no changelog: a restore derives them again. Nil: none.
	Index func(key, row []byte, to *IndexEntries)

	// Entity encodes a row as the message of its ent topic; a row that is gone is a tombstone of the
	// same key. Nil: the table is not published.
	Entity *EntityTopic
}

// EntityTopic says where and how a table's latest rows are published.
type EntityTopic struct {
	Name   string // the entity's name in the catalogue: ent.<Name>
	Key    func(key []byte) []byte
	Encode func(b, row []byte, at topics.BlockRef) ([]byte, error) // appends to b
}

// Reader reads rows. Slices handed out belong to the caller, except those handed to a callback, which
// are valid only until it returns.
type Reader interface {
	// Get returns the row, or nil where there is none.
	Get(t *Table, key []byte) ([]byte, error)
	// Scan calls fn for every row whose key starts with prefix, in ascending order of keys, beginning
	// after the key `after` (nil: at the first), until fn returns false.
	Scan(t *Table, prefix, after []byte, fn func(key, row []byte) bool) error
	// ScanIndex does the same over the entries of an index.
	ScanIndex(index byte, prefix, after []byte, fn func(entry, value []byte) bool) error
}

// Writer is what a pure apply writes to. Its reads see the writes of the same block. Rows that Get
// returns are shared: do not modify them. Put takes over the row and copies the key; Emit copies both.
type Writer interface {
	Get(t *Table, key []byte) ([]byte, error)
	Scan(t *Table, prefix, after []byte, fn func(key, row []byte) bool) error
	Put(t *Table, key, row []byte)
	Delete(t *Table, key []byte)
	// Emit publishes a decoded event: to evt.<family> now, to evt.<family>.final once the block is
	// final, and again with removed set if the block is reverted.
	Emit(family string, key, value []byte)
	// Silent says that what Emit is given for this block is dropped: a rebuild publishes nothing twice.
	Silent() bool
	// Block is the block that is being applied.
	Block() topics.BlockRef
}

// View is an immutable reading of one partition, true as of the block At. Close releases it.
type View interface {
	Reader
	// ScanBack calls fn for every row whose key starts with prefix, from the last on down, until fn returns false.
	ScanBack(t *Table, prefix []byte, fn func(key, row []byte) bool) error
	At() topics.BlockRef
	Close()
}
