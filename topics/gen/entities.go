package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// entity is a struct that says of itself, in its comment, that it has an ent topic:
//
//	//entity:topic 10 deal ID       the schema's ID, which is fixed for good, and what the record key is
//	//entity:doc The latest row.    the schema's text
//
// The order of its fields is that of its row and its columns. A tag says what the name does not: avro:"name"
// is the column's name ("-": the row alone has it), doc:"text" its text, zero:"null" that zero means null,
// signed:"true" that the number is a two's complement. A field that points to a struct has its fields as columns,
// null where it is nil.
type entity struct {
	name   string
	id     int
	key    string
	doc    string
	fields []field
}

type field struct {
	name string
	avro string // the column's name; "-": none
	doc  string
	zero bool // means null
	column
	typ   string  // of the struct that the field points to, where it does
	group []field // its fields
}

// snake is the entity's name in topics and files.
func (e entity) snake() string { return snake(e.name) }

// parseEntities reads the entities out of the package's own files: what is generated may be gone.
func parseEntities(dir string) ([]entity, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	structs := map[string]*ast.StructType{}
	comments := map[string]*ast.CommentGroup{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "_gen.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range d.Specs {
				if t, ok := spec.(*ast.TypeSpec); ok {
					if s, ok := t.Type.(*ast.StructType); ok {
						structs[t.Name.Name], comments[t.Name.Name] = s, d.Doc
					}
				}
			}
		}
	}
	var all []entity
	for name, s := range structs {
		e := entity{name: name}
		if found, err := e.describe(comments[name]); err != nil || !found {
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			continue
		}
		if e.fields, err = fieldsOf(s, structs); err != nil {
			return nil, fmt.Errorf("%s.%w", name, err)
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b entity) int { return a.id - b.id })
	for i := 1; i < len(all); i++ {
		if all[i].id == all[i-1].id {
			return nil, fmt.Errorf("%s and %s have the same schema ID %d", all[i-1].name, all[i].name, all[i].id)
		}
	}
	return all, nil
}

// describe reads the directives of a struct's comment.
func (e *entity) describe(comment *ast.CommentGroup) (found bool, err error) {
	if comment == nil {
		return false, nil
	}
	for _, line := range comment.List {
		if text, ok := strings.CutPrefix(line.Text, "//entity:topic "); ok {
			id, key, _ := strings.Cut(text, " ")
			if e.id, err = strconv.Atoi(id); err != nil || key == "" {
				return false, fmt.Errorf("%q: want a schema ID and the meaning of the key", line.Text)
			}
			e.key, found = key, true
		}
		if text, ok := strings.CutPrefix(line.Text, "//entity:doc "); ok {
			e.doc = text
		}
	}
	return found, nil
}

func fieldsOf(s *ast.StructType, structs map[string]*ast.StructType) ([]field, error) {
	var all []field
	for _, f := range s.Fields.List {
		var tag reflect.StructTag
		if f.Tag != nil {
			text, err := strconv.Unquote(f.Tag.Value)
			if err != nil {
				return nil, err
			}
			tag = reflect.StructTag(text)
		}
		for _, name := range f.Names {
			of := field{name: name.Name, avro: snake(name.Name), doc: tag.Get("doc"), zero: tag.Get("zero") == "null"}
			if named, ok := tag.Lookup("avro"); ok {
				of.avro = named
			}
			text := types.ExprString(f.Type)
			column, known := columns[text]
			of.column, of.typ = column.tagged(tag), strings.TrimPrefix(text, "*")
			of.nullable = column.nullable || of.zero
			switch nested, pointed := structs[of.typ]; {
			case known && of.zero && column.zero == "":
				return nil, fmt.Errorf("%s: a %s cannot be null for zero", of.name, text)
			case known:
			case pointed && text != of.typ:
				var err error
				if of.group, err = fieldsOf(nested, structs); err != nil {
					return nil, fmt.Errorf("%s.%w", of.name, err)
				}
			default:
				return nil, fmt.Errorf("%s: no column for %s", of.name, text)
			}
			all = append(all, of)
		}
	}
	return all, nil
}

// marketRows is the Go file for the tests of the market, from the folder of topics.
var marketRows = filepath.Join("..", "processors", "market", "markettest", "rows_gen.go")

// generateEntities writes the schemas of the ent topics, their lines of the catalogue and the codecs of rows
// and messages, and lists the entities for the tests here and in the market.
func generateEntities(all []entity) (map[string][]byte, error) {
	files := map[string][]byte{}
	var names, schemas, lines, code, tested, rows bytes.Buffer
	for _, e := range all {
		files["schemas/ent_"+e.snake()+".avsc"] = e.avsc()
		fmt.Fprintf(&names, "Entity%s = %q\n", e.name, e.snake())
		fmt.Fprintf(&schemas, "Schema%s = &Schema{ID: %d, Name: \"ent_%s\"}\n", e.name, e.id, e.snake())
		fmt.Fprintf(&lines, "{Kind: KindEntity, Entity: Entity%s, Version: 1, Key: %q, Compacted: true, Schemas: []*Schema{Schema%s}},\n", e.name, e.key, e.name)
		fmt.Fprintf(&tested, "entityRowOf(Append%s),\n", e.name)
		fmt.Fprintf(&rows, "topics.Entity%s: new(topics.%s),\n", e.name, e.name)
		e.writeMessage(&code)
		e.writeRow(&code)
		e.writeRead(&code)
	}
	var body bytes.Buffer
	fmt.Fprintf(&body, "// The entities.\nconst (\n%s)\n\nvar (\n%s)\n\nvar entityTopics = []Topic{\n%s}\n%s", &names, &schemas, &lines, &code)
	var err error
	if files["entities_gen.go"], err = source("topics", "import \"github.com/lienstream/lienstream/contracts\"\n", &body); err != nil {
		return nil, err
	}
	body.Reset()
	fmt.Fprintf(&body, "var entityRows = []entityRow{\n%s}\n", &tested)
	if files["entities_gen_test.go"], err = source("topics", "", &body); err != nil {
		return nil, err
	}
	body.Reset()
	fmt.Fprintf(&body, "// newRows returns an empty row of each entity.\nfunc newRows() map[string]encoding.BinaryUnmarshaler {\n"+
		"return map[string]encoding.BinaryUnmarshaler{\n%s}\n}\n", &rows)
	files[marketRows], err = source("markettest", "import (\n\"encoding\"\n\n\"github.com/lienstream/lienstream/topics\"\n)\n", &body)
	return files, err
}

