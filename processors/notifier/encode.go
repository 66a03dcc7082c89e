package notifier

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/ethereum/go-ethereum/common"
)

// Rows of which one block may cause thousands are encoded and decoded here: to the same bytes as by encoding/json, at a
// tenth of the cost.

const (
	rowBytes   = 96  // typical size of a row without its deal
	firedBytes = 192 // typical size of an alert
)

func (d *Deal) encode() []byte {
	b := appendText([]byte(`{"id":`), d.ID)
	b = appendAddress(append(b, `,"borrower":`...), d.Borrower)
	b = appendAddress(append(b, `,"lender":`...), d.Lender)
	b = appendAddress(append(b, `,"token":`...), d.Token)
	b = appendText(append(b, `,"amount":`...), d.Amount)
	if d.Position {
		b = append(b, `,"position":true`...)
	}
	b = appendText(append(b, `,"cap":`...), d.Cap)
	if d.Price != "" {
		b = appendText(append(b, `,"price":`...), d.Price)
	}
	b = appendNumber(b, `,"fundedAt":`, d.FundedAt)
	b = appendNumber(b, `,"expiry":`, d.Expiry)
	b = appendNumber(b, `,"graceEnd":`, d.GraceEnd)
	return append(strconv.AppendBool(append(b, `,"open":`...), d.Open), '}')
}

// appendRow encodes an openDeal whose json is set.
func (d *openDeal) appendRow(b []byte) []byte {
	b = append(append(b, `{"deal":`...), d.json...)
	b = strconv.AppendUint(append(b, `,"after":`...), d.After, 10)
	b = appendNumber(b, `,"ended":`, d.Ended)
	b = appendNumber(b, `,"armed":`, d.Armed)
	b = appendNumber(b, `,"published":`, uint64(d.Published))
	if d.Former != nil {
		former, _ := json.Marshal(d.Former) // numbers always have an encoding
		b = append(append(b, `,"former":`...), former...)
	}
	return append(b, '}')
}

// appendFired encodes an alert of a deal that was fired and not attempted yet.
func (a *Alert) appendFired(b []byte) []byte {
	b = append(b, `{"deal":{`...)
	from := len(b)
	b = appendNumber(b, `,"fundedAt":`, a.Terms.FundedAt)
	b = appendNumber(b, `,"expiry":`, a.Terms.Expiry)
	b = appendNumber(b, `,"graceEnd":`, a.Terms.GraceEnd)
	if len(b) > from {
		b = slices.Delete(b, from, from+1) // the first comma
	}
	b = strconv.AppendUint(append(b, `},"stage":`...), uint64(a.Stage), 10)
	b = strconv.AppendUint(append(b, `,"due":`...), a.Due, 10)
	b = strconv.AppendUint(append(b, `,"firedAt":`...), a.FiredAt, 10)
	b = strconv.AppendInt(append(b, `,"next":`...), a.Next, 10)
	if a.Waits {
		b = append(b, `,"waits":true`...)
	}
	return append(b, '}')
}

// appendNumber leaves out zero.
func appendNumber(b []byte, name string, n uint64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendUint(append(b, name...), n, 10)
}

func appendAddress(b []byte, a common.Address) []byte {
	return append(hex.AppendEncode(append(b, `"0x`...), a[:]), '"')
}

func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			text, _ := json.Marshal(s) // a string always has an encoding
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// decode reads a row as encoding/json does.
func (d *openDeal) decode(row []byte) error {
	parsed, err := decodeRow(d, row)
	if !parsed {
		d.json = d.Deal.encode()
	}
	return err
}

// decodeRow reads a row as encoding/json does. parsed: to.parse could read it, and not only encoding/json, which rows
// of an older build or with unusual text need.
func decodeRow[T any, P interface {
	*T
	parse(row []byte) bool
}](to P, row []byte) (parsed bool, err error) {
	var none T
	if *to = none; to.parse(row) {
		return true, nil
	}
	*to = none
	return false, json.Unmarshal(row, to)
}

// parse reads a row that appendRow wrote, and reports whether it is one.
func (d *openDeal) parse(row []byte) bool {
	p := parser{rest: row}
	p.take(`{"deal":`)
	deal := p.rest
	p.take(`{"id":`)
	d.Deal.ID = p.text()
	for _, f := range []struct {
		name string
		to   *common.Address
	}{{`,"borrower":`, &d.Deal.Borrower}, {`,"lender":`, &d.Deal.Lender}, {`,"token":`, &d.Deal.Token}} {
		p.take(f.name)
		p.address(f.to)
	}
	p.take(`,"amount":`)
	d.Deal.Amount = p.text()
	d.Deal.Position = p.has(`,"position":true`)
	p.take(`,"cap":`)
	d.Deal.Cap = p.text()
	if p.has(`,"price":`) {
		d.Deal.Price = p.text()
	}
	d.Deal.FundedAt = p.number(`,"fundedAt":`)
	d.Deal.Expiry = p.number(`,"expiry":`)
	d.Deal.GraceEnd = p.number(`,"graceEnd":`)
	p.take(`,"open":`)
	if d.Deal.Open = p.has("true"); !d.Deal.Open {
		p.take("false")
	}
	p.take("}")
	d.json = bytes.Clone(deal[:len(deal)-len(p.rest)])
	d.After = p.number(`,"after":`)
	d.Ended = p.number(`,"ended":`)
	d.Armed = p.number(`,"armed":`)
	published := p.number(`,"published":`)
	d.Published = uint32(published)
	p.take("}")
	return !p.failed && len(p.rest) == 0 && published <= math.MaxUint32
}

