package httpapi

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"path"
)

// The OpenAPI document as a page: Swagger UI, with the files of the npm package swagger-ui-dist in
// serving/clients.

//go:embed docs
var docsFiles embed.FS

// PagePolicy is a content security policy: a page may load its own files and send requests to its own server.
const PagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

var mediaTypes = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
}

// FileRoute serves the scripts, styles and images of a directory.
func FileRoute(prefix string, files fs.FS) (Route, error) {
	bodies := map[string][]byte{}
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return Route{}, fmt.Errorf("files of %s: %w", prefix, err)
	}
	for _, e := range entries {
		if mediaTypes[path.Ext(e.Name())] == "" {
			continue
		}
		if bodies[e.Name()], err = fs.ReadFile(files, e.Name()); err != nil {
			return Route{}, fmt.Errorf("files of %s: %w", prefix, err)
		}
	}
	return Route{Method: http.MethodGet, Path: prefix + "/{file}", Handle: func(_ context.Context, req *Request, res *Response) error {
		name := req.vars["file"]
		body, ok := bodies[name]
		if !ok {
			return &Error{Code: NotFound, Message: "there is no such file"}
		}
		res.SetHeader("Content-Type", mediaTypes[path.Ext(name)])
		res.Header["Cache-Control"] = noCache
		res.Body = append(res.Body, body...)
		return nil
	}}, nil
}

// docsRoutes are the routes of the page and its files.
func docsRoutes() ([]Route, error) {
	files, err := fs.Sub(docsFiles, "docs")
	if err != nil {
		return nil, fmt.Errorf("files of /docs: %w", err)
	}
	page, err := fs.ReadFile(files, "index.html")
	if err != nil {
		return nil, fmt.Errorf("page of /docs: %w", err)
	}
	beside, err := FileRoute("/docs", files)
	if err != nil {
		return nil, err
	}
	return []Route{beside, {Method: http.MethodGet, Path: "/docs", Handle: func(_ context.Context, _ *Request, res *Response) error {
		res.SetHeader("Content-Type", "text/html; charset=utf-8")
		res.SetHeader("Content-Security-Policy", PagePolicy)
		res.Header["Cache-Control"] = noCache
		res.Body = append(res.Body, page...)
		return nil
	}}}, nil
}
