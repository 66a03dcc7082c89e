package topics

import (
	"cmp"
	"embed"
	"slices"
)

// Schema is an Avro schema of the embedded registry. Its ID is part of every value and never changes; a changed
// schema gets a new ID. Its topic then gets a new version, unless all readers accept both IDs.
type Schema struct {
	ID   uint32
	Name string // of the file in schemas/, without .avsc
}

// The hand-written schemas; those of entities and events are generated.
var (
	SchemaLog         = &Schema{ID: 1, Name: "raw_log"}
	SchemaProbe       = &Schema{ID: 2, Name: "raw_probe"}
	SchemaBlockEnd    = &Schema{ID: 3, Name: "raw_block_end"}
	SchemaBlockRevert = &Schema{ID: 4, Name: "raw_block_revert"}
	SchemaLinkedEnd   = &Schema{ID: 5, Name: "raw_block_end_linked"}
	SchemaSafeEnd     = &Schema{ID: 6, Name: "raw_block_end_safe"}
	SchemaLedger      = &Schema{ID: 7, Name: "raw_ledger"}
	SchemaLedgerSince = &Schema{ID: 8, Name: "raw_ledger_since"}
	SchemaAlert       = &Schema{ID: 26, Name: "evt_alert"}

	rawSchemas = []*Schema{SchemaLog, SchemaProbe, SchemaBlockEnd, SchemaBlockRevert, SchemaLinkedEnd, SchemaSafeEnd, SchemaLedger, SchemaLedgerSince}

	schemas = schemasOf(table)
)

// schemasOf lists the schemas of a catalogue, ascending by ID.
func schemasOf(table []Topic) []*Schema {
	var all []*Schema
	for _, t := range table {
		all = append(all, t.Schemas...)
	}
	slices.SortFunc(all, func(a, b *Schema) int { return cmp.Compare(a.ID, b.ID) })
	return slices.Compact(all)
}

//go:embed schemas/*.avsc
var schemaFiles embed.FS

// Text is the schema as JSON.
func (s *Schema) Text() string {
	b, err := schemaFiles.ReadFile("schemas/" + s.Name + ".avsc")
	if err != nil {
		panic(err) // embedded at build time
	}
	return string(b)
}

// ownSchemaIDs: all IDs below it are reserved for our schemas.
const ownSchemaIDs = 1000

// Schemas lists all, ascending by ID.
func Schemas() []*Schema { return schemas }

// SchemaByID returns the schema of that ID.
func SchemaByID(id uint32) (*Schema, bool) {
	for _, s := range schemas {
		if s.ID == id {
			return s, true
		}
	}
	return nil, false
}
