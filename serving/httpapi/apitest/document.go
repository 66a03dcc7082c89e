// Package apitest holds a service to its OpenAPI description: it checks responses strictly (a status, a
// header, a field or a code that is not described is a fault) and derives requests to try from it. It is
// for tests and must not be linked into the program.
package apitest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// Document is an OpenAPI 3.1 description. Its schemas are JSON Schema 2020-12 and are validated as such.
type Document struct {
	root     any
	compiler *jsonschema.Compiler
	mu       sync.Mutex
	schemas  map[string]*jsonschema.Schema // by JSON pointer
}

const documentURL = "https://lienstream.invalid/openapi.json"

// Parse reads a description in YAML.
func Parse(document []byte) (*Document, error) {
	var parsed map[string]any
	if err := yaml.Unmarshal(document, &parsed); err != nil {
		return nil, fmt.Errorf("parse YAML: %w", err)
	}
	text, err := json.Marshal(parsed)
	if err != nil {
		return nil, fmt.Errorf("write as JSON: %w", err)
	}
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read as JSON: %w", err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	if err := compiler.AddResource(documentURL, root); err != nil {
		return nil, fmt.Errorf("add to the schema compiler: %w", err)
	}
	return &Document{root: root, compiler: compiler, schemas: make(map[string]*jsonschema.Schema)}, nil
}

// at follows a JSON pointer, and any $ref that it meets; it returns the node and its own pointer.
func (d *Document) at(pointer string) (node any, where string, ok bool) {
	node = d.root
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		object, isObject := node.(map[string]any)
		if !isObject {
			return nil, "", false
		}
		if node, ok = object[unescape(token)]; !ok {
			return nil, "", false
		}
		where += "/" + token
		if object, isObject := node.(map[string]any); isObject {
			if ref, isRef := object["$ref"].(string); isRef {
				if node, where, ok = d.at(strings.TrimPrefix(ref, "#")); !ok {
					return nil, "", false
				}
			}
		}
	}
	return node, where, true
}

func escape(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
}

func unescape(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
}

// validate checks a value against the schema at pointer.
func (d *Document) validate(pointer string, value any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	schema := d.schemas[pointer]
	if schema == nil {
		compiled, err := d.compiler.Compile(documentURL + "#" + pointer)
		if err != nil {
			return fmt.Errorf("compile the schema %s: %w", pointer, err)
		}
		d.schemas[pointer], schema = compiled, compiled
	}
	return schema.Validate(value)
}

// operation finds what describes a request: the pointer of the operation where there is one, else that
// of the response that the description has for all requests of the kind.
func (d *Document) operation(method, path string) (operation, response string) {
	template, ok := d.template(path)
	switch {
	case !ok:
		return "", "/components/responses/NotFound"
	case method == http.MethodOptions:
		return "", "/components/responses/Preflight"
	case method == http.MethodHead:
		method = http.MethodGet
	}
	pointer := "/paths/" + escape(template) + "/" + strings.ToLower(method)
	if _, _, ok := d.at(pointer); !ok {
		return "", "/components/responses/MethodNotAllowed"
	}
	return pointer, ""
}

// Validate checks a value, as jsonschema.UnmarshalJSON reads it, against the schema of that name.
func (d *Document) Validate(schema string, value any) error {
	return d.validate("/components/schemas/"+escape(schema), value)
}

func (d *Document) template(path string) (string, bool) {
	paths := d.keys("/paths")
	if slices.Contains(paths, path) {
		return path, true
	}
	have := strings.Split(path, "/")
	for _, template := range paths {
		want := strings.Split(template, "/")
		if len(want) == len(have) && strings.Contains(template, "{") && slices.EqualFunc(want, have, func(w, h string) bool {
			return w == h || strings.HasPrefix(w, "{") && h != ""
		}) {
			return template, true
		}
	}
	return "", false
}

func (d *Document) keys(pointer string) []string {
	node, _, _ := d.at(pointer)
	object, _ := node.(map[string]any)
	keys := make([]string, 0, len(object))
	for key := range object {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

var statusOfShared = map[string]int{
	"/components/responses/NotFound":         http.StatusNotFound,
	"/components/responses/Preflight":        http.StatusNoContent,
	"/components/responses/MethodNotAllowed": http.StatusMethodNotAllowed,
}

// transport are the headers of HTTP itself, which no operation describes.
var transport = []string{"Connection", "Content-Encoding", "Content-Length", "Content-Type", "Date"}

// Check returns what is wrong with a response, by the description, and its body without compression.
func (d *Document) Check(method, path string, resp *http.Response) ([]byte, error) {
	operation, response := d.operation(method, path)
	if operation != "" {
		response = fmt.Sprintf("%s/responses/%d", operation, resp.StatusCode)
	} else if want := statusOfShared[response]; want != resp.StatusCode {
		return nil, fmt.Errorf("status %d where the description has %d by %s", resp.StatusCode, want, response)
	}
	_, where, ok := d.at(response)
	if !ok {
		return nil, fmt.Errorf("status %d is not described: no %s", resp.StatusCode, response)
	}
	body, err := readBody(resp)
	if err != nil {
		return nil, err
	}
	if err := d.checkHeaders(where, resp.Header); err != nil {
		return body, err
	}
	return body, d.checkBody(where, method, resp.Header.Get("Content-Type"), body)
}

func readBody(resp *http.Response) ([]byte, error) {
	var reader io.Reader = resp.Body
	if resp.Header.Get("Content-Encoding") == "gzip" && resp.Request.Method != http.MethodHead {
		zip, err := gzip.NewReader(resp.Body)
		if err != nil {
			return nil, fmt.Errorf("open the compressed body: %w", err)
		}
		reader = zip
	}
	body, err := io.ReadAll(reader)
	if err != nil {
		return nil, fmt.Errorf("read the body: %w", err)
	}
	return body, nil
}

func (d *Document) checkHeaders(response string, have http.Header) error {
	described := make(map[string]string) // canonical name → pointer
	for _, name := range d.keys(response + "/headers") {
		described[http.CanonicalHeaderKey(name)] = response + "/headers/" + escape(name)
	}
	for name, values := range have {
		if slices.Contains(transport, name) {
			continue
		}
		pointer, ok := described[name]
		if !ok {
			return fmt.Errorf("header %s is not described by %s", name, response)
		}
		if len(values) != 1 {
			return fmt.Errorf("header %s has %d values", name, len(values))
		}
		_, where, _ := d.at(pointer)
		if err := d.validate(where+"/schema", values[0]); err != nil {
			return fmt.Errorf("header %s: %w", name, err)
		}
	}
	for name, pointer := range described {
		node, _, _ := d.at(pointer)
		if required, _ := node.(map[string]any)["required"].(bool); required && have[name] == nil {
			return fmt.Errorf("header %s is missing, by %s", name, response)
		}
	}
	return nil
}

func (d *Document) checkBody(response, method, contentType string, body []byte) error {
	described := d.keys(response + "/content")
	if len(described) == 0 || method == http.MethodHead {
		if len(body) > 0 {
			return fmt.Errorf("a body where none may be: %q", body)
		}
		return nil
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil || !slices.Contains(described, media) {
		return fmt.Errorf("content type %q is not described by %s", contentType, response)
	}
	var value any = string(body)
	if media == "application/json" {
		if value, err = jsonschema.UnmarshalJSON(bytes.NewReader(body)); err != nil {
			return fmt.Errorf("body %q: %w", body, err)
		}
	}
	return d.validate(response+"/content/"+escape(media)+"/schema", value)
}
