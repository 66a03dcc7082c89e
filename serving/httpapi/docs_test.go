package httpapi

import (
	"bytes"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/serving/httpapi/apitest"
)

// TestDocsShowEveryService opens the page of each service in a browser, under the policy that it is served with.
func TestDocsShowEveryService(t *testing.T) {
	ctx := apitest.Browser(t)
	files, err := filepath.Glob("../*/openapi.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("services' descriptions: %v %v", files, err)
	}
	for _, file := range files {
		service := filepath.Base(filepath.Dir(file))
		document, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		routes, err := DescriptionRoutes(document)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(New(DefaultConfig("127.0.0.1:0"), Options{
			Service: service, NoStore: true, Routes: routes, Logger: zap.NewNop(), Registerer: prometheus.NewRegistry(),
		}))
		defer server.Close()
		operations := strconv.Itoa(bytes.Count(document, []byte("operationId:")))
		apitest.Drive(t, ctx, service, chromedp.Navigate(server.URL+"/docs"),
			apitest.Until(`"ready" in document.documentElement.dataset && document.querySelectorAll(".opblock").length === `+operations))
		apitest.Drive(t, ctx, "an operation of the "+service, chromedp.Evaluate(`document.querySelector(".opblock-summary-control").click()`, nil),
			apitest.Until(`document.querySelector(".opblock.is-open .responses-table") !== null`))
	}
}

func TestDocsFiles(t *testing.T) {
	routes, err := docsRoutes()
	if err != nil {
		t.Fatal(err)
	}
	a, _, _ := newAPI(t, nil, routes...)
	page := do(a, http.MethodGet, "/docs", "")
	if h := page.Header(); h.Get("Content-Security-Policy") != PagePolicy || h.Get("Cache-Control") != "no-cache" || strings.Contains(PagePolicy, "unsafe") {
		t.Errorf("the page is served with %v", h)
	}
	for _, name := range []string{"swagger-ui-bundle.js", "swagger-ui.css", "start.js"} {
		w := do(a, http.MethodGet, "/docs/"+name, "")
		if w.Code != http.StatusOK || !strings.Contains(page.Body.String(), `"docs/`+name+`"`) {
			t.Errorf("%s: %d", name, w.Code)
		}
		if w := do(a, http.MethodGet, "/docs/"+name, "", "If-None-Match", w.Header().Get("ETag")); w.Code != http.StatusNotModified {
			t.Errorf("%s again: %d", name, w.Code)
		}
	}
	for _, name := range []string{"index.html", "LICENSE", "docs.go", "..", "%2e%2e%2fdocs.go"} {
		if w := do(a, http.MethodGet, "/docs/"+name, ""); w.Code == http.StatusOK {
			t.Errorf("%s is served", name)
		}
	}
}

// TestDocsAreThePackage: what is embedded is what npm has under the version that serving/clients names.
func TestDocsAreThePackage(t *testing.T) {
	for _, name := range []string{"swagger-ui-bundle.js", "swagger-ui.css", "LICENSE", "NOTICE"} {
		want, err := os.ReadFile(filepath.Join("../clients/node_modules/swagger-ui-dist", name))
		if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") == "" {
			t.Skip("the packages of serving/clients are not here: make deps")
		}
		if err != nil {
			t.Fatal(err)
		}
		if have, err := docsFiles.ReadFile("docs/" + name); err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s is not that of swagger-ui-dist: copy it again (%v)", name, err)
		}
	}
}
