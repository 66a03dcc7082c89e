package ingest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/topics"
)

// ErrOtherFilter: the raw topic was filtered by other addresses, topics or another start block than the
// deployment's, so history is missing from it without a trace.
var ErrOtherFilter = errors.New("the raw topic belongs to another deployment: create a new one with `lienstream topics apply --kafka-prefix=PREFIX` and run every role with that prefix")

// markHeader is a header of the last barrier of each transaction, in partition 0, with the filter of the topic.
const markHeader = "filter"

// Versions of the header: a byte for the layout, since markHashes after a prefix byte for how entries are written.
const (
	markBefore  = 1 // layout: no followed tokens
	markListed  = 2 // layout: ends with the followed tokens
	markShort   = 3 // layout: the followed tokens are those of the transaction before
	markSpread  = 4 // layout: as markListed, then the tokens whose ledgers have several parts
	markOrigins = 5 // layout: as markSpread with a count, then the tokens whose origin comes later, with its block or 0
	markHashes  = 6 // prefix: hashes of addresses and topics; without it their first bytes, which vanity addresses share
	markRoles   = 7 // prefix: as markHashes, but addresses are hashed with their role; before, two could be exchanged
	markSums    = 8 // prefix: as markRoles, and ledgers of several parts have their sum; before, other parts could follow
	markVersion = markSums

	hashBytes   = 8
	prefixBytes = 4
)

// filtered is a contract or a topic of a filter, in a markFormat.
type filtered [hashBytes]byte

// markFormat is how a mark identifies contracts and topics. A topic's mark is compared in the format in which it was
// written.
type markFormat byte

const (
	byRole   markFormat = iota // by the first bytes of a hash, which covers the contract's role
	byHash                     // without the role
	byPrefix                   // by their own first bytes
)

// listEvery: one in this many transactions names the followed tokens although they have not changed, so that the next
// session need not read far back.
const listEvery = 256

// mark is the topic's filter, as written into each transaction.
type mark struct {
	format    markFormat
	noSums    bool // of a version before markSums
	start     uint64
	addresses []filtered // sorted
	topics    []filtered // sorted
	followed  map[common.Address]joined
	short     bool // followed is that of the transaction before
}

func markOf(d contracts.Deployment) mark { return markBy(d, byRole) }

// markBy is the deployment's mark in a format.
func markBy(d contracts.Deployment, by markFormat) mark {
	m := mark{start: d.StartBlock, format: by}
	decoder := contracts.NewDecoder(d)
	for _, a := range decoder.Addresses() {
		m.addresses = append(m.addresses, m.filtered(decoder.Role(a), a[:]))
	}
	for _, t := range contracts.TokenTopics() {
		m.topics = append(m.topics, m.filtered("", t[:]))
	}
	slices.SortFunc(m.addresses, compareFiltered)
	slices.SortFunc(m.topics, compareFiltered)
	return m
}

func compareFiltered(a, b filtered) int { return bytes.Compare(a[:], b[:]) }

func (m mark) filtered(role string, b []byte) (f filtered) {
	switch m.format {
	case byPrefix:
		copy(f[:prefixBytes], b)
	case byHash:
		f = filtered(crypto.Keccak256(b)[:hashBytes])
	case byRole:
		f = filtered(crypto.Keccak256([]byte(role), b)[:hashBytes])
	}
	return f
}

func (m mark) size() int {
	if m.format == byPrefix {
		return prefixBytes
	}
	return hashBytes
}

func (m mark) encode() []byte {
	switch m.format {
	case byPrefix:
		return m.appendTo(nil)
	case byHash:
		return m.appendTo([]byte{markHashes})
	case byRole:
		if m.noSums {
			return m.appendTo([]byte{markRoles})
		}
	}
	return m.appendTo([]byte{markSums})
}

func (m mark) appendTo(head []byte) []byte {
	kind := len(head)
	b := binary.BigEndian.AppendUint64(append(head, markShort), m.start)
	for _, list := range [][]filtered{m.addresses, m.topics} {
		b = append(b, byte(len(list)))
		for _, f := range list {
			b = append(b, f[:m.size()]...)
		}
	}
	switch {
	case m.short:
		return b
	case m.followed == nil:
		b[kind] = markBefore
		return b
	}
	b[kind] = markListed
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.followed))) // at most maxFollowed
	var spread, asks []byte
	for _, token := range slices.SortedFunc(maps.Keys(m.followed), common.Address.Cmp) {
		j := m.followed[token]
		b = binary.BigEndian.AppendUint64(append(b, token[:]...), j.block)
		if j.parts > 0 {
			spread = binary.BigEndian.AppendUint32(append(append(spread, token[:]...), j.hash[:]...), j.parts)
			spread = append(spread, j.sum[:m.sumBytes()]...)
		}
		if j.asks {
			asks = binary.BigEndian.AppendUint64(append(asks, token[:]...), j.originBlock)
		}
	}
	switch {
	case len(asks) > 0:
		b[kind] = markOrigins
		b = binary.BigEndian.AppendUint16(b, uint16(len(spread)/(spreadBytes+m.sumBytes())))
	case len(spread) > 0:
		b[kind] = markSpread
	}
	return slices.Concat(b, spread, asks)
}

