package main

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/lienstream/lienstream/contracts"
)

// column is how a Go type looks in Avro and in a row. In all code %s is the field.
type column struct {
	avro     string // type name
	define   string // at its first use in a schema, where that differs
	nullable bool   // the Go type says whether there is a value

	message string // appends to a message
	zero    string // appends to a message what is null where it is zero; empty: cannot be
	row     string // appends to a row
	read    string // reads from a row
}

// tagged is the column of a field that says signed:"true": it holds a two's complement in an unsigned type.
func (c column) tagged(tag reflect.StructTag) column {
	if tag.Get("signed") == "true" {
		c.message = "b = appendSigned(b, &%s)"
	}
	return c
}

// columns are the types that a field may have.
var columns = map[string]column{
	"uint256.Int": {
		avro: `"string"`, message: "b = appendDecimal(b, &%s)", zero: "b = appendOptDecimal(b, nonZero(&%s))",
		row: "b = appendWord(b, &%s)", read: "in.word()",
	},
	"common.Address": {
		avro: `"Address"`, define: `{"type": "fixed", "name": "Address", "size": 20}`, message: "b = append(b, %s[:]...)",
		row: "b = append(b, %s[:]...)", read: "in.address()",
	},
	"common.Hash": {
		avro: `"Hash"`, define: hashType, message: "b = append(b, %s[:]...)", zero: "b = appendOptHash(b, %s)",
		row: "b = append(b, %s[:]...)", read: "in.hash()",
	},
	"string": {avro: `"string"`, message: "b = appendString(b, %s)", row: "b = appendString(b, %s)", read: "string(in.bytes())"},
	"bool":   {avro: `"boolean"`, message: "b = appendBool(b, %s)", row: "b = appendBool(b, %s)", read: "in.bool()"},
	"uint64": {
		avro: `"long"`, message: "b = appendUint(b, %s)", zero: "b = appendNonZero(b, %s)",
		row: "b = appendVarint(b, %s)", read: "in.varint()",
	},
	"uint32": {
		avro: `"long"`, message: "b = appendUint(b, uint64(%s))",
		row: "b = appendVarint(b, uint64(%s))", read: "uint32(in.bounded(1<<32 - 1))",
	},
	"uint16": {
		avro: `"int"`, message: "b = appendUint(b, uint64(%s))",
		row: "b = appendVarint(b, uint64(%s))", read: "uint16(in.bounded(1<<16 - 1))",
	},
	"uint8": {avro: `"int"`, message: "b = appendUint(b, uint64(%s))", row: "b = append(b, %s)", read: "in.byte()"},
	"int32": {avro: `"int"`, message: "b = appendLong(b, int64(%s))", row: "b = appendLong(b, int64(%s))", read: "in.int32()"},

	"*uint256.Int": {avro: `"string"`, nullable: true, message: "b = appendOptDecimal(b, %s)", row: "b = appendOptWord(b, %s)", read: "in.optWord()"},
	"*uint64":      {avro: `"long"`, nullable: true, message: "b = appendOptUint(b, %s)", row: "b = appendOptUint(b, %s)", read: "in.optUint()"},
	"*bool":        {avro: `"boolean"`, nullable: true, message: "b = appendOptBool(b, %s)", row: "b = appendOptBool(b, %s)", read: "in.optBool()"},

	"contracts.Kind":         enum("Kind", contracts.KindNames),
	"contracts.Lane":         enum("Lane", contracts.LaneNames),
	"contracts.DealState":    enum("DealState", contracts.DealStateNames),
	"contracts.BidState":     enum("BidState", contracts.BidStateNames),
	"contracts.BalanceKind":  enum("BalanceKind", contracts.BalanceKindNames),
	"contracts.CreditReason": enum("CreditReason", contracts.CreditReasonNames),
	"contracts.DripSource":   enum("DripSource", contracts.DripSourceNames),
}

const hashType = `{"type": "fixed", "name": "Hash", "size": 32}`

func enum(name string, symbols []string) column {
	return column{
		avro:    `"` + name + `"`,
		define:  fmt.Sprintf(`{"type": "enum", "name": %q, "symbols": ["%s"]}`, name, strings.Join(symbols, `", "`)),
		message: "b = appendLong(b, int64(%s))",
		row:     "b = append(b, byte(%s))", read: "contracts." + name + "(in.byte())",
	}
}

// definitions are the types that a schema has defined so far: each is written out where it is used first.
type definitions map[string]bool

func (d definitions) use(c column) string {
	if c.define == "" || d[c.avro] {
		return c.avro
	}
	d[c.avro] = true
	return c.define
}

// snake turns DealID into deal_id and PriceUSDGPerSTKN into price_usdg_per_stkn.
func snake(name string) string {
	var b strings.Builder
	rs := []rune(name)
	for i, r := range rs {
		wordStart := unicode.IsUpper(r) && i > 0 &&
			(unicode.IsLower(rs[i-1]) || unicode.IsDigit(rs[i-1]) || i+1 < len(rs) && unicode.IsLower(rs[i+1]))
		if wordStart {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
