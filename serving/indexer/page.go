package indexer

import (
	"bytes"
	"context"
	"embed"
	"html"
	"io/fs"
	"net/url"
	"strconv"
	"strings"

	"github.com/lienstream/lienstream/serving/httpapi"
)

// The web page: GET / for browsers, and its files under /page/.

//go:embed page/*.html page/*.css page/*.js page/*.svg
var pageFiles embed.FS

// newPage is the page with the URLs of the explorer, other services and the outbox; empty ones are omitted.
func newPage(cfg *Config) ([]byte, error) {
	page, err := pageFiles.ReadFile("page/index.html")
	if cfg.OutboxURL != "" {
		link := `<p><a href="` + html.EscapeString(cfg.OutboxURL) + `">Outbox of alerts</a></p>` + "\n</footer>"
		page = bytes.Replace(page, []byte("</footer>"), []byte(link), 1)
	}
	root := []byte("<html")
	for _, to := range []struct{ name, url string }{{"explorer", cfg.ExplorerURL}, {"agent", cfg.AgentURL}, {"valuation", cfg.ValuationURL}} {
		if to.url != "" {
			root = append(root, ` data-`+to.name+`="`+html.EscapeString(strings.TrimRight(to.url, "/"))+`"`...)
		}
	}
	return bytes.Replace(page, []byte("<html"), root, 1), err
}

// newPolicy is the page's content security policy: it also allows requests to the other services.
func newPolicy(cfg *Config) string {
	own := "connect-src 'self'"
	sources := []string{own}
	for _, at := range []string{cfg.AgentURL, cfg.ValuationURL} {
		if u, err := url.Parse(at); err == nil && at != "" {
			sources = append(sources, u.Scheme+"://"+u.Host)
		}
	}
	return strings.Replace(httpapi.PagePolicy, own, strings.Join(sources, " "), 1)
}

// pageRoute serves the page's files.
func pageRoute() (httpapi.Route, error) {
	files, err := fs.Sub(pageFiles, "page")
	if err != nil {
		return httpapi.Route{}, err
	}
	return httpapi.FileRoute("/page", files)
}

// root is the page if the client prefers HTML, else the index.
func (x *Indexer) root(_ context.Context, req *httpapi.Request, res *httpapi.Response) error {
	res.SetHeader("Vary", "Accept, Accept-Encoding")
	if !prefersHTML(req.HTTP.Header["Accept"]) {
		res.Body = append(res.Body, x.index...)
		return nil
	}
	res.SetHeader("Content-Type", "text/html; charset=utf-8")
	res.SetHeader("Content-Security-Policy", x.policy)
	res.Body = append(res.Body, x.page...)
	return nil
}

// prefersHTML parses Accept: a client that does not name HTML is a program.
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
