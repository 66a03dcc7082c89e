package deals

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/holiman/uint256"
)

func (n *bidNode) append(b []byte, next uint32) []byte {
	kind := byte(kindLeaf)
	if n.inner {
		kind = kindInner
	}
	b = binary.AppendUvarint(append(b, kind), uint64(next))
	for i := range n.entries {
		e := &n.entries[i]
		b = appendShort(binary.AppendUvarint(b, e.key.expiry), &e.key.id)
		b = appendShort(b, &e.price)
		if n.inner {
			b = appendShort(b, &e.best)
			b = binary.AppendUvarint(binary.AppendUvarint(b, e.count), uint64(e.child))
		}
	}
	return b
}

func appendShort(b []byte, v *uint256.Int) []byte {
	word, n := v.Bytes32(), v.ByteLen()
	return append(append(b, byte(n)), word[len(word)-n:]...)
}

// minEntryBytes is less than what an entry takes: a time, an ID and a price.
const minEntryBytes = 10

var errNode = errors.New("malformed node")

func decodeBidNode(b []byte) (n *bidNode, next uint32, err error) {
	if len(b) == 0 || b[0] != kindLeaf && b[0] != kindInner {
		return nil, 0, errNode
	}
	in := shortInput{b: b[1:]}
	n = &bidNode{inner: b[0] == kindInner}
	next = in.number()
	n.entries = make([]bidEntry, 0, len(in.b)/minEntryBytes+1) // one more may be inserted
	for len(in.b) > 0 && !in.bad {
		e := bidEntry{key: bidKey{in.varint(), in.word()}, price: in.word(), count: 1}
		if e.best = e.key.id; n.inner {
			e.best, e.count, e.child = in.word(), in.varint(), in.number()
		}
		n.entries = append(n.entries, e)
	}
	if in.bad {
		return nil, 0, errNode
	}
	return n, next, nil
}

type shortInput struct {
	b   []byte
	bad bool
}

func (in *shortInput) varint() uint64 {
	v, n := binary.Uvarint(in.b)
	if n <= 0 {
		in.b, in.bad = nil, true
		return 0
	}
	in.b = in.b[n:]
	return v
}

func (in *shortInput) number() uint32 {
	v := in.varint()
	in.bad = in.bad || v > math.MaxUint32
	return uint32(v)
}

func (in *shortInput) word() (v uint256.Int) {
	if len(in.b) == 0 || in.b[0] > idBytes || int(in.b[0]) >= len(in.b) {
		in.b, in.bad = nil, true
		return v
	}
	n := int(in.b[0])
	v.SetBytes(in.b[1 : 1+n])
	in.b = in.b[1+n:]
	return v
}
