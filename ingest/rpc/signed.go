package rpc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
)

// txFields are the fields of a transaction of each type in the order in which they are signed: of Ethereum, of OP
// deposits, and of Arbitrum.
var txFields = func() map[uint64][]int {
	all := map[uint64][]int{}
	for kind, keys := range map[uint64]string{
		types.LegacyTxType:     "nonce gasPrice gas to value input v r s",
		types.AccessListTxType: "chainId nonce gasPrice gas to value input accessList yParity r s",
		types.DynamicFeeTxType: "chainId nonce maxPriorityFeePerGas maxFeePerGas gas to value input accessList yParity r s",
		types.BlobTxType:       "chainId nonce maxPriorityFeePerGas maxFeePerGas gas to value input accessList maxFeePerBlobGas blobVersionedHashes yParity r s",
		types.SetCodeTxType:    "chainId nonce maxPriorityFeePerGas maxFeePerGas gas to value input accessList authorizationList yParity r s",
		depositType:            "sourceHash from to mint value gas isSystemTx input",
		0x64:                   "chainId requestId from to value",
		0x65:                   "chainId from nonce maxFeePerGas gas to value input",
		0x66:                   "chainId requestId from maxFeePerGas gas to value input",
		0x68:                   "chainId nonce from maxFeePerGas gas to value input ticketId refundTo maxRefund submissionFeeRefund",
		0x69:                   "chainId requestId from l1BaseFee depositValue maxFeePerGas gas retryTo retryValue beneficiary maxSubmissionFee refundTo retryData",
		0x6a:                   "chainId input",
	} {
		for key := range strings.FieldsSeq(keys) {
			all[kind] = append(all[kind], txKeys[key])
		}
	}
	return all
}()

// txKey is a field of transactions.
type txKey struct {
	name string
	or   string // another name of it; empty: none
	kind txKind
}

// txKind is how a field is encoded.
type txKind uint8

const (
	txNumber txKind = iota
	txAddress
	txMaybe // a number or an address that may be missing
	txHash
	txData
	txFlag // missing: false
	txAccess
	txHashes
	txAuthorizations
)

var allTxKeys = [...]txKey{
	{"nonce", "", txNumber},
	{"gasPrice", "", txNumber},
	{"gas", "", txNumber},
	{"to", "", txMaybe},
	{"value", "", txNumber},
	{"input", "data", txData},
	{"v", "", txNumber},
	{"r", "", txNumber},
	{"s", "", txNumber},
	{"chainId", "", txNumber},
	{"accessList", "", txAccess},
	{"maxPriorityFeePerGas", "", txNumber},
	{"maxFeePerGas", "gasPrice", txNumber}, // Arbitrum's have both or one
	{"maxFeePerBlobGas", "", txNumber},
	{"blobVersionedHashes", "", txHashes},
	{"authorizationList", "", txAuthorizations},
	{"sourceHash", "", txHash},
	{"from", "", txAddress},
	{"mint", "", txMaybe},
	{"isSystemTx", "", txFlag},
	{"requestId", "", txHash},
	{"ticketId", "", txHash},
	{"refundTo", "", txAddress},
	{"maxRefund", "", txNumber},
	{"submissionFeeRefund", "", txNumber},
	{"l1BaseFee", "", txNumber},
	{"depositValue", "", txNumber},
	{"retryTo", "", txMaybe},
	{"retryValue", "", txNumber},
	{"beneficiary", "", txAddress},
	{"maxSubmissionFee", "", txNumber},
	{"retryData", "", txData},
	{"yParity", "v", txNumber}, // if both are there, some nodes have 27, 28 or the chain ID in v
	{"data", "", txData},
	{"type", "", txNumber},
	{"hash", "", txHash},
}

var txKeys = func() map[string]int {
	m := make(map[string]int, len(allTxKeys))
	for i, k := range allTxKeys {
		m[k.name] = i
	}
	return m
}()

// described are the transactions of a block as a node describes them.
type described struct {
	raw    rawTransactions // in signed form; nil: the description does not have the hash that the node names
	hashes []common.Hash   // as the node names them; zero: none
}

// decodeDescribed decodes the transactions of a block. Nodes describe them in different ways, and leave fields out:
// only an encoding with the hash that the node names counts as the signed form.
func decodeDescribed(s *scanner) (*described, error) {
	if s.null() {
		return nil, errNoBlock
	}
	var d *described
	err := s.field("block", "transactions", func() error {
		d = new(described)
		return s.list("transactions", maxTransactions, func() error { return d.one(s) })
	})
	if err == nil && d == nil {
		err = fmt.Errorf("block: transactions: %w", errMissing)
	}
	return d, err
}

