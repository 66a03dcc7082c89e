package support

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/lienstream/lienstream/serving/httpapi/apitest"
)

var described = sync.OnceValues(func() (*apitest.Document, error) { return apitest.Parse(description) })

// validate holds an answer to the service's description: every answer of every test comes by here.
func validate(t testing.TB, req *http.Request, res *http.Response, body []byte) {
	t.Helper()
	doc, err := described()
	check(t, err)
	again := *res
	again.Body = io.NopCloser(bytes.NewReader(body))
	again.Request = req
	if _, err := doc.Check(req.Method, req.URL.Path, &again); err != nil {
		t.Errorf("%s %s answered %d, which is not as described: %v\n%.300s", req.Method, req.URL.Path, res.StatusCode, err, body)
	}
}

// What is served is described, and what is described is served.
func TestTheDescriptionIsWhole(t *testing.T) {
	t.Parallel()
	doc := string(description)
	for _, r := range (&Service{}).routes() {
		if !strings.Contains(doc, "\n  "+r.Path+":\n") {
			t.Errorf("%s is served and not described", r.Path)
		}
	}
}
