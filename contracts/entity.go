package contracts

import (
	"encoding/hex"
	"strconv"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

// Entity names the one thing that an event concerns. It is comparable.
type Entity struct {
	kind string // what its key begins with
	form form
	id   common.Hash // left-padded as in a log's topic
}

// form is how an ID is written.
type form uint8

const (
	formNumber form = iota
	formAddress
	formHash
)

func numbered(kind string, n *uint256.Int) Entity { return Entity{kind, formNumber, n.Bytes32()} }

func addressed(kind string, a common.Address) Entity {
	return Entity{kind, formAddress, common.BytesToHash(a[:])}
}

// DealEntity is a deal, with its bids and its reward.
func DealEntity(id *uint256.Int) Entity { return numbered("deal", id) }

// AccountEntity is an account, with its balances and its drips.
func AccountEntity(account common.Address) Entity { return addressed("account", account) }

// TokenEntity is a token, as the registry and the token itself tell of it.
func TokenEntity(token common.Address) Entity { return addressed("token", token) }

// PoolEntity is a pool, with its ticks and its stakes.
func PoolEntity(id common.Hash) Entity { return Entity{"pool", formHash, id} }

// EpochEntity is an epoch.
func EpochEntity(n uint32) Entity { return numbered("epoch", uint256.NewInt(uint64(n))) }

// contract is one of our own contracts.
func contract(address common.Address) Entity { return addressed("contract", address) }

// Key is the entity as the key of a Kafka record: "deal:42", "account:0x…", "pool:0x…".
func (e Entity) Key() []byte { return e.AppendKey(nil) }

// AppendKey appends Key to b.
func (e Entity) AppendKey(b []byte) []byte {
	b = append(append(b, e.kind...), ':')
	switch e.form {
	case formAddress:
		return AppendHex(b, e.id[common.HashLength-common.AddressLength:])
	case formHash:
		return AppendHex(b, e.id[:])
	default:
		return AppendNumber(b, new(uint256.Int).SetBytes32(e.id[:]))
	}
}

// AppendHex appends 0x and lower-case hex digits.
func AppendHex(b, raw []byte) []byte { return hex.AppendEncode(append(b, "0x"...), raw) }

// AppendNumber appends decimal digits.
func AppendNumber(b []byte, n *uint256.Int) []byte {
	if n.IsUint64() {
		return strconv.AppendUint(b, n.Uint64(), 10)
	}
	return append(b, n.Dec()...)
}
