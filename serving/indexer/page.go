package indexer

import (
	"bytes"
	"context"
	"embed"
	"html"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/lienstream/lienstream/serving/httpapi"
)

// The page for people: GET / where a browser asks, and its files under /page/.

//go:embed page/*.html page/*.css page/*.js page/*.svg
var pageFiles embed.FS

// pagePolicy lets the page load its own files, ask its own server, and nothing else.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

var pageTypes = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
}

// newPage is the page, told where an explorer of the chain is; empty: nowhere.
func newPage(explorer string) ([]byte, error) {
	page, err := pageFiles.ReadFile("page/index.html")
	if err != nil || explorer == "" {
		return page, err
	}
	root := `<html data-explorer="` + html.EscapeString(strings.TrimRight(explorer, "/")) + `"`
	return bytes.Replace(page, []byte("<html"), []byte(root), 1), nil
}

// pageRoutes are the routes of the page's files.
func pageRoutes() ([]httpapi.Route, error) {
	files, err := fs.ReadDir(pageFiles, "page")
	if err != nil {
		return nil, err
	}
	var routes []httpapi.Route
	for _, f := range files {
		if path.Ext(f.Name()) == ".html" {
			continue
		}
		body, err := pageFiles.ReadFile("page/" + f.Name())
		if err != nil {
			return nil, err
		}
		media := pageTypes[path.Ext(f.Name())]
		routes = append(routes, httpapi.Route{Method: http.MethodGet, Path: "/page/" + f.Name(), Handle: func(_ context.Context, _ *httpapi.Request, res *httpapi.Response) error {
			res.SetHeader("Content-Type", media)
			res.Body = append(res.Body, body...)
			return nil
		}})
	}
	return routes, nil
}

// root is the page where the caller prefers HTML, else the index of the service.
func (x *Indexer) root(_ context.Context, req *httpapi.Request, res *httpapi.Response) error {
	res.SetHeader("Vary", "Accept, Accept-Encoding")
	if !prefersHTML(req.HTTP.Header["Accept"]) {
		res.Body = append(res.Body, x.index...)
		return nil
	}
	res.SetHeader("Content-Type", "text/html; charset=utf-8")
	res.SetHeader("Content-Security-Policy", pagePolicy)
	res.Body = append(res.Body, x.page...)
	return nil
}

// prefersHTML reads Accept: whoever does not ask for HTML by name is a program.
func prefersHTML(headers []string) bool {
	var html, data float64
	for _, line := range headers {
		for item := range strings.SplitSeq(line, ",") {
			media, params, _ := strings.Cut(strings.ToLower(item), ";")
			weight := 1.0
			if q, ok := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q="); ok {
				weight, _ = strconv.ParseFloat(q, 64)
			}
			switch strings.TrimSpace(media) {
			case "text/html":
				html = max(html, weight)
			case "application/json":
				data = max(data, weight)
			}
		}
	}
	return html > 0 && html >= data
}
