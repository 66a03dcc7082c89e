// Package registry publishes the schemas of package topics for foreign readers: as a small read-only schema
// registry with our fixed IDs, or by registering them with a real registry. No stage may need it to read or
// write.
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

// Subject is a schema's name in a registry: the topic's name if the topic has one schema, as Confluent clients
// expect by default, otherwise the names of the topic and the record.
func Subject(t topics.Topic, s *topics.Schema) string {
	if len(t.Schemas) > 1 {
		return t.Name() + "-" + s.Name
	}
	return t.Name() + "-value"
}

// NewHandler serves the part of the Confluent API that consumers use: schemas by ID, and subjects with their
// single version.
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
	Timeout  time.Duration // of a request; default 10 s

	Dial func(ctx context.Context, network, addr string) (net.Conn, error) // nil: the machine's network
}

// Register registers all schemas of the catalogue and returns the registry's IDs by ours: for
// kafka.Config.SchemaIDs. A schema that is already there keeps its ID.
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
				// A schema of two topics must have one ID, or values could not be copied between them.
				return nil, fmt.Errorf("register schema %s: registered under the IDs %d and %d", subject, known, id)
			}
			ids[s.ID] = id
		}
	}
	return ids, nil
}
