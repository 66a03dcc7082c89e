package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp/syntax"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Generator derives requests from a description: valid ones, and wrong ones of every kind.
type Generator struct {
	Document *Document
	Values   map[string][]string // by parameter: values that exist, which no schema can tell
	MaxBody  int                 // bytes
}

// Request is a request to try. Wrong: by the description alone it must be refused with a 400.
type Request struct {
	*http.Request
	Wrong bool
}

// Next makes a request; extra is tried as a value beside the generated ones.
func (g *Generator) Next(rng *rand.Rand, extra string) Request {
	paths := g.Document.keys("/paths")
	path := paths[rng.IntN(len(paths))]
	method := http.MethodGet
	if rng.IntN(8) == 0 {
		method = []string{http.MethodHead, http.MethodOptions, http.MethodPost, http.MethodDelete, "BREW"}[rng.IntN(5)]
	}
	_, described, _ := g.Document.at("/paths/" + escape(path) + "/get")
	parameters, _, _ := g.Document.at(described + "/parameters")
	list, _ := parameters.([]any)

	var (
		query []string
		wrong bool
	)
	for _, p := range list {
		name, in, schema, where := g.parameter(p)
		if in == "path" {
			value, bad := g.value(rng, name, schema, where, extra)
			if value == "" || strings.ContainsAny(value, "/") {
				value, bad = "7", false
			}
			path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(value))
			wrong = wrong || bad
			continue
		}
		if rng.IntN(2) == 0 {
			continue
		}
		for range 1 + rng.IntN(8)/7 {
			value, bad := g.value(rng, name, schema, where, extra)
			if rng.IntN(8) == 0 { // as it is: perhaps with a broken encoding or a separator within
				query = append(query, name+"="+strings.NewReplacer("&", "", " ", "", "\n", "", "#", "").Replace(value))
				_, err := url.QueryUnescape(value)
				bad = err != nil
			} else {
				query = append(query, url.QueryEscape(name)+"="+url.QueryEscape(value))
			}
			wrong = wrong || bad
		}
	}
	if rng.IntN(8) == 0 {
		query = append(query, url.QueryEscape(junk[rng.IntN(len(junk))]+"~")+"=1")
		wrong = true
	}
	wrong = wrong || repeated(query)
	rng.Shuffle(len(query), func(i, j int) { query[i], query[j] = query[j], query[i] })

	var body []byte
	if rng.IntN(16) == 0 {
		body = bytes.Repeat([]byte("x"), g.MaxBody+rng.IntN(2))
	}
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", bytes.NewReader(body))
	r.Method = method
	if u, err := url.ParseRequestURI(path); err == nil { // as net/http does, before any handler
		r.URL = u
	} else {
		r.URL.Path = path
	}
	r.URL.RawQuery = strings.Join(query, "&")
	for _, name := range []string{"Accept-Encoding", "If-None-Match", "X-Request-Id", "Origin", "Access-Control-Request-Method"} {
		if rng.IntN(4) == 0 {
			r.Header.Set(name, []string{"gzip", "*", "gzip;q=0, *", `"x"`, extra, junk[rng.IntN(len(junk))]}[rng.IntN(6)])
		}
	}
	return Request{Request: r, Wrong: wrong && len(body) <= g.MaxBody && (method == http.MethodGet || method == http.MethodHead)}
}

func repeated(query []string) bool {
	seen := make(map[string]bool)
	for _, pair := range query {
		name, _, _ := strings.Cut(pair, "=")
		if seen[name] {
			return true
		}
		seen[name] = true
	}
	return false
}

// parameter resolves a parameter and its schema.
func (g *Generator) parameter(p any) (name, in string, schema map[string]any, where string) {
	object, _ := p.(map[string]any)
	if ref, ok := object["$ref"].(string); ok {
		node, _, _ := g.Document.at(strings.TrimPrefix(ref, "#"))
		object, _ = node.(map[string]any)
	}
	name, _ = object["name"].(string)
	in, _ = object["in"].(string)
	schema, _ = object["schema"].(map[string]any)
	if ref, ok := schema["$ref"].(string); ok {
		where = strings.TrimPrefix(ref, "#")
		node, _, _ := g.Document.at(where)
		schema, _ = node.(map[string]any)
	}
	return name, in, schema, where
}

