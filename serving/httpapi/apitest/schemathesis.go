package apitest

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
)

// Schemathesis lets the tool of that name derive requests from the description that a service shows, and fails the
// test for a status, a header or a body that is not described, and for any 500. LIENSTREAM_SCHEMATHESIS is how many
// requests it makes at the least; else it makes some.
func Schemathesis(t *testing.T, handler http.Handler, root string) {
	t.Helper()
	tool, err := filepath.Abs(filepath.Join(root, ".tools/schemathesis-4.32.5"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(tool); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("schemathesis is not here: make deps")
	}
	var requests, internal atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		handler.ServeHTTP(&watched{w, &internal}, r)
	}))
	defer server.Close()
	want, _ := strconv.ParseInt(os.Getenv("LIENSTREAM_SCHEMATHESIS"), 10, 64) // 0: some
	phases, examples := "examples,fuzzing", int64(12)
	if want > 0 {
		phases, examples = "examples,coverage,fuzzing", want/4
	}
	command := exec.CommandContext(t.Context(), "python3", "-m", "schemathesis.cli", "run", server.URL+"/openapi.json",
		"--checks", "status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance",
		"--phases", phases, "--max-examples", strconv.FormatInt(examples, 10), "--mode", "all",
		"--workers", "1", // Python 3.11 counts the depth of its parser over all threads, and two fail by chance (gh-106905)
		"--suppress-health-check", "all", "--generation-database", "none", "--request-timeout", "60", "--warnings", "off", "--no-color")
	command.Env = append(os.Environ(), "PYTHONPATH="+tool)
	command.Dir = t.TempDir()
	out, err := command.CombinedOutput()
	if err != nil {
		t.Errorf("%v after %d requests\n%s", err, requests.Load(), out)
	}
	t.Logf("%d requests\n%s", requests.Load(), out)
	if n := internal.Load(); n > 0 {
		t.Errorf("%d requests were answered 500", n)
	}
	if requests.Load() < max(want, 60) {
		t.Errorf("only %d requests were made", requests.Load())
	}
}

// watched counts answers of 500. Each service describes them, so that no check of the tool sees one.
type watched struct {
	http.ResponseWriter
	internal *atomic.Int64
}

func (w *watched) WriteHeader(status int) {
	if status == http.StatusInternalServerError {
		w.internal.Add(1)
	}
	w.ResponseWriter.WriteHeader(status)
}