// one decodes a transaction.
func (d *described) one(s *scanner) error {
	var hash common.Hash
	var raw []byte
	if s.peek() == '"' { // its hash alone
		if err := s.fixed(hash[:]); err != nil {
			return err
		}
	} else {
		var values [len(allTxKeys)][]byte // JSON; nil: missing
		err := s.fields(func(key []byte) error {
			value, err := s.raw()
			if at, known := txKeys[string(key)]; known && string(value) != "null" {
				values[at] = value
			}
			return err
		})
		if err != nil {
			return err
		}
		if v := values[txKeys["hash"]]; v == nil || (&scanner{b: v}).fixed(hash[:]) != nil {
			hash = common.Hash{}
		}
		raw = encodeSigned(&values)
	}
	if raw != nil && crypto.Keccak256Hash(raw) != hash {
		raw = nil
	}
	d.raw, d.hashes = append(d.raw, raw), append(d.hashes, hash)
	return nil
}

// encodeSigned encodes a transaction; nil: its type is not known, or has other fields here.
func encodeSigned(values *[len(allTxKeys)][]byte) []byte {
	kind := uint64(0)
	if v := values[txKeys["type"]]; v != nil {
		var err error
		if kind, err = (&scanner{b: v}).quantity(8); err != nil {
			return nil
		}
	}
	keys := txFields[kind]
	if keys == nil {
		return nil
	}
	size := 0
	for _, at := range keys {
		size += len(values[at])/2 + lengthBytes(len(values[at]))
	}
	items := make([]byte, 0, size)
	for _, at := range keys {
		k := &allTxKeys[at]
		v := values[at]
		if v == nil && k.or != "" {
			v = values[txKeys[k.or]]
		}
		var err error
		if items, err = k.kind.append(items, v); err != nil {
			return nil
		}
	}
	raw := make([]byte, 0, 1+lengthBytes(len(items))+len(items))
	if kind > 0 {
		raw = append(raw, byte(kind))
	}
	return append(appendLength(raw, 0xc0, len(items)), items...)
}

// append appends a field of this kind, given as JSON.
func (k txKind) append(b, value []byte) ([]byte, error) {
	if value == nil {
		switch k {
		case txMaybe, txFlag:
			return appendBytes(b, nil), nil
		case txAccess:
			return appendLength(b, 0xc0, 0), nil
		default:
			return b, errMissing
		}
	}
	s := &scanner{b: value}
	switch k {
	case txFlag:
		if string(value) == "true" {
			return append(b, 1), nil
		}
		return appendBytes(b, nil), nil
	case txAccess:
		return appendList(b, s, appendAccess)
	case txHashes:
		return appendList(b, s, appendHash)
	case txAuthorizations:
		return appendList(b, s, appendAuthorization)
	default:
	}
	v, err := s.digits()
	switch {
	case err != nil:
		return b, err
	case k == txNumber, k == txMaybe && len(v) != 2*common.AddressLength:
		return appendNumber(b, v)
	case k == txData:
		return appendDigits(b, v, len(v)/2)
	case k == txHash:
		return appendDigits(b, v, common.HashLength)
	default:
		return appendDigits(b, v, common.AddressLength)
	}
}

// appendList appends a list whose elements one appends.
func appendList(b []byte, s *scanner, one func([]byte, *scanner) ([]byte, error)) ([]byte, error) {
	var items []byte
	err := s.list("elements", maxTransactions, func() (err error) {
		items, err = one(items, s)
		return err
	})
	return append(appendLength(b, 0xc0, len(items)), items...), err
}

func appendHash(b []byte, s *scanner) ([]byte, error) {
	v, err := s.digits()
	if err != nil {
		return b, err
	}
	return appendDigits(b, v, common.HashLength)
}

func appendAccess(b []byte, s *scanner) ([]byte, error) {
	var address []byte
	keys := appendLength(nil, 0xc0, 0)
	err := s.fields(func(key []byte) (err error) {
		switch {
		case string(key) == "address":
			address, err = s.digits()
		case string(key) == "storageKeys" && !s.null():
			keys, err = appendList(nil, s, appendHash)
		case string(key) != "storageKeys":
			err = s.skip()
		}
		return err
	})
	if err != nil {
		return b, err
	}
	items, err := appendDigits(nil, address, common.AddressLength)
	items = append(items, keys...)
	return append(appendLength(b, 0xc0, len(items)), items...), err
}

func appendAuthorization(b []byte, s *scanner) ([]byte, error) {
	names := [...]string{"chainId", "address", "nonce", "yParity", "r", "s", "v"}
	var values [len(names)][]byte
	err := s.fields(func(key []byte) (err error) {
		if i := slices.Index(names[:], string(key)); i >= 0 {
			values[i], err = s.raw()
			return err
		}
		return s.skip()
	})
	const parity, v = 3, 6
	if values[parity] == nil {
		values[parity] = values[v]
	}
	var items []byte
	for i := range v {
		kind := txNumber
		if names[i] == "address" {
			kind = txAddress
		}
		if err == nil {
			items, err = kind.append(items, values[i])
		}
	}
	return append(appendLength(b, 0xc0, len(items)), items...), err
}
