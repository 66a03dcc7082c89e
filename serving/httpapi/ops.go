package httpapi

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
)

// Check is a readiness check.
type Check struct {
	Name string
	Run  func(ctx context.Context) error
}

const checkTimeout = 2 * time.Second // for all checks of one request

// NewOps returns the handler of the ops port, which must not be public: /healthz says that the process
// responds, /readyz that all checks pass, /metrics is for Prometheus, /debug/pprof for `go tool pprof`.
func NewOps(gatherer prometheus.Gatherer, checks ...Check) http.Handler {
	router := http.NewServeMux()
	router.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeOps(w, http.StatusOK, map[string]any{"ok": true})
	})
	router.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
		defer cancel()
		status, results := http.StatusOK, make(map[string]string, len(checks))
		for _, check := range checks {
			results[check.Name] = "ok"
			if err := check.Run(ctx); err != nil {
				status = http.StatusServiceUnavailable
				results[check.Name] = err.Error()
			}
		}
		writeOps(w, status, map[string]any{"ok": status == http.StatusOK, "checks": results})
	})
	router.HandleFunc("GET /debug/pprof/", pprof.Index) // and by name: heap, goroutine, allocs, block, mutex
	router.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	router.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	router.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	return router
}

func writeOps(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client disconnected
}

// stdLogger logs the messages of net/http at debug, because clients can cause them at will.
func stdLogger(logger *zap.Logger) *log.Logger {
	std, err := zap.NewStdLogAt(logger.Named("net/http"), zap.DebugLevel)
	if err != nil {
		panic(err) // only for a level that does not exist
	}
	return std
}
