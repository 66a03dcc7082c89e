package roles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/topics/registry"
)

// registrySettings select the schema registry that assigns schema IDs.
type registrySettings struct {
	url, user, passwordFile string
}

func (s *registrySettings) flags(f *Flags) {
	bind(f, &s.url, "schema-registry", "URL of a schema registry whose IDs records carry; it cannot be changed later; default: built-in IDs, served at /schema-registry on the ops port")
	f.secret("schema-registry")
	bind(f, &s.user, "schema-registry-user", "user of the schema registry")
	bind(f, &s.passwordFile, "schema-registry-password-file", "file with the schema registry's password")
}

func (s *registrySettings) validate() error {
	if s.url == "" {
		if s.user != "" || s.passwordFile != "" {
			return errors.New("schema-registry: required with a user or a password")
		}
		return nil
	}
	if u, err := url.Parse(s.url); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("schema-registry: not an http or https URL")
	}
	return nil
}

// registerSchemas registers our schemas with the schema registry, if there is one, and uses its IDs.
func (p *Process) registerSchemas(ctx context.Context) error {
	if p.registry.url == "" {
		return nil
	}
	c := registry.Config{URL: p.registry.url, User: p.registry.user, Dial: p.Dial}
	if p.registry.passwordFile != "" {
		password, err := p.readFile(p.registry.passwordFile)
		if err != nil {
			return fmt.Errorf("schema-registry-password-file: %w", err)
		}
		c.Password = strings.TrimSpace(string(password))
	}
	ids, err := registry.Register(ctx, c, p.Catalogue())
	if err != nil {
		return err
	}
	p.kafka.SchemaIDs = ids
	return nil
}

// opsHandler is the handler of the ops port.
func (p *Process) opsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", httpapi.NewOps(p.Reg, p.checks...))
	paths := []string{"/healthz", "/readyz", "/metrics", "/debug/pprof/"}
	if p.sink != nil {
		mux.Handle("GET /outbox", p.sink)
		paths = append(paths, "/outbox")
	}
	if p.registry.url == "" {
		const at = "/schema-registry"
		mux.Handle(at+"/", http.StripPrefix(at, registry.NewHandler(p.Catalogue())))
		paths = append(paths, at+"/subjects")
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, strings.Join(paths, "\n")+"\n") // the client disconnected
	})
	return mux
}