func (e entity) avsc() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\"type\": \"record\", \"name\": %q, \"namespace\": \"lienstream\",\n \"doc\": %q,\n \"fields\": [\n", e.name, e.doc)
	defined := definitions{}
	for _, f := range e.fields {
		f.writeColumn(&b, defined, false)
	}
	field{avro: "block_number", doc: "true as of this block", column: columns["uint64"]}.writeColumn(&b, defined, false)
	field{avro: "block_hash", column: columns["common.Hash"]}.writeColumn(&b, defined, false)
	field{avro: "block_timestamp", doc: "unix seconds", column: columns["uint64"]}.writeColumn(&b, defined, false)
	b.Truncate(b.Len() - len(",\n"))
	b.WriteString("\n ]}\n")
	return b.Bytes()
}

func (f field) writeColumn(b *bytes.Buffer, defined definitions, nullable bool) {
	for _, inner := range f.group {
		inner.writeColumn(b, defined, true)
	}
	if f.group != nil || f.avro == "-" {
		return
	}
	avro := defined.use(f.column)
	if nullable || f.nullable {
		avro = `["null", ` + avro + `], "default": null`
	}
	fmt.Fprintf(b, "  {\"name\": %q, \"type\": %s", f.avro, avro)
	if f.doc != "" {
		fmt.Fprintf(b, ", \"doc\": %q", f.doc)
	}
	b.WriteString("},\n")
}

func (e entity) writeMessage(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n// Append%s appends the message of a row.\nfunc Append%s(b []byte, r *%s, at BlockRef) []byte {\nb = AppendHeader(b, Schema%s)\n", e.name, e.name, e.name, e.name)
	for _, f := range e.fields {
		switch {
		case f.avro == "-":
		case f.group != nil:
			fmt.Fprintf(b, "if g := r.%s; g != nil {\n", f.name)
			for _, inner := range f.group {
				fmt.Fprintf(b, "b = append(b, unionSome)\n"+inner.message+"\n", "g."+inner.name)
			}
			fmt.Fprintf(b, "} else {\nb = append(b, nulls[:%d]...)\n}\n", len(f.group))
		case f.zero:
			fmt.Fprintf(b, f.column.zero+"\n", "r."+f.name)
		default:
			fmt.Fprintf(b, f.message+"\n", "r."+f.name)
		}
	}
	b.WriteString("return appendRef(b, &at)\n}\n")
	fmt.Fprintf(b, "\n// Encode%s appends the message of an encoded row.\nfunc Encode%s(b, row []byte, at BlockRef) ([]byte, error) {\n"+
		"var r %s\nif err := r.UnmarshalBinary(row); err != nil {\nreturn nil, err\n}\nreturn Append%s(b, &r, at), nil\n}\n", e.name, e.name, e.name, e.name)
}

func (e entity) writeRow(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n// AppendBinary appends the row. The error is always nil.\nfunc (r *%s) AppendBinary(b []byte) ([]byte, error) {\nb = append(b, rowVersion)\n", e.name)
	for _, f := range e.fields {
		if f.group == nil {
			fmt.Fprintf(b, f.row+"\n", "r."+f.name)
			continue
		}
		fmt.Fprintf(b, "b = appendBool(b, r.%s != nil)\nif g := r.%s; g != nil {\n", f.name, f.name)
		for _, inner := range f.group {
			fmt.Fprintf(b, inner.row+"\n", "g."+inner.name)
		}
		b.WriteString("}\n")
	}
	b.WriteString("return b, nil\n}\n")
}

func (e entity) writeRead(b *bytes.Buffer) {
	what := strings.ReplaceAll(e.snake(), "_", " ")
	fmt.Fprintf(b, "\n// UnmarshalBinary reads a row. Nothing of it aliases data.\nfunc (r *%s) UnmarshalBinary(data []byte) error {\n"+
		"in, err := openRow(%q, data)\nif err != nil {\nreturn err\n}\n*r = %s{}\n", e.name, what, e.name)
	for _, f := range e.fields {
		if f.group == nil {
			fmt.Fprintf(b, "r.%s = %s\n", f.name, f.read)
			continue
		}
		fmt.Fprintf(b, "if in.bool() {\nr.%s = &%s{\n", f.name, f.typ)
		for _, inner := range f.group {
			fmt.Fprintf(b, "%s: %s,\n", inner.name, inner.read)
		}
		b.WriteString("}\n}\n")
	}
	fmt.Fprintf(b, "return in.closeRow(%q)\n}\n", what)
}
