package topics

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
)

//go:generate go run ./gen .

// EventMeta is where on the chain an event was.
type EventMeta struct {
	Block    BlockRef
	Tx       common.Hash
	LogIndex uint32
}

// ErrNoFamily means that no evt topic takes the event.
var ErrNoFamily = errors.New("event has no evt topic")

// nulls are as many absent columns as the widest family has.
var nulls [64]byte

// FamilyOf is the family of the evt topics that take an event; empty: none does.
func FamilyOf(e contracts.Event) string {
	family, _ := familyOf(e)
	return family
}

// EventFamilies lists the families of the evt topics whose events are the chain's.
func EventFamilies() []string {
	var all []string
	for _, t := range eventTopics {
		if !strings.HasSuffix(t.Entity, final) {
			all = append(all, t.Entity)
		}
	}
	return all
}

// AppendEvent appends the value of a record of evt.<family>: a wide record with a nullable column for
// every field of the family's events. Its last byte says whether the event was taken back.
func AppendEvent(b []byte, m EventMeta, e contracts.Event) ([]byte, error) {
	_, s := familyOf(e)
	if s == nil {
		return b, fmt.Errorf("%T: %w", e, ErrNoFamily)
	}
	b = appendRef(AppendHeader(b, s), &m.Block)
	b = append(b, m.Tx[:]...)
	b = appendUint(b, uint64(m.LogIndex))
	b = appendString(b, e.Name())
	b, _ = appendEventFields(b, e)
	return appendBool(b, false), nil
}

// MarkRemoved is a copy of an evt value that takes the event back.
func MarkRemoved(value []byte) []byte {
	v := bytes.Clone(value)
	if len(v) > 0 {
		v[len(v)-1] = 1
	}
	return v
}

// AppendEventKey appends the key of an evt record: "0x<block hash>:<log index>". It is the same for the
// record that takes the event back.
func AppendEventKey(b []byte, m EventMeta) []byte {
	const digits = "0123456789abcdef"
	b = append(b, "0x"...)
	for _, c := range m.Block.Hash {
		b = append(b, digits[c>>4], digits[c&15])
	}
	return strconv.AppendUint(append(b, ':'), uint64(m.LogIndex), 10)
}
