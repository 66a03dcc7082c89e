package contracts

import (
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

const (
	wordBytes = 32
	// maxStringBytes is what AssetRegistry accepts for a name or a symbol.
	maxStringBytes = 128
)

// words reads the arguments of one log in the order of the event's declaration, the indexed ones from the topics
// and the rest from the data. It is strict: what the Solidity compiler would not have written (padding that is
// not zero, a bool of 2, an enum out of range, a displaced string) spoils it, and stays with it.
//
// The caller has checked the number of topics and the length of the data.
type words struct {
	topics  []common.Hash // not yet read
	data    []byte        // whole
	next    int           // offset in data of the next head word
	tail    int           // offset in data where the next string must begin
	spoiled bool
}

func (w *words) indexed() *[wordBytes]byte {
	word := (*[wordBytes]byte)(&w.topics[0])
	w.topics = w.topics[1:]
	return word
}

func (w *words) word() *[wordBytes]byte {
	word := (*[wordBytes]byte)(w.data[w.next:])
	w.next += wordBytes
	return word
}

func toUint256(word *[wordBytes]byte) (n uint256.Int) {
	n.SetBytes32(word[:])
	return n
}

// toUint reads an unsigned integer of that many bits, 128 to 255.
func (w *words) toUint(word *[wordBytes]byte, bits int) uint256.Int {
	n := toUint256(word)
	if n.BitLen() > bits {
		w.spoiled = true
	}
	return n
}

// toSmall reads an unsigned integer of that many bits, at most 64.
func (w *words) toSmall(word *[wordBytes]byte, bits int) uint64 {
	n := toUint256(word)
	if n.BitLen() > bits {
		w.spoiled = true
	}
	return n[0]
}

func (w *words) toAddress(word *[wordBytes]byte) common.Address {
	for _, b := range word[:12] {
		if b != 0 {
			w.spoiled = true
		}
	}
	return common.Address(word[12:])
}

// toInt24 reads a signed integer of 24 bits, sign-extended to the whole word.
func (w *words) toInt24(word *[wordBytes]byte) int32 {
	n := int32(uint32(word[29])<<24|uint32(word[30])<<16|uint32(word[31])<<8) >> 8
	w.checkSign(word[:29], n < 0)
	return n
}

// toInt128 reads a signed integer of 128 bits and keeps it as two's complement of 256.
func (w *words) toInt128(word *[wordBytes]byte) uint256.Int {
	w.checkSign(word[:16], word[16]&0x80 != 0)
	return toUint256(word)
}

func (w *words) checkSign(extension []byte, negative bool) {
	var want byte
	if negative {
		want = 0xff
	}
	for _, b := range extension {
		if b != want {
			w.spoiled = true
		}
	}
}

func (w *words) uint256() uint256.Int     { return toUint256(w.word()) }
func (w *words) uint160() uint256.Int     { return w.toUint(w.word(), 160) }
func (w *words) uint128() uint256.Int     { return w.toUint(w.word(), 128) }
func (w *words) int128() uint256.Int      { return w.toInt128(w.word()) }
func (w *words) uint40() uint64           { return w.toSmall(w.word(), 40) }
func (w *words) uint32() uint32           { return uint32(w.toSmall(w.word(), 32)) }
func (w *words) uint24() uint32           { return uint32(w.toSmall(w.word(), 24)) }
func (w *words) uint16() uint16           { return uint16(w.toSmall(w.word(), 16)) }
func (w *words) uint8() uint8             { return uint8(w.toSmall(w.word(), 8)) }
func (w *words) int24() int32             { return w.toInt24(w.word()) }
func (w *words) bool() bool               { return w.toSmall(w.word(), 1) == 1 }
func (w *words) bytes32() common.Hash     { return *w.word() }
func (w *words) address() common.Address  { return w.toAddress(w.word()) }
func (w *words) enum(last uint8) uint8    { return w.toEnum(w.word(), last) }
func (w *words) topicNumber() uint256.Int { return toUint256(w.indexed()) }
func (w *words) topicHash() common.Hash   { return *w.indexed() }
func (w *words) topicUint32() uint32      { return uint32(w.toSmall(w.indexed(), 32)) }

func (w *words) topicAddress() common.Address { return w.toAddress(w.indexed()) }
func (w *words) topicEnum(last uint8) uint8   { return w.toEnum(w.indexed(), last) }

func (w *words) toEnum(word *[wordBytes]byte, last uint8) uint8 {
	n := w.toSmall(word, 8)
	if n > uint64(last) {
		w.spoiled = true
	}
	return uint8(n)
}

// string reads a string of at most maxStringBytes that begins where the one before it ended. What of it is no UTF-8
// is replaced: a token's name is the token's, and must not hide what the registry says of it.
func (w *words) string() string {
	offset := w.toSmall(w.word(), 32)
	if w.spoiled || offset != uint64(w.tail) || len(w.data)-w.tail < wordBytes {
		w.spoiled = true
		return ""
	}
	length := int(w.toSmall((*[wordBytes]byte)(w.data[w.tail:]), 31))
	body := w.data[w.tail+wordBytes:]
	padded := (length + wordBytes - 1) / wordBytes * wordBytes
	if w.spoiled || length > maxStringBytes || padded > len(body) {
		w.spoiled = true
		return ""
	}
	for _, b := range body[length:padded] {
		if b != 0 {
			w.spoiled = true
		}
	}
	w.tail += wordBytes + padded
	return strings.ToValidUTF8(string(body[:length]), "?") // not longer than it was
}
