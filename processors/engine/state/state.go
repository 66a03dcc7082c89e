// Package state keeps keyed rows on Pebble: tables with derived indexes, an overlay of blocks with undo, and
// immutable views of past blocks. It knows no entity and no Kafka.
package state

import (
	"github.com/lienstream/lienstream/topics"
)

// Table is a keyspace of rows. Its ID is part of every key on disk and in the changelog: never reuse one.
type Table struct {
	ID   byte
	Name string

	// Index derives the secondary index entries of a row. They are updated together with the rows and are not
	// in the changelog: a restore derives them again. Nil: none.
	Index func(key, row []byte, to *IndexEntries)

	// Group is how many bytes of a key name rows that are read together, the last one first. 0: none are.
	Group int

	// Entity encodes a row as the message of its ent topic; a deleted row is a tombstone with the same key.
	// Nil: the table is not published.
	Entity *EntityTopic
}

// EntityTopic says where and how a table's latest rows are published.
type EntityTopic struct {
	Name   string                                                  // the entity's name in the catalogue: ent.<Name>
	Key    func(b, key []byte) []byte                              // appends to b
	Encode func(b, row []byte, at topics.BlockRef) ([]byte, error) // appends to b
}

// Reader reads rows. Returned slices belong to the caller; slices passed to a callback are valid only until it
// returns.
type Reader interface {
	// Get returns the row, or nil if there is none.
	Get(t *Table, key []byte) ([]byte, error)
	// Scan calls fn for every row whose key starts with prefix, ascending, starting after the key `after` (nil:
	// at the first), until fn returns false.
	Scan(t *Table, prefix, after []byte, fn func(key, row []byte) bool) error
	// ScanIndex does the same over the entries of an index.
	ScanIndex(index byte, prefix, after []byte, fn func(entry, value []byte) bool) error
}

// Writer is what Apply reads and writes. Reads see the writes of the same block. Rows that Get returns are
// shared: do not modify them. Put takes over the row and copies the key; Emit copies both.
type Writer interface {
	Get(t *Table, key []byte) ([]byte, error)
	Scan(t *Table, prefix, after []byte, fn func(key, row []byte) bool) error
	Put(t *Table, key, row []byte)
	Delete(t *Table, key []byte)
	// Emit publishes an event: to evt.<family> now, to evt.<family>.final once the block is final, and again
	// with removed set if the block is reverted.
	Emit(family string, key, value []byte)
	// Silent reports whether Emit does nothing for this block: a rebuild publishes nothing twice.
	Silent() bool
	// Block is the block that is being applied.
	Block() topics.BlockRef
}

// View is an immutable view of one partition as of the block At. Close releases it.
type View interface {
	Reader
	// ScanBack calls fn for every row whose key starts with prefix and is below before, descending, until fn
	// returns false. Nil: from the last one on.
	ScanBack(t *Table, prefix, before []byte, fn func(key, row []byte) bool) error
	At() topics.BlockRef
	Close()
}
