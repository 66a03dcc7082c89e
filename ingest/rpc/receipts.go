package rpc

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/trie"

	"github.com/lienstream/lienstream/topics"
)

// receipts decodes the result of eth_getBlockReceipts: a block's logs, and the data that its receipts root is
// computed from. It implements types.DerivableList. The zero value is ready for use, and reset makes it so again.
//
// A receipt of any type is hashed as its type byte and the list of status, gas, bloom filter and logs, so
// unknown types such as Arbitrum's work too. Only OP's deposits add fields to the list.
type receipts struct {
	logs    logDecoder
	encoded []byte
	ends    []int // in encoded
	hashes  []common.Hash
	upTo    []int // number of logs up to the end of each receipt

	items, list []byte // of one receipt
}

// decoders are reusable, because the receipts of a block take megabytes: see buffers.
var decoders = make(chan *receipts, 4)

func newReceipts() *receipts {
	select {
	case r := <-decoders:
		return r
	default:
		return new(receipts)
	}
}

func releaseReceipts(r *receipts) {
	if r.bytes() > maxKept {
		return
	}
	select {
	case decoders <- r:
	default:
	}
}

// bytes is the memory that it holds.
func (r *receipts) bytes() int {
	return cap(r.encoded) + cap(r.items) + cap(r.list) + cap(r.logs.data) +
		cap(r.logs.logs)*int(unsafe.Sizeof(topics.Log{})) + cap(r.logs.topics)*common.HashLength
}

// reset makes it ready for another block. What it returned is overwritten.
func (r *receipts) reset() {
	r.logs.reset()
	r.encoded, r.ends, r.hashes, r.upTo = r.encoded[:0], r.ends[:0], r.hashes[:0], r.upTo[:0]
}

// depositType is OP's deposit, whose receipts have had a nonce and a version since Canyon.
const depositType = 0x7e

// Len implements types.DerivableList.
func (r *receipts) Len() int { return len(r.ends) }

// EncodeIndex implements types.DerivableList.
func (r *receipts) EncodeIndex(i int, w *bytes.Buffer) {
	from := 0
	if i > 0 {
		from = r.ends[i-1]
	}
	w.Write(r.encoded[from:r.ends[i]])
}

func (r *receipts) root() common.Hash { return types.DeriveSha(r, trie.NewStackTrie(nil)) }

func (r *receipts) decode(s *scanner) error {
	if s.null() {
		return errNoBlock
	}
	if !s.take('[') {
		return fmt.Errorf("receipts: %w", errJSON)
	}
	for first := true; ; first = false {
		more, err := s.more(first, ']')
		if err != nil {
			return fmt.Errorf("receipts: %w", err)
		}
		if !more {
			return nil
		}
		if err := r.one(s); err != nil {
			return fmt.Errorf("receipt %d: %w", len(r.ends), err)
		}
	}
}

// receipt holds the hashed fields of a receipt, as hex digits.
type receipt struct {
	kind, status, root, gas, bloom []byte
	depositNonce, depositVersion   []byte
	tx                             common.Hash
	logs                           bool
}

func (r *receipts) one(s *scanner) error {
	if !s.take('{') {
		return errJSON
	}
	var v receipt
	from := len(r.logs.logs)
	for first := true; ; first = false {
		more, err := s.more(first, '}')
		if err != nil {
			return err
		}
		if !more {
			break
		}
		key, err := s.key()
		if err != nil {
			return err
		}
		var into *[]byte
		switch string(key) {
		case "type":
			into = &v.kind
		case "status":
			into = &v.status
		case "root":
			into = &v.root
		case "cumulativeGasUsed":
			into = &v.gas
		case "logsBloom":
			into = &v.bloom
		case "depositNonce":
			into = &v.depositNonce
		case "depositReceiptVersion":
			into = &v.depositVersion
		case "transactionHash":
			err = s.fixed(v.tx[:])
		case "logs":
			v.logs = true
			r.logs.logs = r.logs.logs[:from]
			err = r.logs.decode(s)
		default:
			err = s.skip()
		}
		if into != nil && !s.null() {
			*into, err = s.digits()
		}
		if err != nil {
			return fmt.Errorf("%.32q: %w", key, err)
		}
	}
	if v.gas == nil || v.bloom == nil || !v.logs || v.status == nil && v.root == nil {
		return errMissing
	}
	if err := r.encode(&v, r.logs.logs[from:]); err != nil {
		return err
	}
	r.hashes = append(r.hashes, v.tx)
	r.ends = append(r.ends, len(r.encoded))
	r.upTo = append(r.upTo, len(r.logs.logs))
	return nil
}

// encode appends the RLP encoding of a receipt.
func (r *receipts) encode(v *receipt, logs []topics.Log) error {
	kind := uint64(0)
	var err error
	if v.kind != nil {
		if kind, err = parseQuantity(v.kind, 8); err != nil || kind > 0x7f {
			return errors.Join(errHex, err)
		}
	}
	items, list := r.items[:0], r.list[:0]
	if v.status != nil {
		items, err = appendNumber(items, v.status)
	} else {
		items, err = appendDigits(items, v.root, common.HashLength)
	}
	if err == nil {
		items, err = appendNumber(items, v.gas)
	}
	if err == nil {
		items, err = appendDigits(items, v.bloom, types.BloomByteLength)
	}
	for i := range logs {
		list = appendLog(list, &logs[i])
	}
	items = append(appendLength(items, 0xc0, len(list)), list...)
	if err == nil && kind == depositType && v.depositVersion != nil {
		if items, err = appendNumber(items, v.depositNonce); err == nil {
			items, err = appendNumber(items, v.depositVersion)
		}
	}
	if kind > 0 {
		r.encoded = append(r.encoded, byte(kind))
	}
	r.encoded = append(appendLength(r.encoded, 0xc0, len(items)), items...)
	r.items, r.list = items, list
	return err
}

// appendLog appends the RLP encoding of a log.
func appendLog(b []byte, l *topics.Log) []byte {
	hashes := len(l.Topics) * (1 + common.HashLength)
	data := len(l.Data)
	if data != 1 || l.Data[0] >= 0x80 {
		data += lengthBytes(data)
	}
	b = appendLength(b, 0xc0, 1+common.AddressLength+lengthBytes(hashes)+hashes+data)
	b = appendBytes(b, l.Address[:])
	b = appendLength(b, 0xc0, hashes)
	for i := range l.Topics {
		b = appendBytes(b, l.Topics[i][:])
	}
	return appendBytes(b, l.Data)
}
