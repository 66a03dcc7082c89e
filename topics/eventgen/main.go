// Command eventgen writes the schemas of the evt topics and the code that encodes into them, from the Go
// structs of the events: one wide record a family, a nullable column for every field of its events.
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"log"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"unicode"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
)

// family is what goes into one pair of evt topics.
type family struct {
	file   string // of the schema
	record string // its Avro name
	schema string // the Go variable
	doc    string
	events []any
}

// families is what there is. A column is added only at the end, with a new schema ID: consumers have the
// old one.
var families = []family{
	{
		file: "evt_deals", record: "DealEvent", schema: "SchemaDealEvent", doc: "An event that concerns a deal.",
		events: []any{
			contracts.DealListed{},
			contracts.DealTermsUpdated{},
			contracts.DealFunded{},
			contracts.DealReclaimed{},
			contracts.DealClaimed{},
			contracts.DealCancelled{},
			contracts.BidPlaced{},
			contracts.BidWithdrawn{},
			contracts.BidAccepted{},
			contracts.RewardReserved{},
			contracts.RewardReturned{},
		},
	},
	{
		file: "evt_balances", record: "BalanceEvent", schema: "SchemaBalanceEvent", doc: "An event that concerns an account.",
		events: []any{
			contracts.Credited{},
			contracts.Withdrawn{},
			contracts.DripCreated{},
			contracts.DripCut{},
			contracts.DripClaimed{},
		},
	},
	{
		file: "evt_assets", record: "AssetEvent", schema: "SchemaAssetEvent", doc: "An event that concerns a token.",
		events: []any{
			contracts.AssetSet{},
			contracts.OpenRawChanged{},
			contracts.UIMultiplierUpdated{},
			contracts.TokenPaused{},
			contracts.TokenUnpaused{},
		},
	},
	{
		file: "evt_liquidity", record: "LiquidityEvent", schema: "SchemaLiquidityEvent",
		doc: "An event that concerns a pool, a staked position or a position's holder.",
		events: []any{
			contracts.PoolInitialized{},
			contracts.LiquidityModified{},
			contracts.Swapped{},
			contracts.PoolSet{},
			contracts.PositionTransferred{},
			contracts.PositionStaked{},
			contracts.PositionCheckpointed{},
			contracts.PositionUnstaked{},
			contracts.EmissionsNotified{},
			contracts.CreatorFeesNotified{},
			contracts.EmissionsClaimed{},
			contracts.CreatorFeeClaimed{},
		},
	},
	{
		file: "evt_epochs", record: "EpochEvent", schema: "SchemaEpochEvent", doc: "An event that concerns an epoch.",
		events: []any{
			contracts.EpochOpened{},
			contracts.EpochRatesSet{},
			contracts.EpochReserved{},
			contracts.EpochReturned{},
			contracts.LiquidityReleased{},
			contracts.EpochClosed{},
		},
	},
	{
		file: "evt_burns", record: "BurnEvent", schema: "SchemaBurnEvent", doc: "A burn.",
		events: []any{contracts.Burned{}},
	},
}

// column is how a Go type looks in Avro and how it is appended.
type column struct {
	avro   string // type name, or the JSON of it
	define string // at its first use in a schema, where that differs
	code   string // of the append; %s is the field
}

var columns = map[reflect.Type]column{
	reflect.TypeFor[uint256.Int]():    {avro: `"string"`, code: "b = appendDecimal(b, &%s)"},
	reflect.TypeFor[common.Address](): {avro: `"Address"`, define: `{"type": "fixed", "name": "Address", "size": 20}`, code: "b = append(b, %s[:]...)"},
	reflect.TypeFor[common.Hash]():    {avro: `"Hash"`, code: "b = append(b, %s[:]...)"},
	reflect.TypeFor[string]():         {avro: `"string"`, code: "b = appendString(b, %s)"},
	reflect.TypeFor[bool]():           {avro: `"boolean"`, code: "b = appendBool(b, %s)"},
	reflect.TypeFor[uint64]():         {avro: `"long"`, code: "b = appendUint(b, %s)"},
	reflect.TypeFor[uint32]():         {avro: `"long"`, code: "b = appendUint(b, uint64(%s))"},
	reflect.TypeFor[uint16]():         {avro: `"int"`, code: "b = appendUint(b, uint64(%s))"},
	reflect.TypeFor[uint8]():          {avro: `"int"`, code: "b = appendUint(b, uint64(%s))"},
	reflect.TypeFor[int32]():          {avro: `"int"`, code: "b = appendLong(b, int64(%s))"},

	reflect.TypeFor[contracts.Kind]():         enum("Kind", "ERC20", "AMMV4_POSITION"),
	reflect.TypeFor[contracts.Lane]():         enum("Lane", "STOCK", "ETH", "MEME", "POSITION"),
	reflect.TypeFor[contracts.BalanceKind]():  enum("BalanceKind", "USDG", "ERC20", "NFT"),
	reflect.TypeFor[contracts.CreditReason](): enum("CreditReason", "PROCEEDS", "BID_REFUND", "REPAYMENT", "COLLATERAL_RETURN", "COLLATERAL_CLAIM", "FEE"),
	reflect.TypeFor[contracts.DripSource]():   enum("DripSource", "DEAL", "LP"),
}

