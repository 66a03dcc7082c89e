package httpapi

import (
	"strconv"
	"strings"

	"github.com/ethereum/go-ethereum/common"
)

// Required makes a missing parameter an error.
func (p Param) Required() Param {
	if !p.given {
		p.fail("is required")
	}
	return p
}

// Given reports whether the parameter is present.
func (p Param) Given() bool { return p.given }

// Text is the raw parameter.
func (p Param) Text() string { return p.text }

// Refuse makes the parameter invalid, after a check by the handler.
func (p Param) Refuse(format string, args ...any) { p.fail(format, args...) }

// Hash is 32 bytes in hex, in any case.
func (p Param) Hash() *common.Hash {
	if !p.given {
		return nil
	}
	var h common.Hash
	ok := len(p.text) == 2+2*common.HashLength && p.text[:2] == "0x"
	for i := 0; ok && i < len(h); i++ {
		hi, lo := unhex(p.text[2+2*i]), unhex(p.text[3+2*i])
		ok = hi >= 0 && lo >= 0
		h[i] = byte(hi<<4 | lo)
	}
	if !ok {
		p.fail("must be 0x and 64 hex digits")
		return nil
	}
	p.filter(strings.ToLower(p.text))
	return &h
}

// Integer is a decimal number within bounds.
func (p Param) Integer(lowest, highest int64) *int64 {
	if !p.given {
		return nil
	}
	n, err := strconv.ParseInt(p.text, 10, 64)
	if err != nil || n < lowest || n > highest || strconv.FormatInt(n, 10) != p.text {
		p.fail("must be an integer from %d to %d", lowest, highest)
		return nil
	}
	p.filter(p.text)
	return &n
}
