package registry_test

import (
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/registry"
)

var catalogue = topics.Catalogue{Prefix: "test", ChainID: 4663, Partitions: 2}

// A client of real registries finds in ours, by ID and by subject, the schema that a value names.
func TestHandlerAnswersARegistryClient(t *testing.T) {
	server := httptest.NewServer(registry.NewHandler(catalogue))
	defer server.Close()
	cl, err := sr.NewClient(sr.URLs(server.URL))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range topics.Schemas() {
		got, err := cl.SchemaByID(t.Context(), int(s.ID))
		if err != nil || got.Schema != s.Text() {
			t.Errorf("%s: %v, %q", s.Name, err, got.Schema)
		}
	}
	if _, err := cl.SchemaByID(t.Context(), 999); err == nil {
		t.Error("an ID that is not there has a schema")
	}
	subjects, err := cl.Subjects(t.Context())
	if err != nil || !slices.Contains(subjects, "test.4663.ent.deal.v1-value") {
		t.Errorf("subjects %v: %v", subjects, err)
	}
	deal, err := cl.SchemaByVersion(t.Context(), "test.4663.ent.deal.v1-value", -1)
	if err != nil || deal.ID != int(topics.SchemaDeal.ID) {
		t.Errorf("latest of ent.deal: %+v: %v", deal, err)
	}
	if _, err := cl.SchemaByVersion(t.Context(), "none-value", 1); err == nil {
		t.Error("a subject that is not there has a version")
	}
}

// What a registry gives out for our schemas parses to the same, and a second start gets the same IDs.
func TestRegisterIsIdempotent(t *testing.T) {
	fake := srfake.New()
	defer fake.Close()
	cfg := registry.Config{URL: fake.URL()}
	ids, err := registry.Register(t.Context(), cfg, catalogue)
	if err != nil {
		t.Fatal(err)
	}
	if len(ids) != len(topics.Schemas()) {
		t.Errorf("%d IDs for %d schemas", len(ids), len(topics.Schemas()))
	}
	cl, err := sr.NewClient(sr.URLs(fake.URL()))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range topics.Schemas() {
		there, err := cl.SchemaByID(t.Context(), int(ids[s.ID]))
		if err != nil {
			t.Fatal(err)
		}
		if a, b := avro.MustParse(there.Schema), avro.MustParse(s.Text()); string(a.Canonical()) != string(b.Canonical()) {
			t.Errorf("%s is %s in the registry", s.Name, there.Schema)
		}
	}
	again, err := registry.Register(t.Context(), cfg, catalogue)
	if err != nil {
		t.Fatal(err)
	}
	for ours, id := range ids {
		if again[ours] != id {
			t.Errorf("schema %d was %d and is %d", ours, id, again[ours])
		}
	}
}
