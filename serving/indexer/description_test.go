package indexer

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"go.yaml.in/yaml/v3"
)

// parsed is the description as maps, lists and values.
func parsed(t testing.TB) map[string]any {
	t.Helper()
	var doc map[string]any
	if err := yaml.Unmarshal(description, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestDescriptionIsOpenAPI(t *testing.T) {
	asJSON, err := json.Marshal(parsed(t))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := libopenapi.NewDocument(asJSON)
	if err != nil {
		t.Fatal(err)
	}
	v, errs := validator.NewValidator(doc)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if ok, faults := v.ValidateDocument(); !ok {
		for _, f := range faults {
			t.Errorf("%s: %s", f.Message, f.Reason)
			for _, s := range f.SchemaValidationErrors {
				t.Errorf("  %s %s", s.Location, s.Reason)
			}
		}
	}
}

func TestDescriptionIsServed(t *testing.T) {
	c := newMarket(t).serve()
	if got := c.Get(t, "/openapi.yaml").Body; string(got) != string(description) {
		t.Errorf("/openapi.yaml has %d bytes of %d", len(got), len(description))
	}
	want, err := json.Marshal(parsed(t))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "/openapi.json", c.Get(t, "/openapi.json").Body, string(want))

	var index struct{ Endpoints []string }
	c.Get(t, "/").Decode(t, &index)
	for _, path := range index.Endpoints {
		if _, ok := parsed(t)["paths"].(map[string]any)[path]; !ok {
			t.Errorf("GET / names %s, which is not described", path)
		}
	}
}

// TestDescriptionIsStrict: an object has no other fields than those described, and always all of them. A
// field that may be null says so in its type; a flag, which is only ever true, may be absent.
func TestDescriptionIsStrict(t *testing.T) {
	var walk func(where string, node any)
	walk = func(where string, node any) {
		switch node := node.(type) {
		case []any:
			for i := range node {
				walk(fmt.Sprintf("%s/%d", where, i), node[i])
			}
		case map[string]any:
			if properties, ok := node["properties"].(map[string]any); ok && node["type"] == "object" {
				var required []string
				for _, name := range node["required"].([]any) {
					required = append(required, name.(string))
				}
				for name, property := range properties {
					if property, ok := property.(map[string]any); ok && property["const"] == true && !slices.Contains(required, name) {
						required = append(required, name)
					}
				}
				slices.Sort(required)
				if diff := cmp.Diff(slices.Sorted(maps.Keys(properties)), required); diff != "" || node["additionalProperties"] != false {
					t.Errorf("%s: additional fields %v, described and required differ: %s", where, node["additionalProperties"], diff)
				}
			}
			for name, child := range node {
				walk(where+"/"+name, child)
			}
		}
	}
	walk("", parsed(t)["components"].(map[string]any)["schemas"])
}

// TestRoutesAreDescribed: every route is in the description with every parameter, and the other way round.
func TestRoutesAreDescribed(t *testing.T) {
	x := newMarket(t).indexer()
	described := described(t)
	for path, parameters := range described {
		target := concrete(path)
		for _, name := range parameters {
			if strings.Contains(path, "{"+name+"}") {
				continue
			}
			w := httptest.NewRecorder()
			x.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target+"?"+name+"=~", http.NoBody))
			if body := w.Body.String(); w.Code != 400 || strings.Contains(body, "is not a parameter") {
				t.Errorf("%s has no parameter %s: %d %s", path, name, w.Code, body)
			}
		}
	}
	want := []string{
		"/", "/assets", "/assets/{token}/deals", "/burns", "/deals", "/deals/{id}", "/deals/{id}/bids", "/deals/{id}/drips", "/docs", "/docs/{file}", "/epochs", "/health/indexer",
		"/listings", "/openapi.json", "/openapi.yaml", "/page/{file}", "/pipeline", "/pool", "/portfolio/{wallet}", "/portfolio/{wallet}/balances", "/portfolio/{wallet}/bids",
		"/positions/{wallet}", "/rewards/{wallet}", "/rewards/{wallet}/drips", "/stats", "/stats/history", "/stream", "/wallet/{address}/positions",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(described))); diff != "" {
		t.Errorf("paths: %s", diff)
	}
}

// concrete fills in the variables of a path.
func concrete(path string) string {
	const known = "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"
	return strings.NewReplacer("{id}", "1", "{wallet}", known, "{address}", known, "{token}", known).Replace(path)
}

// operations is what is described but pages' files, which are there or not.
func operations(t testing.TB) map[string][]string {
	t.Helper()
	all := described(t)
	maps.DeleteFunc(all, func(path string, _ []string) bool { return strings.HasSuffix(path, "/{file}") })
	return all
}

// described is the names of the parameters of every path.
func described(t testing.TB) map[string][]string {
	t.Helper()
	doc := parsed(t)
	shared := doc["components"].(map[string]any)["parameters"].(map[string]any)
	all := make(map[string][]string)
	for path, item := range doc["paths"].(map[string]any) {
		all[path] = nil
		list, _ := item.(map[string]any)["get"].(map[string]any)["parameters"].([]any)
		for _, p := range list {
			p := p.(map[string]any)
			if ref, ok := p["$ref"].(string); ok {
				p = shared[strings.TrimPrefix(ref, "#/components/parameters/")].(map[string]any)
			}
			all[path] = append(all[path], p["name"].(string))
		}
	}
	return all
}
