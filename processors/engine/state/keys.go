package state

import (
	"encoding/binary"
)

// Keys on Pebble. The first byte is the keyspace; numbers are big-endian, so that bytes sort as they do.
//
//	0x00 'm'                   meta: whatever the caller commits with the rows (position in the logs)
//	0x00 'v'                   version of this layout
//	0x01 table key             a row
//	0x02 index entry           an entry of a secondary index, derived from rows
//	0x03 number(8) part(2)     undo of a block that can still be reverted
//
// Rows and undo records are primary: Entries returns them, and Restore takes them under the same keys.
// Everything else is derived or local.
const (
	spaceMeta  byte = 0x00
	spaceRow   byte = 0x01
	spaceIndex byte = 0x02
	spaceUndo  byte = 0x03
)

var (
	keyMeta    = []byte{spaceMeta, 'm'}
	keyVersion = []byte{spaceMeta, 'v'}
)

// layoutVersion changes when the keys or their encodings change: a store with another version is not read but
// restored from the changelog.
const layoutVersion = 1

const (
	headBytes    = 2 // keyspace and table or index of a key, before the rest
	undoKeyBytes = 1 + 8 + 2
)

func appendRowKey[K string | []byte](b []byte, table byte, key K) []byte {
	return append(append(b, spaceRow, table), key...)
}

func undoKey(number uint64, part int) []byte {
	b := make([]byte, 0, undoKeyBytes)
	b = append(b, spaceUndo)
	b = binary.BigEndian.AppendUint64(b, number)
	return binary.BigEndian.AppendUint16(b, uint16(part))
}

// bounds is the range of keys that start with head‖prefix and come after head‖after.
func bounds(head [headBytes]byte, prefix, after []byte) (lower, upper []byte) {
	lower = append(append(make([]byte, 0, headBytes+len(prefix)), head[:]...), prefix...)
	upper = successor(lower)
	if after != nil {
		// The next key is the key with a zero byte appended.
		if from := append(append(append([]byte{}, head[:]...), after...), 0); string(from) > string(lower) {
			lower = from
		}
	}
	return lower, upper
}

// successor is the least key greater than all keys with this prefix. It exists because no keyspace starts with
// 0xff.
func successor(prefix []byte) []byte {
	b := append([]byte(nil), prefix...)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i]++; b[i] != 0 {
			return b[:i+1]
		}
	}
	return nil
}
