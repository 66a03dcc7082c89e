// Package registry shows the schemas of package topics to those who read our topics: as a small read-only
// schema registry of our own, with the fixed IDs, or by registering them with a real one. It must not be
// needed by any stage to read or write.
package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/lienstream/lienstream/topics"
)

// Subject is what a schema is called in a registry: the topic's name for a topic of one schema, as every
// Confluent client expects by default, and the topic's and the record's where there are several.
func Subject(t topics.Topic, s *topics.Schema) string {
	if len(t.Schemas) > 1 {
		return t.Name() + "-" + s.Name
	}
	return t.Name() + "-value"
}

// NewHandler serves the part of the Confluent API that consumers use: schemas by ID, subjects and their
// one version each.
func NewHandler(cat topics.Catalogue) http.Handler {
	subjects := map[string]*topics.Schema{}
	names := []string{}
	for _, t := range cat.Topics() {
		for _, s := range t.Schemas {
			subjects[Subject(t, s)] = s
			names = append(names, Subject(t, s))
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /schemas/types", func(w http.ResponseWriter, _ *http.Request) { answer(w, []string{"AVRO"}) })
	mux.HandleFunc("GET /schemas/ids/{id}", func(w http.ResponseWriter, r *http.Request) {
		id, err := strconv.ParseUint(r.PathValue("id"), 10, 32)
		s, ok := topics.SchemaByID(uint32(id))
		if err != nil || !ok {
			refuse(w, 40403, "Schema not found")
			return
		}
		answer(w, map[string]string{"schema": s.Text()})
	})
	mux.HandleFunc("GET /subjects", func(w http.ResponseWriter, _ *http.Request) { answer(w, names) })
	mux.HandleFunc("GET /subjects/{subject}/versions", func(w http.ResponseWriter, r *http.Request) {
		if subjects[r.PathValue("subject")] == nil {
			refuse(w, 40401, "Subject not found")
			return
		}
		answer(w, []int{1})
	})
	mux.HandleFunc("GET /subjects/{subject}/versions/{version}", func(w http.ResponseWriter, r *http.Request) {
		subject := r.PathValue("subject")
		s := subjects[subject]
		if s == nil {
			refuse(w, 40401, "Subject not found")
			return
		}
		if v := r.PathValue("version"); v != "1" && v != "latest" {
			refuse(w, 40402, "Version not found")
			return
		}
		answer(w, map[string]any{"subject": subject, "version": 1, "id": s.ID, "schemaType": "AVRO", "schema": s.Text()})
	})
	return mux
}

const contentType = "application/vnd.schemaregistry.v1+json"

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", contentType)
	_ = json.NewEncoder(w).Encode(v) // the client is gone
}

func refuse(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(http.StatusNotFound)
	_ = json.NewEncoder(w).Encode(map[string]any{"error_code": code, "message": message}) // the client is gone
}

// Config of a real registry.
type Config struct {
	URL      string
	User     string
	Password string
	Timeout  time.Duration // of one call; 10 s

	Dial func(ctx context.Context, network, addr string) (net.Conn, error) // nil: the machine's network
}

// Register makes every schema of the catalogue known to the registry and returns the IDs that it gave
// them, by ours: what kafka.Config.SchemaIDs takes. What is there already keeps its ID.
func Register(ctx context.Context, cfg Config, cat topics.Catalogue) (map[uint32]uint32, error) {
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	opts := []sr.ClientOpt{sr.URLs(cfg.URL), sr.HTTPClient(&http.Client{Timeout: cfg.Timeout, Transport: &http.Transport{DialContext: cfg.Dial, DisableKeepAlives: true}})}
	if cfg.User != "" {
		opts = append(opts, sr.BasicAuth(cfg.User, cfg.Password))
	}
	cl, err := sr.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("schema registry: %w", err)
	}
	ids := map[uint32]uint32{}
	for _, t := range cat.Topics() {
		for _, s := range t.Schemas {
			subject := Subject(t, s)
			registered, err := cl.CreateSchema(ctx, subject, sr.Schema{Schema: s.Text(), Type: sr.TypeAvro})
			if err != nil {
				return nil, fmt.Errorf("register schema %s: %w", subject, err)
			}
			id := uint32(registered.ID)
			if known, ok := ids[s.ID]; ok && known != id {
				// One schema of two topics has one ID in every registry; else its values could not be copied.
				return nil, fmt.Errorf("register schema %s: registered under the IDs %d and %d", subject, known, id)
			}
			ids[s.ID] = id
		}
	}
	return ids, nil
}
