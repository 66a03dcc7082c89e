package state

import (
	"encoding/binary"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
)

// Event is an emitted event.
type Event struct {
	Family string
	Key    []byte
	Value  []byte
}

// former is the value that a key had before a block; nil: none.
type former struct {
	table byte
	key   string
	row   []byte
}

// undo is the undo record of a block: the former values of its rows, and its events until they are final. It is
// stored in parts, each of which decodes by itself, so that none is too large for a record.
type undo struct {
	hash    common.Hash
	settled bool // the events are already in the topic of final events
	rows    []former
	events  []Event
}

const (
	undoVersion  = 1
	undoSettled  = 1 << 0
	maxUndoBytes = 512 << 10 // of a part, not counting its last row or event
)

// Encoding of a part: version, flags, hash(32), then rows and events, each behind a tag:
//
//	'r' table uvarint(len) key  uvarint(0 | len+1) row
//	'e' uvarint(len) family uvarint(len) key uvarint(len) value
//
// parts encodes u; it is empty where u holds nothing.
func (u *undo) parts() [][]byte {
	var parts [][]byte
	var b []byte
	begin := func() []byte {
		if len(b) >= maxUndoBytes {
			parts = append(parts, b)
			b = nil
		}
		if b == nil {
			var flags byte
			if u.settled {
				flags |= undoSettled
			}
			b = append(append(make([]byte, 0, 1<<10), undoVersion, flags), u.hash[:]...)
		}
		return b
	}
	for _, r := range u.rows {
		b = append(begin(), 'r', r.table)
		b = appendBytes(b, r.key)
		if r.row == nil {
			b = append(b, 0)
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(r.row))+1)
		b = append(b, r.row...)
	}
	for _, e := range u.events {
		b = append(begin(), 'e')
		b = appendBytes(b, e.Family)
		b = appendBytes(b, e.Key)
		b = appendBytes(b, e.Value)
	}
	if b != nil {
		parts = append(parts, b)
	}
	return parts
}

// decode adds a part to u. Slices alias b.
func (u *undo) decode(b []byte) error {
	fault := func(what string) error { return fmt.Errorf("%w: undo: %s", ErrCorrupt, what) }
	if len(b) < 2+common.HashLength {
		return fault("short")
	}
	if b[0] > undoVersion {
		return fmt.Errorf("%w: undo version %d", ErrNewer, b[0])
	}
	if b[0] != undoVersion {
		return fault(fmt.Sprintf("version %d", b[0]))
	}
	if b[1]&^undoSettled != 0 {
		return fault("flags")
	}
	u.settled = b[1]&undoSettled != 0
	u.hash = common.Hash(b[2 : 2+common.HashLength])
	in := cursor{b: b[2+common.HashLength:]}
	for len(in.b) > 0 && !in.bad {
		switch tag := in.byte(); tag {
		case 'r':
			r := former{table: in.byte(), key: string(in.bytes())}
			if n := in.uvarint(); n > 0 {
				r.row = in.take(n - 1)
			}
			u.rows = append(u.rows, r)
		case 'e':
			u.events = append(u.events, Event{Family: string(in.bytes()), Key: in.bytes(), Value: in.bytes()})
		default:
			return fault(fmt.Sprintf("tag %#x", tag))
		}
	}
	if in.bad {
		return fault("torn")
	}
	return nil
}

func appendBytes[T string | []byte](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// cursor reads values from a slice; the first error sticks.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n uint64) []byte {
	if c.bad || n > uint64(len(c.b)) {
		c.bad = true
		return nil
	}
	v := c.b[:n:n]
	c.b = c.b[n:]
	return v
}

func (c *cursor) byte() byte {
	if v := c.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.b)
	if c.bad || n <= 0 {
		c.bad = true
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) bytes() []byte { return c.take(c.uvarint()) }
