package roles

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/lienstream/lienstream/processors/notifier/mailsink"
	"github.com/lienstream/lienstream/topics"
)

func processOf(t *testing.T) *Process {
	t.Helper()
	s := newSettings()
	s.kafka.Prefix = "test"
	return &Process{Environment: System(), Settings: s, Servers: s.servers(), Reg: prometheus.NewRegistry()}
}

// Without a schema registry the ops port is one: a consumer's client finds what a record's ID means.
func TestOpsPortIsASchemaRegistry(t *testing.T) {
	server := httptest.NewServer(processOf(t).opsHandler())
	defer server.Close()
	client, err := sr.NewClient(sr.URLs(server.URL + "/schema-registry"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := client.SchemaByID(t.Context(), int(topics.SchemaDeal.ID))
	if err != nil || got.Schema != topics.SchemaDeal.Text() {
		t.Errorf("schema %d: %v, %q", topics.SchemaDeal.ID, err, got.Schema)
	}
	if deal, err := client.SchemaByVersion(t.Context(), "test.4663.ent.deal.v1-value", -1); err != nil || deal.ID != int(topics.SchemaDeal.ID) {
		t.Errorf("latest of ent.deal: %+v: %v", deal, err)
	}
}

// Whoever opens the port sees what is there, and each of it is.
func TestOpsPortListsItsPaths(t *testing.T) {
	p := processOf(t)
	p.sink = new(mailsink.Sink)
	handler := p.opsHandler()
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		return w
	}
	paths := strings.Fields(get("/").Body.String())
	if len(paths) != 6 {
		t.Errorf("paths %q", paths)
	}
	for _, path := range paths {
		if w := get(path); w.Code != http.StatusOK {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if w := get("/nowhere"); w.Code != http.StatusNotFound {
		t.Errorf("/nowhere: %d", w.Code)
	}
}

// With one, records carry the IDs that it gave.
func TestSchemaRegistryGivesTheIDs(t *testing.T) {
	fake := srfake.New()
	defer fake.Close()
	p := processOf(t)
	p.registry.url = fake.URL()
	if err := p.registerSchemas(t.Context()); err != nil {
		t.Fatal(err)
	}
	client, err := sr.NewClient(sr.URLs(fake.URL()))
	if err != nil {
		t.Fatal(err)
	}
	ids := p.Kafka().SchemaIDs
	for _, s := range topics.Schemas() {
		if _, err := client.SchemaByID(t.Context(), int(ids[s.ID])); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
	fake.Close()
	if err := p.registerSchemas(t.Context()); err == nil || !strings.Contains(err.Error(), "register schema") {
		t.Errorf("a registry that is away: %v", err)
	}
}

func TestSchemaRegistryFaultsAreNamed(t *testing.T) {
	for _, args := range [][]string{
		{"serving", "--check", "--kafka=localhost:1", "--schema-registry=nowhere"},
		{"serving", "--check", "--kafka=localhost:1", "--schema-registry-user=me"},
	} {
		if _, err := command(t, args...); err == nil || !strings.Contains(err.Error(), "schema-registry:") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
