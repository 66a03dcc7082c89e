package main

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
)

// goName is how Go code calls the family: FamilyDeals.
func (f family) goName() string { return "Family" + strings.ToUpper(f.name[:1]) + f.name[1:] }

// generateEvents writes the schemas of the evt topics and the code that encodes into them: one wide record a
// family, a nullable column for every field of its events.
func generateEvents() (map[string][]byte, error) {
	files := map[string][]byte{}
	var names, schemas, lines, code, familyOf bytes.Buffer
	for _, f := range families {
		order, types, err := f.columns()
		if err != nil {
			return nil, err
		}
		files["schemas/evt_"+f.name+".avsc"] = f.avsc(order, types)
		fmt.Fprintf(&names, "%s = %q\n", f.goName(), f.name)
		fmt.Fprintf(&schemas, "Schema%s = &Schema{ID: %d, Name: \"evt_%s\"}\n", f.record, f.id, f.name)
		for _, suffix := range []string{"", " + final"} {
			fmt.Fprintf(&lines, "{Kind: KindEvent, Entity: %s%s, Version: 1, Key: eventKey, Schemas: []*Schema{Schema%s}},\n", f.goName(), suffix, f.record)
		}
		var cases []string
		for _, e := range f.events {
			t := reflect.TypeOf(e)
			cases = append(cases, "*contracts."+t.Name())
			writeCase(&code, t, order)
		}
		fmt.Fprintf(&familyOf, "case %s:\nreturn %s, Schema%s\n", strings.Join(cases, ", "), f.goName(), f.record)
	}
	var body bytes.Buffer
	fmt.Fprintf(&body, "// The families of events.\nconst (\n%s)\n\nvar (\n%s)\n\nvar eventTopics = []Topic{\n%s}\n\n", &names, &schemas, &lines)
	fmt.Fprintf(&body, "// appendEventFields appends the columns of an event's family: those of the event, and null for the others.\n"+
		"func appendEventFields(b []byte, event contracts.Event) ([]byte, bool) {\nswitch e := event.(type) {\n%s}\nreturn b, false\n}\n\n", &code)
	fmt.Fprintf(&body, "// familyOf is the family of an event and its schema, none where no evt topic takes the event.\n"+
		"func familyOf(event contracts.Event) (string, *Schema) {\nswitch event.(type) {\n%s}\nreturn \"\", nil\n}\n", &familyOf)
	src, err := source("topics", "import \"github.com/lienstream/lienstream/contracts\"\n", &body)
	files["events_gen.go"] = src
	return files, err
}

// columns are the fields of all events of a family, each name once, in the order of first appearance.
func (f family) columns() ([]string, map[string]reflect.Type, error) {
	var order []string
	types := map[string]reflect.Type{}
	for _, e := range f.events {
		t := reflect.TypeOf(e)
		for field := range t.Fields() {
			if _, ok := columns[field.Type.String()]; !ok {
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
  {"name": "block_hash", "type": %s},
  {"name": "block_timestamp", "type": "long", "doc": "unix seconds"},
  {"name": "tx_hash", "type": "Hash"},
  {"name": "log_index", "type": "long"},
  {"name": "event", "type": "string"},
`, f.record, f.doc, hashType)
	defined := definitions{`"Hash"`: true}
	for _, name := range order {
		c := columns[types[name].String()]
		fmt.Fprintf(&b, "  {\"name\": %q, \"type\": [\"null\", %s], \"default\": null},\n", snake(name), defined.use(c))
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
		fmt.Fprintf(w, columns[field.Type.String()].tagged(field.Tag).message+"\n", "e."+name)
	}
	flush()
	w.WriteString("return b, true\n")
}
