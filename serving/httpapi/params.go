package httpapi

import (
	"slices"
	"strconv"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

// Param is a parameter. Its typed getters return nil if it is absent or invalid.
type Param struct {
	req   *Request
	name  string
	text  string
	given bool
}

// Query is a query parameter of the route.
func (req *Request) Query(name string) Param {
	value := req.queryValue(name)
	if value == nil {
		panic("route " + req.route.Path + " declares no query parameter " + name)
	}
	return Param{req: req, name: name, text: value.text, given: value.given}
}

// Path is a variable of the path.
func (req *Request) Path(name string) Param {
	text, ok := req.vars[name]
	if !ok {
		panic("route " + req.route.Path + " has no variable " + name)
	}
	return Param{req: req, name: name, text: text, given: true}
}

// filter adds the canonical form of a parameter to the scope of cursors.
func (p Param) filter(canonical string) {
	p.req.scope = append(p.req.scope, '&')
	p.req.scope = append(p.req.scope, p.name...)
	p.req.scope = append(p.req.scope, '=')
	p.req.scope = append(p.req.scope, canonical...)
}

func (p Param) fail(format string, args ...any) { p.req.fail(invalid(p.name, format, args...)) }

// Address is an address; in mixed case its EIP-55 checksum must be right.
func (p Param) Address() *common.Address {
	if !p.given {
		return nil
	}
	addr, ok := parseAddress(p.text)
	if !ok {
		p.fail("must be an address: 0x and 40 hex digits")
		return nil
	}
	lower := strings.ToLower(p.text)
	if digits := p.text[2:]; digits != lower[2:] && digits != strings.ToUpper(digits) && addr.Hex() != p.text {
		p.fail("must be an address: its EIP-55 checksum is wrong")
		return nil
	}
	p.filter(lower)
	return &addr
}

func parseAddress(s string) (addr common.Address, ok bool) {
	if len(s) != 2+2*common.AddressLength || s[:2] != "0x" {
		return addr, false
	}
	for i := range addr {
		hi, lo := unhex(s[2+2*i]), unhex(s[3+2*i])
		if hi < 0 || lo < 0 {
			return addr, false
		}
		addr[i] = byte(hi<<4 | lo)
	}
	return addr, true
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	default:
		return -1
	}
}

// canonicalDecimal allows digits only, without leading zeros: so one resource has one URL.
func canonicalDecimal(s string) bool {
	if s == "" || s[0] == '0' && len(s) > 1 {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// Uint256 is a decimal number of at most 256 bits, such as an ID.
func (p Param) Uint256() *uint256.Int {
	if !p.given {
		return nil
	}
	n := new(uint256.Int)
	if len(p.text) > 78 || !canonicalDecimal(p.text) || n.SetFromDecimal(p.text) != nil {
		p.fail("must be a decimal number of at most 256 bits, without leading zeros")
		return nil
	}
	p.filter(p.text)
	return n
}

// Block is a block number. It is not part of the cursor's scope: pages of a list may be of different blocks.
func (p Param) Block() uint64 {
	if !p.given {
		return 0
	}
	n, err := strconv.ParseUint(p.text, 10, 64)
	if err != nil || !canonicalDecimal(p.text) {
		p.fail("must be a block number, in decimal without leading zeros")
		return 0
	}
	return n
}

// Seconds is a duration in whole seconds, from 1 to 2^32-1.
func (p Param) Seconds() *uint32 {
	if !p.given {
		return nil
	}
	n, err := strconv.ParseUint(p.text, 10, 32)
	if err != nil || n == 0 || !canonicalDecimal(p.text) {
		p.fail("must be a number of seconds from 1 to 4294967295")
		return nil
	}
	p.filter(p.text)
	seconds := uint32(n)
	return &seconds
}

// Enum is one of names, as its index.
func Enum[T ~uint8](p Param, names []string) *T {
	if !p.given {
		return nil
	}
	i := slices.Index(names, p.text)
	if i < 0 {
		p.fail("must be one of %s", strings.Join(names, ", "))
		return nil
	}
	p.filter(p.text)
	v := T(i)
	return &v
}

// Sort is the query parameter sort: one of names, by default the first. Cursors contain the index, so the
// default may also be given explicitly.
func Sort[T ~uint8](req *Request, names []string) T {
	p := req.Query("sort")
	i := 0
	if p.given {
		if i = slices.Index(names, p.text); i < 0 {
			p.fail("must be one of %s", strings.Join(names, ", "))
			i = 0
		}
	}
	req.sort = byte(i)
	return T(i)
}

// Limits of all lists.
const (
	DefaultLimit = 50
	MaxLimit     = 200
)

// Limit is the query parameter limit. A value out of range is an error.
func (req *Request) Limit() int { return req.LimitWithin(DefaultLimit, MaxLimit) }

// LimitWithin is Limit with another default and maximum.
func (req *Request) LimitWithin(byDefault, most int) int {
	p := req.Query("limit")
	if !p.given {
		return byDefault
	}
	n, err := strconv.Atoi(p.text)
	if err != nil || n < 1 || n > most || !canonicalDecimal(p.text) {
		p.fail("must be an integer from 1 to %d", most)
		return byDefault
	}
	return n
}
