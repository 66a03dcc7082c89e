package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"go.yaml.in/yaml/v3"
)

// DescriptionRoutes serves an OpenAPI document, given as YAML, at /openapi.yaml and /openapi.json, and as a
// page at /docs.
func DescriptionRoutes(document []byte) ([]Route, error) {
	asJSON, err := inJSON(document)
	if err != nil {
		return nil, err
	}
	serve := func(path, media string, body []byte) Route {
		return Route{Method: http.MethodGet, Path: path, Handle: func(_ context.Context, _ *Request, res *Response) error {
			res.SetHeader("Content-Type", media)
			res.Body = append(res.Body, body...)
			return nil
		}}
	}
	docs, err := docsRoutes()
	if err != nil {
		return nil, err
	}
	return append(docs,
		serve("/openapi.yaml", "application/yaml", document),
		serve("/openapi.json", "application/json", asJSON),
	), nil
}

// written are the documents in JSON: a process may run many servers, and reading YAML is most of what the start of one
// costs.
var written sync.Map

// inJSON is a document in JSON.
func inJSON(document []byte) ([]byte, error) {
	if known, is := written.Load(string(document)); is {
		return known.([]byte), nil
	}
	var parsed map[string]any
	if err := yaml.Unmarshal(document, &parsed); err != nil {
		return nil, fmt.Errorf("parse the OpenAPI document: %w", err)
	}
	text, err := json.Marshal(parsed)
	if err != nil {
		return nil, fmt.Errorf("write the OpenAPI document as JSON: %w", err)
	}
	written.Store(string(document), text)
	return text, nil
}
