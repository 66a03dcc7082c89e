package rpc

import (
	"encoding/binary"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/lienstream/lienstream/ingest/follow"
)

// headerFields are the header fields in hashing order. Those from baseFeePerGas on were added one after the
// other, and chains without them omit them. Extra fields of some chains (Arbitrum's l1BlockNumber, sendRoot and
// sendCount) are contained in extraData and mixHash, and not hashed.
var headerFields = [...]struct {
	key  string
	size int // bytes; quantity: a number; anyBytes: any length
}{
	{"parentHash", 32},
	{"sha3Uncles", 32},
	{"miner", 20},
	{"stateRoot", 32},
	{"transactionsRoot", 32},
	{"receiptsRoot", 32},
	{"logsBloom", types.BloomByteLength},
	{"difficulty", quantity},
	{"number", quantity},
	{"gasLimit", quantity},
	{"gasUsed", quantity},
	{"timestamp", quantity},
	{"extraData", anyBytes},
	{"mixHash", 32},
	{"nonce", 8},
	{"baseFeePerGas", quantity},
	{"withdrawalsRoot", 32},
	{"blobGasUsed", quantity},
	{"excessBlobGas", quantity},
	{"parentBeaconBlockRoot", 32},
	{"requestsHash", 32},
	{"blockAccessListHash", 32},
	{"slotNumber", quantity},
}

const (
	quantity = -1
	anyBytes = -2

	fieldParent       = 0
	fieldState        = 3
	fieldTransactions = 4
	fieldReceipts     = 5
	fieldBloom        = 6
	fieldNumber       = 8
	fieldGasUsed      = 10
	fieldTime         = 11
	fieldOptional     = 15

	maxExtraBytes = 1 << 20 // chains keep the seals of their validators there
)

var headerField = func() map[string]int {
	m := make(map[string]int, len(headerFields))
	for i, f := range headerFields {
		m[f.key] = i
	}
	return m
}()

// decodeHeader decodes the header fields that following needs. Null means that the node lacks the block. With
// proved, the hash is computed from the fields, which shows that time, bloom filter and receipts root belong to
// it.
func decodeHeader(s *scanner, h *follow.Header, proved bool) error {
	if s.null() {
		return errNoBlock
	}
	if !s.take('{') {
		return errJSON
	}
	var fields [len(headerFields)][]byte // hex digits; nil: missing
	var hash []byte
	for first := true; ; first = false {
		more, err := s.more(first, '}')
		if err != nil {
			return fmt.Errorf("header: %w", err)
		}
		if !more {
			break
		}
		key, err := s.key()
		if err != nil {
			return fmt.Errorf("header: %w", err)
		}
		at, known := headerField[string(key)]
		switch {
		case string(key) == "hash":
			hash, err = s.digits()
		case !known:
			err = s.skip()
		case s.null():
			fields[at] = nil
		default:
			if fields[at], err = s.digits(); fields[at] == nil {
				fields[at] = []byte{}
			}
		}
		if err != nil {
			return fmt.Errorf("header: %.32q: %w", key, err)
		}
	}
	if hash == nil {
		return fmt.Errorf("header: hash: %w", errMissing)
	}
	return fillHeader(h, &fields, hash, proved)
}

func fillHeader(h *follow.Header, fields *[len(headerFields)][]byte, hash []byte, proved bool) (err error) {
	field := func(at int, read func(digits []byte) error) {
		switch {
		case err != nil:
		case fields[at] == nil:
			err = errMissing
		default:
			err = read(fields[at])
		}
		if err != nil {
			err = fmt.Errorf("header: %q: %w", headerFields[at].key, err)
		}
	}
	number := func(into *uint64) func([]byte) error {
		return func(v []byte) (err error) {
			*into, err = parseQuantity(v, 64)
			return err
		}
	}
	if err := unhex(h.Hash[:], hash); err != nil {
		return fmt.Errorf("header: hash: %w", err)
	}
	field(fieldParent, func(v []byte) error { return unhex(h.Parent[:], v) })
	field(fieldBloom, func(v []byte) error { return unhex(h.Bloom[:], v) })
	field(fieldNumber, number(&h.Number))
	field(fieldTime, number(&h.Timestamp))
	if proved || fields[fieldReceipts] != nil {
		field(fieldReceipts, func(v []byte) error { return unhex(h.Receipts[:], v) })
	}
	if err != nil || !proved {
		return err
	}
	field(fieldState, func(v []byte) error { return unhex(h.State[:], v) })
	field(fieldGasUsed, number(&h.GasUsed))
	if field(fieldTransactions, func(v []byte) error { return unhex(h.Transactions[:], v) }); err != nil {
		return err
	}
	return hashes(h, fields)
}