func decodeMark(b []byte) (m mark, err error) {
	if len(b) > 0 && b[0] > markVersion {
		return m, fmt.Errorf("filter header has version %d, this build reads at most %d: %w", b[0], markVersion, topics.ErrLaterSchema)
	}
	m.format, m.noSums = byPrefix, true
	if len(b) > 0 && b[0] >= markHashes {
		if m.format, m.noSums = byHash, b[0] < markSums; b[0] >= markRoles {
			m.format = byRole
		}
		b = b[1:]
	}
	if len(b) < 9 || b[0] == 0 || b[0] >= markHashes {
		return m, errors.New("filter header is truncated, or has no version")
	}
	version := b[0]
	m.start = binary.BigEndian.Uint64(b[1:])
	b = b[9:]
	for _, list := range []*[]filtered{&m.addresses, &m.topics} {
		if len(b) == 0 || len(b) < 1+m.size()*int(b[0]) {
			return m, errors.New("filter header is truncated")
		}
		n := int(b[0])
		b = b[1:]
		for range n {
			var f filtered
			copy(f[:], b[:m.size()])
			*list = append(*list, f)
			b = b[m.size():]
		}
	}
	switch version {
	case markListed, markSpread, markOrigins:
		m.followed, err = decodeFollowed(b, version, m.sumBytes())
		return m, err
	}
	if m.short = version == markShort; len(b) > 0 {
		return m, fmt.Errorf("filter header has %d bytes too many", len(b))
	}
	return m, nil
}

const (
	followedBytes = common.AddressLength + 8                     // also of those whose origin comes later
	spreadBytes   = common.AddressLength + common.HashLength + 4 // without the sum
)

func (m mark) sumBytes() int {
	if m.noSums {
		return 0
	}
	return len(sum{})
}

// decodeFollowed reads the followed tokens, those whose ledgers have several parts, and those whose origin comes
// later.
func decodeFollowed(b []byte, version byte, sumBytes int) (map[common.Address]joined, error) {
	spreadBytes := spreadBytes + sumBytes
	followed, b, whole := counted(b, followedBytes)
	var spread, asks []byte
	switch version {
	case markListed:
		whole = whole && len(b) == 0
	case markSpread:
		spread = b
		whole = whole && len(b) > 0 && len(b)%spreadBytes == 0
	case markOrigins:
		var read bool
		spread, asks, read = counted(b, spreadBytes)
		whole = whole && read && len(asks) > 0 && len(asks)%followedBytes == 0
	}
	if !whole {
		return nil, errors.New("filter header does not end with the followed tokens")
	}
	all := map[common.Address]joined{}
	ordered := inOrder(followed, followedBytes, func(token common.Address, b []byte) bool {
		all[token] = joined{block: binary.BigEndian.Uint64(b)}
		return true
	}) && inOrder(spread, spreadBytes, func(token common.Address, b []byte) bool {
		j, found := all[token]
		j.hash, j.parts = common.Hash(b[:common.HashLength]), binary.BigEndian.Uint32(b[common.HashLength:])
		copy(j.sum[:sumBytes], b[common.HashLength+4:])
		all[token] = j
		return found && j.parts > 0 && j.parts <= topics.MaxHolders
	}) && inOrder(asks, followedBytes, func(token common.Address, b []byte) bool {
		j, found := all[token]
		j.asks, j.originBlock = true, binary.BigEndian.Uint64(b)
		all[token] = j
		return found
	})
	if !ordered {
		return nil, errors.New("followed tokens of the filter header are not in order")
	}
	return all, nil
}

// counted splits off a list that begins with its number of entries.
func counted(b []byte, size int) (list, rest []byte, ok bool) {
	if len(b) < 2 {
		return nil, nil, false
	}
	end := 2 + size*int(binary.BigEndian.Uint16(b))
	if len(b) < end {
		return nil, nil, false
	}
	return b[2:end], b[end:], true
}

// inOrder calls take with the entries of a list: a token and its data. It reports whether they are in the order of the
// tokens, and all were taken.
func inOrder(list []byte, size int, take func(token common.Address, b []byte) bool) bool {
	last := []byte(nil)
	for entry := range slices.Chunk(list, size) {
		token := entry[:common.AddressLength]
		if last != nil && bytes.Compare(token, last) <= 0 || !take(common.Address(token), entry[common.AddressLength:]) {
			return false
		}
		last = token
	}
	return true
}