// dueRow is the part of an alert that the indexes of the outbox use.
type dueRow struct {
	Next  int64 `json:"next"`
	Held  bool  `json:"held"`
	Waits bool  `json:"waits"`
	Terms Terms `json:"deal"`

	Request struct {
		Stranger bool `json:"stranger"`
	} `json:"request"`
}

// parse reads an alert of a deal, and reports whether it is one.
func (d *dueRow) parse(row []byte) bool {
	p := parser{rest: row}
	p.take(`{"deal":{`)
	if d.Terms.FundedAt = p.number(`"fundedAt":`); d.Terms.FundedAt > 0 { // otherwise the next field has no comma
		d.Terms.Expiry = p.number(`,"expiry":`)
		d.Terms.GraceEnd = p.number(`,"graceEnd":`)
	}
	p.required(`},"stage":`)
	for _, name := range []string{`,"due":`, `,"firedAt":`, `,"attempt":`} {
		p.number(name)
	}
	next := p.number(`,"next":`)
	d.Next = int64(next)
	p.maybe(`,"reason":`)
	p.maybe(`,"by":`)
	d.Held = p.has(`,"held":true`)
	d.Waits = p.has(`,"waits":true`)
	p.take("}")
	return !p.failed && len(p.rest) == 0 && next <= math.MaxInt64
}

// subscribeRow is the part of a subscription that firing alerts needs.
type subscribeRow struct {
	Prefs     Prefs  `json:"prefs"`
	CreatedAt int64  `json:"createdAt"`
	Disabled  string `json:"disabled"`
}

// parse reads a subscription to which alerts go, and reports whether it is one.
func (s *subscribeRow) parse(row []byte) bool {
	p := parser{rest: row}
	p.required(`{"channel":`)
	p.take(`,"sealed":`)
	p.skip()
	p.take(`,"mask":`)
	p.skip()
	prefs := p.number(`,"prefs":`)
	created := p.number(`,"createdAt":`)
	p.number(`,"unix":`)
	p.take("}")
	s.Prefs, s.CreatedAt = Prefs(prefs), int64(created)
	return !p.failed && len(p.rest) == 0 && prefs <= math.MaxUint8 && created <= math.MaxInt64
}

// parser reads a text from its start. After a failure its results are meaningless.
type parser struct {
	rest   []byte
	failed bool
}

func (p *parser) has(text string) bool {
	if len(p.rest) < len(text) || string(p.rest[:len(text)]) != text {
		return false
	}
	p.rest = p.rest[len(text):]
	return true
}

func (p *parser) take(text string) { p.failed = p.failed || !p.has(text) }

func (p *parser) text() string {
	text := p.skip()
	for _, c := range text {
		p.failed = p.failed || c > '~'
	}
	return string(text)
}

// skip reads a text without decoding it.
func (p *parser) skip() []byte {
	p.take(`"`)
	for i, c := range p.rest {
		switch {
		case c == '"':
			text := p.rest[:i]
			p.rest = p.rest[i+1:]
			return text
		case c < ' ' || c == '\\':
			p.failed = true
			return nil
		}
	}
	p.failed = true
	return nil
}

// maybe is skip after a name, if the name follows.
func (p *parser) maybe(name string) {
	if p.has(name) {
		p.skip()
	}
}

func (p *parser) address(to *common.Address) {
	const digits = 2 * common.AddressLength
	if p.take(`"0x`); len(p.rest) < digits {
		p.failed = true
		return
	}
	_, err := hex.Decode(to[:], p.rest[:digits])
	p.failed = p.failed || err != nil
	p.rest = p.rest[digits:]
	p.take(`"`)
}

// required reads a name, which must follow, and its number.
func (p *parser) required(name string) {
	p.failed = p.failed || !bytes.HasPrefix(p.rest, []byte(name))
	p.number(name)
}

// number reads a name, if it follows, and its number; else 0.
func (p *parser) number(name string) (n uint64) {
	if !p.has(name) {
		return 0
	}
	digits := 0
	for digits < len(p.rest) && p.rest[digits] >= '0' && p.rest[digits] <= '9' {
		n = n*10 + uint64(p.rest[digits]-'0')
		digits++
	}
	p.failed = p.failed || digits == 0 || digits > 19 || digits > 1 && p.rest[0] == '0' // 20 may overflow
	p.rest = p.rest[digits:]
	return n
}