// hashes checks that the fields hash to the block's hash. A node may return newer fields than its chain hashes,
// so shorter lists are tried too.
func hashes(h *follow.Header, fields *[len(headerFields)][]byte) error {
	buf := make([]byte, 0, 1024)
	for n := len(fields); n >= fieldOptional; n-- {
		if n < len(fields) && fields[n] == nil {
			continue // the same as with it
		}
		list, err := appendFields(buf[:0], fields[:n])
		if err != nil {
			return err
		}
		if headHash(list) == h.Hash {
			return nil
		}
	}
	return lied("header_hash", "the header fields of block %d do not hash to %s", h.Number, h.Hash)
}

// appendFields appends the fields as items of an RLP list, without missing ones at the end.
func appendFields(b []byte, fields [][]byte) ([]byte, error) {
	last := len(fields)
	for last > fieldOptional && fields[last-1] == nil {
		last--
	}
	for i, digits := range fields[:last] {
		size := headerFields[i].size
		switch {
		case digits == nil && i >= fieldOptional:
			b = append(b, 0x80)
			continue
		case digits == nil && (headerFields[i].key == "mixHash" || headerFields[i].key == "nonce"):
			b = appendZeros(b, size)
			continue
		case digits == nil:
			return nil, fmt.Errorf("header: %q: %w", headerFields[i].key, errMissing)
		}
		var err error
		switch size {
		case quantity:
			b, err = appendNumber(b, digits)
		case anyBytes:
			if len(digits) > 2*maxExtraBytes || len(digits)%2 != 0 {
				return nil, fmt.Errorf("header: %q: %w", headerFields[i].key, errHex)
			}
			b, err = appendDigits(b, digits, len(digits)/2)
		default:
			b, err = appendDigits(b, digits, size)
		}
		if err != nil {
			return nil, fmt.Errorf("header: %q: %w", headerFields[i].key, err)
		}
	}
	return b, nil
}

// headHash is the hash of the RLP list of the items.
func headHash(items []byte) common.Hash {
	var prefix [9]byte
	return crypto.Keccak256Hash(appendLength(prefix[:0], 0xc0, len(items)), items)
}

// appendLength appends the RLP prefix of n bytes: 0x80 for a string, 0xc0 for a list.
func appendLength(b []byte, kind byte, n int) []byte {
	if n < 56 {
		return append(b, kind+byte(n))
	}
	var be [8]byte
	binary.BigEndian.PutUint64(be[:], uint64(n))
	at := 0
	for be[at] == 0 {
		at++
	}
	return append(append(b, kind+55+byte(8-at)), be[at:]...)
}

// lengthBytes is the size of what appendLength appends.
func lengthBytes(n int) int {
	if n < 56 {
		return 1
	}
	size := 1
	for ; n > 0; n >>= 8 {
		size++
	}
	return size
}

func appendZeros(b []byte, n int) []byte {
	return append(appendLength(b, 0x80, n), make([]byte, n)...)
}

// appendDigits appends a string of size bytes, given as hex digits.
func appendDigits(b, digits []byte, size int) ([]byte, error) {
	if size == 1 {
		var one [1]byte
		err := unhex(one[:], digits)
		return appendBytes(b, one[:]), err
	}
	b = appendLength(b, 0x80, size)
	b = append(b, make([]byte, size)...)
	return b, unhex(b[len(b)-size:], digits)
}

// appendNumber appends a number of at most 256 bits, given as hex digits.
func appendNumber(b, digits []byte) ([]byte, error) {
	for len(digits) > 0 && digits[0] == '0' {
		digits = digits[1:]
	}
	if len(digits) > 64 {
		return nil, errHex
	}
	var word [32]byte
	n := (len(digits) + 1) / 2
	var padded [64]byte
	padded[0] = '0'
	copy(padded[2*n-len(digits):], digits)
	if err := unhex(word[:n], padded[:2*n]); err != nil {
		return nil, err
	}
	return appendBytes(b, word[:n]), nil
}

// appendBytes appends a string.
func appendBytes(b, raw []byte) []byte {
	if len(raw) == 1 && raw[0] < 0x80 {
		return append(b, raw[0])
	}
	return append(appendLength(b, 0x80, len(raw)), raw...)
}
