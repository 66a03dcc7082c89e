package indexer

import (
	"bytes"
	"context"
	"embed"
	"html"
	"io/fs"
	"strconv"
	"strings"

	"github.com/lienstream/lienstream/serving/httpapi"
)

// The page for people: GET / where a browser asks, and its files under /page/.

//go:embed page/*.html page/*.css page/*.js page/*.svg
var pageFiles embed.FS

// newPage is the page, told where an explorer of the chain is, and the outbox of alerts; empty: nowhere.
func newPage(explorer, outbox string) ([]byte, error) {
	page, err := pageFiles.ReadFile("page/index.html")
	if err == nil && outbox != "" {
		link := `<p><a href="` + html.EscapeString(outbox) + `">Outbox of alerts</a></p>` + "\n</footer>"
		page = bytes.Replace(page, []byte("</footer>"), []byte(link), 1)
	}
	if err != nil || explorer == "" {
		return page, err
	}
	root := `<html data-explorer="` + html.EscapeString(strings.TrimRight(explorer, "/")) + `"`
	return bytes.Replace(page, []byte("<html"), []byte(root), 1), nil
}

// pageRoute serves the page's files.
func pageRoute() (httpapi.Route, error) {
	files, err := fs.Sub(pageFiles, "page")
	if err != nil {
		return httpapi.Route{}, err
	}
	return httpapi.FileRoute("/page", files)
}

// root is the page where the caller prefers HTML, else the index of the service.
func (x *Indexer) root(_ context.Context, req *httpapi.Request, res *httpapi.Response) error {
	res.SetHeader("Vary", "Accept, Accept-Encoding")
	if !prefersHTML(req.HTTP.Header["Accept"]) {
		res.Body = append(res.Body, x.index...)
		return nil
	}
	res.SetHeader("Content-Type", "text/html; charset=utf-8")
	res.SetHeader("Content-Security-Policy", httpapi.PagePolicy)
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