// signed are the fields that hold a two's complement in an unsigned type.
var signed = map[string]bool{"LiquidityDelta": true, "Amount0": true, "Amount1": true}

// columnOf is the column of a field.
func columnOf(name string, t reflect.Type) column {
	c := columns[t]
	if signed[name] {
		c.code = "b = appendSigned(b, &%s)"
	}
	return c
}

func enum(name string, symbols ...string) column {
	return column{
		avro:   `"` + name + `"`,
		define: fmt.Sprintf(`{"type": "enum", "name": %q, "symbols": ["%s"]}`, name, strings.Join(symbols, `", "`)),
		code:   "b = appendLong(b, int64(%s))",
	}
}

func main() {
	log.SetFlags(0)
	dir := "."
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	files, err := generate()
	if err != nil {
		log.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// generate returns the contents of every generated file by its path below topics/.
func generate() (map[string][]byte, error) {
	files := map[string][]byte{}
	var code bytes.Buffer
	code.WriteString("// Code generated by eventgen from the structs of the events; DO NOT EDIT.\n\npackage topics\n\n" +
		"import \"github.com/lienstream/lienstream/contracts\"\n\n" +
		"// appendEventFields appends the columns of an event's family: those of the event, and null for the others.\n" +
		"func appendEventFields(b []byte, event contracts.Event) ([]byte, bool) {\n\tswitch e := event.(type) {\n")
	var schemaOf bytes.Buffer
	for _, f := range families {
		order, types, err := f.columns()
		if err != nil {
			return nil, err
		}
		files["schemas/"+f.file+".avsc"] = f.avsc(order, types)
		var cases []string
		for _, e := range f.events {
			t := reflect.TypeOf(e)
			cases = append(cases, "*contracts."+t.Name())
			writeCase(&code, t, order)
		}
		fmt.Fprintf(&schemaOf, "case %s:\nreturn %s\n", strings.Join(cases, ", "), f.schema)
	}
	code.WriteString("}\nreturn b, false\n}\n\n" +
		"// eventSchema is the schema of an event's family, nil where no topic has it.\n" +
		"func eventSchema(event contracts.Event) *Schema {\nswitch event.(type) {\n" + schemaOf.String() + "}\nreturn nil\n}\n")
	src, err := format.Source(code.Bytes())
	if err != nil {
		return nil, fmt.Errorf("format: %w", err)
	}
	files["events_gen.go"] = src
	return files, nil
}

// columns are the fields of all events of a family, each name once, in the order of first appearance.
func (f family) columns() ([]string, map[string]reflect.Type, error) {
	var order []string
	types := map[string]reflect.Type{}
	for _, e := range f.events {
		t := reflect.TypeOf(e)
		for field := range t.Fields() {
			if _, ok := columns[field.Type]; !ok {
				return nil, nil, fmt.Errorf("%s.%s: no column for %s", t.Name(), field.Name, field.Type)
			}
			known, ok := types[field.Name]
			if ok && known != field.Type {
				return nil, nil, fmt.Errorf("%s.%s: %s here, %s elsewhere in the family", t.Name(), field.Name, field.Type, known)
			}
			if !ok {
				order = append(order, field.Name)
				types[field.Name] = field.Type
			}
		}
	}
	return order, types, nil
}

func (f family) avsc(order []string, types map[string]reflect.Type) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"type": "record", "name": %q, "namespace": "lienstream",
 "doc": %q,
 "fields": [
  {"name": "block_number", "type": "long"},
  {"name": "block_hash", "type": {"type": "fixed", "name": "Hash", "size": 32}},
  {"name": "block_timestamp", "type": "long", "doc": "unix seconds"},
  {"name": "tx_hash", "type": "Hash"},
  {"name": "log_index", "type": "long"},
  {"name": "event", "type": "string"},
`, f.record, f.doc)
	defined := map[string]bool{}
	for _, name := range order {
		c := columns[types[name]]
		avro := c.avro
		if c.define != "" && !defined[c.avro] {
			defined[c.avro] = true
			avro = c.define
		}
		fmt.Fprintf(&b, "  {\"name\": %q, \"type\": [\"null\", %s], \"default\": null},\n", snake(name), avro)
	}
	b.WriteString("  {\"name\": \"removed\", \"type\": \"boolean\", \"doc\": \"a reorganisation of the chain took the event back\"}\n ]}\n")
	return b.Bytes()
}

// writeCase writes how one event becomes the columns of its family.
func writeCase(w *bytes.Buffer, t reflect.Type, order []string) {
	fmt.Fprintf(w, "case *contracts.%s:\n", t.Name())
	nulls := 0
	flush := func() {
		if nulls > 0 {
			fmt.Fprintf(w, "b = append(b, nulls[:%d]...)\n", nulls)
			nulls = 0
		}
	}
	for _, name := range order {
		field, ok := t.FieldByName(name)
		if !ok {
			nulls++
			continue
		}
		flush()
		w.WriteString("b = append(b, unionSome)\n")
		fmt.Fprintf(w, columnOf(name, field.Type).code+"\n", "e."+name)
	}
	flush()
	w.WriteString("return b, true\n")
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
