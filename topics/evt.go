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

// EventMeta is the position of an event on the chain.
type EventMeta struct {
	Block    BlockRef
	Tx       common.Hash
	LogIndex uint32
}

// ErrNoFamily: the event has no evt topic.
var ErrNoFamily = errors.New("event has no evt topic")

// nulls is as many null columns as the widest family has.
var nulls [64]byte

// FamilyOf is the family of an event's evt topics; empty: it has none.
func FamilyOf(e contracts.Event) string {
	family, _ := familyOf(e)
	return family
}

// EventFamilies lists the families of chain events.
func EventFamilies() []string {
	var all []string
	for _, t := range eventTopics {
		if !strings.HasSuffix(t.Entity, final) {
			all = append(all, t.Entity)
		}
	}
	return all
}

// AppendEvent appends the value of a record of evt.<family>: a wide record with a nullable column for every
// field of the family's events. Its last byte says whether the event is retracted.
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

// MarkRemoved returns a copy of an evt value that retracts the event.
func MarkRemoved(value []byte) []byte {
	v := bytes.Clone(value)
	if len(v) > 0 {
		v[len(v)-1] = 1
	}
	return v
}

// AppendEventKey appends the key of an evt record: "0x<block hash>:<log index>". A retraction has the same key.
func AppendEventKey(b []byte, m EventMeta) []byte {
	return strconv.AppendUint(append(contracts.AppendHex(b, m.Block.Hash[:]), ':'), uint64(m.LogIndex), 10)
}
