package httpapi

import (
	"encoding/hex"
	"encoding/json"
	"math/bits"
	"strconv"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

// Frequent responses are encoded by hand: a page of a list may have over a thousand fields, and reflection would
// dominate the cost.

// AppendString appends a JSON string. Invalid UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, err := json.Marshal(s)
			if err != nil {
				panic(err) // a string always marshals
			}
			return append(dst, quoted...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

// AppendAddress appends an address as a lowercase hex string.
func AppendAddress(dst []byte, a *common.Address) []byte {
	dst = hex.AppendEncode(append(dst, `"0x`...), a[:])
	return append(dst, '"')
}

// AppendHash appends a hash as a hex string.
func AppendHash(dst []byte, h *common.Hash) []byte {
	dst = hex.AppendEncode(append(dst, `"0x`...), h[:])
	return append(dst, '"')
}

// AppendAmount appends a number of up to 256 bits as a decimal string.
func AppendAmount(dst []byte, n *uint256.Int) []byte {
	dst = AppendDecimal(append(dst, '"'), n)
	return append(dst, '"')
}

// AppendDecimal appends the decimal digits of n.
func AppendDecimal(dst []byte, n *uint256.Int) []byte {
	if n.IsUint64() {
		return strconv.AppendUint(dst, n.Uint64(), 10)
	}
	// Five groups of 19 digits hold 2^256, the least significant group first.
	const (
		pieceBase   = 10_000_000_000_000_000_000
		pieceDigits = 19
	)
	var pieces [5]uint64
	count := 0
	for words := [4]uint64(*n); words != [4]uint64{}; count++ {
		var rem uint64
		for i := 3; i >= 0; i-- {
			words[i], rem = bits.Div64(rem, words[i], pieceBase)
		}
		pieces[count] = rem
	}
	dst = strconv.AppendUint(dst, pieces[count-1], 10)
	for i := count - 2; i >= 0; i-- {
		var digits [pieceDigits]byte
		for p, j := pieces[i], pieceDigits-1; j >= 0; j-- {
			digits[j] = byte('0' + p%10)
			p /= 10
		}
		dst = append(dst, digits[:]...)
	}
	return dst
}