// junk is what no parameter takes, and what parsers stumble over.
var junk = []string{
	"", " ", "null", "true", "[]", "{}", "-1", "+1", "1.5", "1e3", "0x10", "00", "01", "NaN", " 1", "1 ", "１", "\x00", "\xff\xfe",
	"%", "%zz", "%u0031", "a b", "a&b=c", "a;b", "<script>", `"`, "'--", "../..", "🙂", "LISTED,FUNDED", "stock", "NEWEST",
	"18446744073709551616", "99999999999999999999999999999999", strings.Repeat("9", 78), strings.Repeat("9", 79), strings.Repeat("a", 5000),
}

// value makes a value for a parameter, and says whether its schema refuses it.
func (g *Generator) value(rng *rand.Rand, name string, schema map[string]any, where, extra string) (value string, wrong bool) {
	switch known := g.Values[name]; {
	case rng.IntN(6) == 0:
		value = junk[rng.IntN(len(junk))]
	case rng.IntN(6) == 0:
		value = extra
	case len(known) > 0 && rng.IntN(2) == 0:
		value = known[rng.IntN(len(known))]
	default:
		value = fromSchema(rng, schema)
	}
	if value != "" && rng.IntN(6) == 0 { // one byte off
		b := []byte(value)
		b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		value = string(b)
	}
	return value, g.refuses(schema, where, value)
}

func (g *Generator) refuses(schema map[string]any, where, text string) bool {
	var value any = text
	if schema["type"] == "integer" {
		n, ok := new(big.Int).SetString(text, 10)
		if !ok || n.String() != text {
			return true
		}
		value = json.Number(text)
	}
	if where != "" {
		return g.Document.validate(where, value) != nil
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("https://lienstream.invalid/parameter.json", schema); err != nil {
		panic(err)
	}
	return compiler.MustCompile("https://lienstream.invalid/parameter.json").Validate(value) != nil
}

func fromSchema(rng *rand.Rand, schema map[string]any) string {
	if enum, ok := schema["enum"].([]any); ok {
		return fmt.Sprint(enum[rng.IntN(len(enum))])
	}
	if schema["type"] == "integer" {
		low, high := number(schema["minimum"], 0), number(schema["maximum"], 1<<40)
		return strconv.FormatInt([]int64{low, high, low - 1, high + 1, low + rng.Int64N(high-low+1)}[rng.IntN(5)], 10)
	}
	if pattern, ok := schema["pattern"].(string); ok {
		parsed, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			panic(err)
		}
		var b strings.Builder
		fromPattern(rng, parsed, &b)
		return b.String()
	}
	return strings.Repeat("x", rng.IntN(20))
}

func number(v any, otherwise int64) int64 {
	if n, err := strconv.ParseInt(fmt.Sprint(v), 10, 64); err == nil {
		return n
	}
	return otherwise
}

const maxRepeat = 400 // of a part of a pattern that has no bound

func fromPattern(rng *rand.Rand, re *syntax.Regexp, b *strings.Builder) {
	low, high := 0, maxRepeat
	switch re.Op {
	case syntax.OpLiteral:
		b.WriteString(string(re.Rune))
		return
	case syntax.OpCharClass:
		pair := 2 * rng.IntN(len(re.Rune)/2)
		b.WriteRune(re.Rune[pair] + rng.Int32N(re.Rune[pair+1]-re.Rune[pair]+1))
		return
	case syntax.OpAlternate:
		fromPattern(rng, re.Sub[rng.IntN(len(re.Sub))], b)
		return
	case syntax.OpConcat, syntax.OpCapture:
		for _, sub := range re.Sub {
			fromPattern(rng, sub, b)
		}
		return
	case syntax.OpQuest:
		high = 1
	case syntax.OpPlus:
		low = 1
	case syntax.OpRepeat:
		low = re.Min
		if re.Max >= 0 {
			high = re.Max
		}
	case syntax.OpStar:
	default: // anchors
		return
	}
	for range low + rng.IntN(high-low+1) {
		fromPattern(rng, re.Sub[0], b)
	}
}
